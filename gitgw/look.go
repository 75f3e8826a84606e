package gitgw

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// look is the credential a listing is fetched with.
type look struct {
	token  Token
	pauses []time.Duration // for a token too young to be known everywhere
	// release must be called when the listing is over; spoilt says that the forge
	// does not take the token.
	release func(spoilt bool)
	// lacking is why there is no token, where somebody could change that.
	lacking string
}

// list fetches upload-pack's listing: with the run's own token, or one minted to
// read, or none, which still serves public repositories. Never with one that
// writes. A run that is older than its token must still be able to push, so a
// token that the forge does not take is not the end. The result's
// release is never nil.
func (g *Gateway) list(ctx context.Context, caller Caller, up *upstream) (resp *http.Response, used look, err error) {
	own, has := Token{}, false
	if caller.ReadToken != nil {
		own, has = caller.ReadToken(ctx, up.repo)
	}
	if has && !own.IsZero() {
		resp, err = up.refs(ctx, "git-upload-pack", "", own)
		if e, ok := errors.AsType[*upstreamError](err); !ok || e.status != http.StatusUnauthorized || g.Minter == nil {
			return resp, look{token: own, release: func(bool) {}}, err
		}
	}
	used = g.looks.borrow(ctx, g, caller, up.repo)
	resp, err = retrying(ctx, used.pauses, func(error) {}, func() (*http.Response, error) {
		return up.refs(ctx, "git-upload-pack", "", used.token)
	})
	if err != nil && used.lacking != "" {
		// Without a token the forge can only say that there is no such repository.
		err = &MintError{Reason: "no token to list " + up.repo.FullName() + ": " + used.lacking, Err: err}
	}
	return resp, used, err
}

// mintLook makes a token that can read repo and nothing else, or says why not.
func (g *Gateway) mintLook(ctx context.Context, caller Caller, repo Repo) (t Token, lacking string) {
	if err := g.budgets.spend(caller.Session, g.Limits.withDefaults().Mints, time.Now()); err != nil {
		return Token{}, err.Error()
	}
	// As for a push, the client's death does not cut the minting short: a token
	// that was made must be known, to be revoked.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mintTime)
	defer cancel()
	t, err := g.Minter.Mint(ctx, repo, Look)
	if err != nil {
		g.log().Info("no token to list refs", attrs(caller, repo, err)...)
		if told, ok := errors.AsType[*MintError](err); ok {
			lacking = told.Reason
		}
		return Token{}, lacking
	}
	return t, ""
}

// revokeLook ends a token of mintLook. ctx, that of the request it was minted for,
// may have ended long ago.
func (g *Gateway) revokeLook(ctx context.Context, caller Caller, repo Repo, t Token) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.Limits.withDefaults().Revoke)
	defer cancel()
	if err := g.Minter.Revoke(ctx, t); err != nil {
		g.log().Warn("token to list refs was not revoked", attrs(caller, repo, err)...)
	}
}
