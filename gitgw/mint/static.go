package mint

import (
	"context"
	"time"

	"postern/gitgw"
)

// Static hands out fixed tokens, for forges without apps. They are the
// operator's: they outlive every push, reach whatever they reach, and are never
// revoked here. Prefer a minter that makes one per push.
type Static struct {
	read, write gitgw.Token
}

// NewStatic holds a token for pushes and one that only reads; either may be "".
func NewStatic(write, read string) *Static {
	return &Static{read: gitgw.NewToken(read, time.Time{}), write: gitgw.NewToken(write, time.Time{})}
}

// Mint gives the fixed token for the access. It never gives the one that writes
// to who only reads.
func (s *Static) Mint(_ context.Context, _ gitgw.Repo, access gitgw.Access) (gitgw.Token, error) {
	t, what := s.read, "read"
	if access == gitgw.Write {
		t, what = s.write, "push"
	}
	if t.IsZero() {
		return gitgw.Token{}, &gitgw.MintError{Reason: "no " + what + " token is configured"}
	}
	return t, nil
}

// Revoke does nothing: the token is the operator's.
func (s *Static) Revoke(context.Context, gitgw.Token) error { return nil }

var _ gitgw.Minter = (*Static)(nil)
