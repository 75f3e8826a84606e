package mint_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"postern/gitgw"
	"postern/gitgw/mint"
	"postern/integration/fakegithub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hub is a forge with acme/app and acme/lib, an app installed on acme, and a
// minter for it.
func hub(t *testing.T) (*fakegithub.Server, *mint.GitHubApp) {
	t.Helper()
	h, err := fakegithub.New(fakegithub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	for _, name := range []string{"acme/app", "acme/lib"} {
		if err := h.AddRepo(name); err != nil {
			t.Fatal(err)
		}
	}
	forge, err := gitgw.NewForge("github.com", h.APIURL(), h.URL())
	if err != nil {
		t.Fatal(err)
	}
	key, err := mint.ParseKey(h.KeyPEM())
	if err != nil {
		t.Fatal(err)
	}
	app := &mint.GitHubApp{AppID: fmt.Sprint(h.AppID()), Key: key, Forge: forge}
	t.Cleanup(func() { _ = app.Close() })
	return h, app
}

func repo(t *testing.T, text string) gitgw.Repo {
	t.Helper()
	r, err := gitgw.ParseRepo(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMintExactly(t *testing.T) {
	h, app := hub(t)
	h.Install(fakegithub.Installation{Account: "acme"})
	want := map[gitgw.Access]string{
		gitgw.Read:  "map[contents:read metadata:read pull_requests:write]",
		gitgw.Write: "map[contents:write metadata:read]",
		gitgw.Look:  "map[contents:read metadata:read]",
	}
	for access, permissions := range want {
		for range 2 { // the second time by id
			token, err := app.Mint(t.Context(), repo(t, "github.com/Acme/App"), access)
			if err != nil {
				t.Fatal(err)
			}
			made, ok := h.Token(token.Value())
			if !ok || len(made.Repositories) != 1 || made.Repositories[0] != "acme/app" || fmt.Sprint(made.Permissions) != permissions {
				t.Errorf("%s: opens %v with %v, want %s", access, made.Repositories, made.Permissions, permissions)
			}
			if time.Until(token.Expires()) < 50*time.Minute {
				t.Errorf("expires %s", token.Expires())
			}
			if err := app.Revoke(t.Context(), token); err != nil {
				t.Error(err)
			}
		}
	}
	if live := h.Live(); len(live) != 0 {
		t.Errorf("%d tokens live", len(live))
	}
	// One question for the installation, then none: it is remembered.
	if n := len(h.Find("GET", "/installation", "")); n != 1 {
		t.Errorf("asked %d times for the installation", n)
	}
	if _, err := app.Mint(t.Context(), repo(t, "github.com/acme/app"), 99); err == nil {
		t.Error("an unknown access was minted")
	}
}

func TestRevokeTwice(t *testing.T) {
	h, app := hub(t)
	h.Install(fakegithub.Installation{Account: "acme"})
	token, err := app.Mint(t.Context(), repo(t, "github.com/acme/app"), gitgw.Write)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := app.Revoke(t.Context(), token); err != nil {
			t.Error(err)
		}
	}
	h.SetFaults(fakegithub.Faults{Revoke: 500})
	if err := app.Revoke(t.Context(), token); err == nil || strings.Contains(err.Error(), token.Value()) {
		t.Errorf("%v", err)
	}
}

// TestReasons: each cause has its own words.
func TestReasons(t *testing.T) {
	everything := map[string]string{"contents": "write", "pull_requests": "write", "metadata": "read"}
	for _, c := range []struct {
		name string
		set  func(*fakegithub.Server, *mint.GitHubApp)
		want string
	}{
		{"not installed", func(*fakegithub.Server, *mint.GitHubApp) {}, "the GitHub App is not installed on acme/app"},
		{"not selected", func(h *fakegithub.Server, _ *mint.GitHubApp) {
			h.Install(fakegithub.Installation{Account: "acme", Repos: []string{"acme/lib"}})
		}, "the GitHub App is installed on acme, but acme/app is not selected"},
		{"suspended", func(h *fakegithub.Server, _ *mint.GitHubApp) {
			h.Install(fakegithub.Installation{Account: "acme", Suspended: true})
		}, "the GitHub App's installation on acme is suspended"},
		{"permission", func(h *fakegithub.Server, _ *mint.GitHubApp) {
			h.Install(fakegithub.Installation{Account: "acme", Permissions: map[string]string{"contents": "read", "metadata": "read"}})
		}, "the GitHub App's installation on acme lacks a permission it needs"},
		{"5xx", func(h *fakegithub.Server, _ *mint.GitHubApp) { h.SetFaults(fakegithub.Faults{API: 503}) }, "the GitHub API answered 503"},
		{"5xx at the token", func(h *fakegithub.Server, _ *mint.GitHubApp) {
			h.Install(fakegithub.Installation{Account: "acme"})
			h.SetFaults(fakegithub.Faults{Mint: 500})
		}, "the GitHub API answered 500"},
		{"rate limit", func(h *fakegithub.Server, _ *mint.GitHubApp) {
			h.SetFaults(fakegithub.Faults{RateLimit: fakegithub.PrimaryRateLimit})
		}, "the GitHub API's rate limit is reached until "},
		{"secondary rate limit", func(h *fakegithub.Server, _ *mint.GitHubApp) {
			h.SetFaults(fakegithub.Faults{RateLimit: fakegithub.SecondaryRateLimit})
		}, "the GitHub API asks to wait "},
		{"wrong key", func(_ *fakegithub.Server, a *mint.GitHubApp) { a.Key, _ = rsa.GenerateKey(rand.Reader, 2048) }, "the GitHub API does not accept the app's id and key"},
		{"renamed", func(h *fakegithub.Server, _ *mint.GitHubApp) {
			h.Install(fakegithub.Installation{Account: "acme", Permissions: everything})
			_ = h.Rename("acme/app", "acme/other")
		}, "acme/app is now acme/other: change the remote"},
		{"down", func(h *fakegithub.Server, _ *mint.GitHubApp) { _ = h.Close() }, "the GitHub API cannot be reached"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, app := hub(t)
			c.set(h, app)
			_, err := app.Mint(t.Context(), repo(t, "github.com/acme/app"), gitgw.Write)
			var told *gitgw.MintError
			if !errors.As(err, &told) || !strings.HasPrefix(told.Reason, c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if len(h.Live()) != 0 {
				t.Error("a token lives")
			}
		})
	}
	_, app := hub(t)
	if _, err := app.Mint(t.Context(), repo(t, "ghe.example/acme/app"), gitgw.Write); err == nil || !strings.Contains(err.Error(), "belongs to github.com") {
		t.Errorf("%v", err)
	}
}

// What was remembered of a repository may be true no more.
func TestReinstalled(t *testing.T) {
	h, app := hub(t)
	first := h.Install(fakegithub.Installation{Account: "acme", Repos: []string{"acme/app"}})
	r := repo(t, "github.com/acme/app")
	if _, err := app.Mint(t.Context(), r, gitgw.Write); err != nil {
		t.Fatal(err)
	}
	h.Install(fakegithub.Installation{ID: first, Account: "someone-else"})
	h.Install(fakegithub.Installation{Account: "acme"})
	if _, err := app.Mint(t.Context(), r, gitgw.Write); err != nil {
		t.Errorf("after the app was installed anew: %v", err)
	}
	if err := h.Rename("acme/app", "acme/new"); err != nil {
		t.Fatal(err)
	}
	live := len(h.Live())
	// By its id the old name would open the new repository: refused, revoked.
	if _, err := app.Mint(t.Context(), r, gitgw.Write); err == nil || !strings.Contains(err.Error(), "is now acme/new: change the remote") {
		t.Errorf("%v", err)
	}
	if len(h.Live()) != live {
		t.Error("the wrong token lives")
	}
}

// A clock that is off is corrected by the forge's Date, once.
func TestClockSkew(t *testing.T) {
	h, app := hub(t)
	h.Install(fakegithub.Installation{Account: "acme"})
	for _, off := range []time.Duration{-3 * time.Hour, 5 * time.Hour} {
		h.Advance(off)
		token, err := app.Mint(t.Context(), repo(t, "github.com/acme/app"), gitgw.Write)
		if err != nil {
			t.Fatalf("%s: %v", off, err)
		}
		h.ForgetRequests()
		if _, err := app.Mint(t.Context(), repo(t, "github.com/acme/app"), gitgw.Write); err != nil || len(h.Requests()) != 1 {
			t.Errorf("%s: the clock was not remembered: %d requests, %v", off, len(h.Requests()), err)
		}
		_ = app.Revoke(t.Context(), token)
	}
}

// An API that answers otherwise than it should is not believed.
func TestStrangeAnswers(t *testing.T) {
	good := `"id":7,"full_name":"acme/app"`
	for name, c := range map[string]struct{ body, want string }{
		"other repository":  {`{"token":"tok-12345678","repositories":[{"id":8,"full_name":"acme/other"}],"permissions":{"contents":"read"}}`, "acme/app is now acme/other"},
		"two repositories":  {`{"token":"tok-12345678","repositories":[{` + good + `},{"id":8,"full_name":"acme/lib"}],"permissions":{"contents":"read"}}`, "for 2 repositories"},
		"all repositories":  {`{"token":"tok-12345678","permissions":{"contents":"read"}}`, "for 0 repositories"},
		"more permissions":  {`{"token":"tok-12345678","repositories":[{` + good + `}],"permissions":{"contents":"read","workflows":"write"}}`, "other permissions"},
		"fewer permissions": {`{"token":"tok-12345678","repositories":[{` + good + `}],"permissions":{"actions":"read"}}`, "other permissions"},
		"no permissions":    {`{"token":"tok-12345678","repositories":[{` + good + `}]}`, "other permissions"},
		"no token":          {`{"repositories":[{` + good + `}],"permissions":{"contents":"read"}}`, "gave no token"},
		"no JSON":           {`<html>`, "cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var revoked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.Method {
				case http.MethodDelete:
					mu.Lock()
					defer mu.Unlock()
					revoked = append(revoked, r.Header.Get("Authorization"))
					w.WriteHeader(http.StatusNoContent)
				case http.MethodPost:
					w.WriteHeader(http.StatusCreated)
					_, _ = w.Write([]byte(c.body))
				default:
					_ = json.NewEncoder(w).Encode(map[string]int{"id": 1})
				}
			}))
			defer server.Close()
			app := strangeApp(t, server.URL)
			_, err := app.Mint(t.Context(), repo(t, "github.com/acme/app"), gitgw.Look)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "tok-12345678") {
				t.Errorf("%v, want %q", err, c.want)
			}
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(c.body, "tok-") && (len(revoked) != 1 || revoked[0] != "Bearer tok-12345678") {
				t.Errorf("revoked %v", revoked)
			}
		})
	}
}

func strangeApp(t *testing.T, api string) *mint.GitHubApp {
	t.Helper()
	forge, err := gitgw.NewForge("github.com", api, "")
	if err != nil {
		t.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	app := &mint.GitHubApp{AppID: "1", Key: key, Forge: forge}
	t.Cleanup(func() { _ = app.Close() })
	return app
}

// The app's JWT goes to the configured API or nowhere.
func TestNoRedirect(t *testing.T) {
	var mu sync.Mutex
	var got []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Method+" "+r.URL.Path)
	}))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	app := strangeApp(t, server.URL)
	if _, err := app.Mint(t.Context(), repo(t, "github.com/acme/app"), gitgw.Write); err == nil || !strings.Contains(err.Error(), "has moved") {
		t.Errorf("%v", err)
	}
	if mu.Lock(); len(got) != 0 {
		t.Errorf("followed to %v", got)
	}
	mu.Unlock()
}

func TestMintCancelled(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	app := strangeApp(t, server.URL)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := app.Mint(ctx, repo(t, "github.com/acme/app"), gitgw.Write)
	if err == nil || !strings.Contains(err.Error(), "did not answer in time") {
		t.Errorf("%v", err)
	}
}

func TestParseKey(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"PKCS#1": {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)},
		"PKCS#8": {Type: "PRIVATE KEY", Bytes: pkcs8},
	} {
		got, err := mint.ParseKey(pem.EncodeToMemory(block))
		if err != nil || !got.Equal(key) {
			t.Errorf("%s: %v", name, err)
		}
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := x509.MarshalPKCS8PrivateKey(curve)
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string][]byte{
		"nothing":     nil,
		"no PEM":      []byte("-----BEGIN secret"),
		"certificate": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pkcs8}),
		"EC":          pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: ec}),
		"garbage":     pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: []byte("garbage")}),
		"garbage 8":   pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("garbage")}),
	} {
		if _, err := mint.ParseKey(in); err == nil {
			t.Errorf("%s: was read", name)
		}
	}
}

func TestUnconfigured(t *testing.T) {
	forge := gitgw.GitHub()
	for name, app := range map[string]*mint.GitHubApp{
		"no key": {AppID: "1", Forge: forge},
		"no API": {AppID: "1", Forge: gitgw.Forge{Host: "github.com"}, Key: mustKey(t)},
	} {
		if _, err := app.Mint(t.Context(), repo(t, "github.com/acme/app"), gitgw.Write); err == nil {
			t.Errorf("%s: minted", name)
		}
	}
}

func mustKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
