package mint_test

import (
	"context"
	"testing"
	"time"

	"postern/gitgw"
	"postern/integration/fakegithub"
)

// A token that is revoked before all of the forge knows it is dead afterwards, and
// not taken for dead because the forge does not know it.
func TestRevokeYoung(t *testing.T) {
	t.Parallel()
	h, app := hub(t)
	h.Install(fakegithub.Installation{Account: "acme"})
	token, err := app.Mint(t.Context(), repo(t, "github.com/acme/app"), gitgw.Write)
	if err != nil {
		t.Fatal(err)
	}
	h.SetFaults(fakegithub.Faults{TokenLag: 1500 * time.Millisecond})
	if err := app.Revoke(t.Context(), token); err != nil {
		t.Error(err)
	}
	if got, _ := h.Token(token.Value()); !got.Revoked() {
		t.Error("the token lives on")
	}
	// Its second revocation has nothing to wait for.
	started := time.Now()
	if err := app.Revoke(t.Context(), token); err != nil || time.Since(started) > time.Second {
		t.Errorf("again: %v after %s", err, time.Since(started))
	}
}

// Whoever has no time to wait hears that the token may live.
func TestRevokeYoungInVain(t *testing.T) {
	t.Parallel()
	h, app := hub(t)
	h.Install(fakegithub.Installation{Account: "acme"})
	token, err := app.Mint(t.Context(), repo(t, "github.com/acme/app"), gitgw.Write)
	if err != nil {
		t.Fatal(err)
	}
	h.SetFaults(fakegithub.Faults{TokenLag: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := app.Revoke(ctx, token); err == nil {
		t.Error("taken for dead")
	}
	// One that does not say how old it is comes from a launcher, and is not young.
	if err := app.Revoke(t.Context(), gitgw.NewToken(token.Value(), time.Time{})); err != nil {
		t.Error(err)
	}
}
