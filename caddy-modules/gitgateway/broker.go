package gitgateway

import (
	"context"
	"fmt"
	"time"

	"postern/caddy-modules/session"
	"postern/gitgw"
	"postern/gitgw/mint"
)

// broker gives sessions their read tokens. Sessions outlive configurations, and
// so does it: the minter that made a token is the one that revokes it.
type broker struct {
	minter gitgw.Minter
	forges []gitgw.Forge
}

// Mint implements [session.Broker].
func (b broker) Mint(ctx context.Context, repository string) (string, time.Time, func(context.Context) error, error) {
	repo, err := gitgw.ParseRepo(repository)
	if err != nil {
		return "", time.Time{}, nil, err
	}
	if _, ok := findForge(b.forges, repo.Host()); !ok {
		// A repository elsewhere is no business of this gateway. The session has
		// its network all the same, and no token.
		return "", time.Time{}, nil, nil
	}
	// After a crash the token is kept for as long as its launcher may come back.
	ctx = mint.WithHolder(ctx, string(session.HolderFrom(ctx)))
	token, err := b.minter.Mint(ctx, repo, gitgw.Read)
	if err != nil {
		return "", time.Time{}, nil, fmt.Errorf("mint a read token: %w", err)
	}
	return token.Value(), token.Expires(), b.revoker(token), nil
}

// Adopt implements [session.Broker]: the token was made before a crash. A ledger
// that has no room for it changes nothing here: the session revokes it.
func (b broker) Adopt(value string) func(context.Context) error {
	token := gitgw.NewToken(value, time.Time{})
	if ledger, ok := b.minter.(mint.Adopter); ok {
		_ = ledger.Adopt(context.Background(), token)
	}
	return b.revoker(token)
}

func (b broker) revoker(token gitgw.Token) func(context.Context) error {
	return func(ctx context.Context) error { return b.minter.Revoke(ctx, token) }
}

// Interface guard
var _ session.Broker = broker{}
