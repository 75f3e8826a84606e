package gitgw

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

type storage func(*http.Request) (*http.Response, error)

func (f storage) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What the forge gives for its storage is a credential of any shape, and storage that
// does not take it may say it back.
func TestLFSCredentialIsNotSaidBack(t *testing.T) {
	t.Parallel()
	const secret = "gitauth-v1-QmFzaWM6c2VjcmV0"
	up := &upstream{forge: Forge{Host: "forge.example"}}
	store := storage(func(r *http.Request) (*http.Response, error) {
		said := `{"message": "no such credential: ` + r.Header.Get("X-Storage-Key") + `"}`
		return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(said)), Request: r}, nil
	})
	l := &lfsRequest{g: &Gateway{Storage: store}, up: up}
	a := &lfsAction{Href: "https://storage.example/o", Header: map[string]string{"X-Storage-Key": "RemoteAuth " + secret}}
	_, err := l.act(context.Background(), http.MethodPut, a, strings.NewReader("x"), 1, "application/octet-stream")
	if err == nil || !strings.Contains(err.Error(), secret) {
		t.Fatalf("%v: the storage said nothing of it", err)
	}
	if shown := l.redact.line(err.Error()); strings.Contains(shown, secret) || !strings.Contains(shown, "no such credential") {
		t.Errorf("shown as %q", shown)
	}
}

// A handle is one run's, and not that of the next run with its name. What the forge says
// of an object does not say the token.
func TestLFSHandleIsOneLifes(t *testing.T) {
	t.Parallel()
	repo, _ := ParseRepo("github.com/acme/app")
	first, second := make(chan struct{}), make(chan struct{})
	g := &Gateway{Minter: noRevoke{}}
	const value = "a-token-of-no-known-shape"
	grant := &lfsGrant{g: g, caller: Caller{Session: "s", Ended: first}, repo: repo, token: NewToken(value, time.Time{}), done: make(chan struct{})}
	oid, other := strings.Repeat("a", 64), strings.Repeat("b", 64)
	told := g.lfsGrants.open(grant, &lfsAnswer{Objects: []lfsObject{
		{OID: oid, Actions: map[string]*lfsAction{"upload": {Href: "https://x.example/"}}},
		{OID: other, Error: &lfsObjectError{Code: 403, Message: "no " + value}},
	}}, "http://git.internal/")
	defer g.lfsGrants.close()
	if said := told.Objects[1].Error.Message; strings.Contains(said, value) {
		t.Errorf("the forge's word is %q", said)
	}
	_, handle, _ := strings.Cut(told.Objects[0].Actions["upload"].Href, "?handle=")
	to := route{repo: repo, object: oid, handle: handle}
	if _, err := g.lfsGrants.begin(Caller{Session: "s", Ended: second}, to, false); err == nil {
		t.Error("another life of the name took the handle")
	}
	h, err := g.lfsGrants.begin(Caller{Session: "s", Ended: first}, to, false)
	if err != nil {
		t.Fatal(err)
	}
	g.lfsGrants.finish(h, false, true)
}

type noRevoke struct{}

func (noRevoke) Mint(context.Context, Repo, Access) (Token, error) { return Token{}, errors.New("no") }
func (noRevoke) Revoke(context.Context, Token) error               { return nil }
