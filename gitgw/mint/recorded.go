package mint

import (
	"context"
	"errors"
	"time"

	"postern/gitgw"
)

// Adopter is what a minter of Wrap is beside a [gitgw.Minter].
type Adopter interface {
	// Adopt takes a token of a former process for one of this one's own, since its
	// holder has come back with it. Whoever adopts it revokes it.
	Adopt(ctx context.Context, t gitgw.Token) error
}

// recorderKey is the context key under which a minter that needs another token on
// its way finds the one that records it.
type recorderKey struct{}

type holderKey struct{}

// WithHolder says whose life bounds that of the tokens minted with ctx. A token of
// a former process is left alone while its holder lives, because it may come back
// with it; without a holder it is revoked at once.
func WithHolder(ctx context.Context, holder string) context.Context {
	return context.WithValue(ctx, holderKey{}, holder)
}

func holderFrom(ctx context.Context) string {
	holder, _ := ctx.Value(holderKey{}).(string)
	return holder
}

// recorded is a minter behind a ledger.
type recorded struct {
	ledger *Ledger
	minter gitgw.Minter
}

// Mint makes a token and hands it out when it stands in the file.
func (r *recorded) Mint(ctx context.Context, repo gitgw.Repo, access gitgw.Access) (gitgw.Token, error) {
	if err := r.ledger.room(); err != nil {
		return gitgw.Token{}, err
	}
	t, err := r.minter.Mint(context.WithValue(ctx, recorderKey{}, r), repo, access)
	if err != nil || t.IsZero() {
		return t, err
	}
	err = r.ledger.add(&entry{token: t, minter: r.minter, record: record{
		Token: t.Value(), Expires: t.Expires(), Time: time.Now(), Holder: holderFrom(ctx),
		Host: repo.Host(), Repository: repo.FullName(), Access: access.String(),
	}})
	if err == nil {
		return t, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unrecordedFor)
	defer cancel()
	return gitgw.Token{}, &gitgw.MintError{
		Reason: "the token could not be recorded, and was given back",
		Err:    errors.Join(err, r.minter.Revoke(ctx, t)),
	}
}

// Revoke revokes a token and strikes it out. One that cannot be revoked now stays
// in the file, and is tried again in the background until it has expired.
func (r *recorded) Revoke(ctx context.Context, t gitgw.Token) error {
	err := r.minter.Revoke(ctx, t)
	if err == nil {
		r.ledger.remove(t.ID())
	} else {
		r.ledger.orphan(t.ID())
	}
	return err
}

// Adopt implements [Adopter].
func (r *recorded) Adopt(ctx context.Context, t gitgw.Token) error {
	l := r.ledger
	l.mu.Lock()
	if e := l.tokens[t.ID()]; e != nil {
		e.orphan, e.minter = false, r.minter
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	// It was minted in the moment of the crash, or by a process that kept none.
	return l.add(&entry{token: t, minter: r.minter, record: record{
		Token: t.Value(), Expires: t.Expires(), Time: time.Now(), Holder: holderFrom(ctx), Access: gitgw.Read.String(),
	}})
}
