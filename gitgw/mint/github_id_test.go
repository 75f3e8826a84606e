package mint_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"postern/gitgw"
	"postern/gitgw/mint"
	"postern/integration/fakegithub"
)

// asked is a transport that keeps what tokens were asked for.
type asked struct {
	mu     sync.Mutex
	bodies []string
}

func (a *asked) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil && strings.HasSuffix(r.URL.Path, "/access_tokens") {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		a.mu.Lock()
		a.bodies = append(a.bodies, string(body))
		a.mu.Unlock()
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(strings.NewReader(string(body)))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// writes checks that no token that writes was asked for by name.
func (a *asked) writes(t *testing.T) (n int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, body := range a.bodies {
		var ask struct {
			Repositories  []string          `json:"repositories"`
			RepositoryIDs []int64           `json:"repository_ids"`
			Permissions   map[string]string `json:"permissions"`
		}
		if err := json.Unmarshal([]byte(body), &ask); err != nil {
			t.Fatal(err)
		}
		if ask.Permissions["contents"] != "write" {
			continue
		}
		n++
		if len(ask.Repositories) != 0 || len(ask.RepositoryIDs) != 1 || len(ask.Permissions) != 1 {
			t.Errorf("a write token was asked for as %s", body)
		}
	}
	return n
}

// A token that writes is asked for by id, the first one too; the one that tells the
// id is written down like any other, and revoked.
func TestWriteByID(t *testing.T) {
	h, app := hub(t)
	seen := &asked{}
	app.HTTP = &http.Client{Transport: seen}
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	installed := h.Install(fakegithub.Installation{Account: "acme"})
	ledger := mint.NewLedger(mint.LedgerOptions{Path: filepath.Join(t.TempDir(), "tokens.ledger")})
	if err := ledger.Open(); err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	for name, m := range map[string]gitgw.Minter{"github.com/acme/app": app, "github.com/acme/lib": ledger.Wrap(app, "github.com")} {
		for range 2 {
			token, err := m.Mint(t.Context(), repo(t, name), gitgw.Write)
			if err != nil {
				t.Fatal(err)
			}
			if live := h.Live(); len(live) != 1 || live[0].Value != token.Value() {
				t.Errorf("%d tokens live beside the one asked for", len(live)-1)
			}
			if err := m.Revoke(t.Context(), token); err != nil {
				t.Error(err)
			}
		}
	}
	if n := seen.writes(t); n != 4 || len(seen.bodies) != 6 {
		t.Errorf("%d write tokens in %d minted", n, len(seen.bodies))
	}
	// What is remembered of a repository does not hide what has become of it.
	if err := h.Suspend(installed, true); err != nil {
		t.Fatal(err)
	}
	if _, err := app.Mint(t.Context(), repo(t, "github.com/acme/app"), gitgw.Write); err == nil || !strings.Contains(err.Error(), "suspended") {
		t.Errorf("%v", err)
	}
}

// Renamed: the new name is told, whether or not the id was known, and nothing lives.
func TestRenamedIsTold(t *testing.T) {
	for _, known := range []bool{false, true} {
		h, app := hub(t)
		h.Install(fakegithub.Installation{Account: "acme"})
		if known {
			token, err := app.Mint(t.Context(), repo(t, "github.com/acme/app"), gitgw.Write)
			if err != nil {
				t.Fatal(err)
			}
			_ = app.Revoke(t.Context(), token)
		}
		if err := h.Rename("acme/app", "acme/new"); err != nil {
			t.Fatal(err)
		}
		for _, access := range []gitgw.Access{gitgw.Write, gitgw.Read, gitgw.Look} {
			_, err := app.Mint(t.Context(), repo(t, "github.com/acme/app"), access)
			told, ok := errors.AsType[*gitgw.MintError](err)
			if !ok || told.Reason != "acme/app is now acme/new: change the remote" {
				t.Errorf("known %v, %s: %v", known, access, err)
			}
		}
		if len(h.Live()) != 0 {
			t.Errorf("%d tokens live", len(h.Live()))
		}
	}
}

// Of a redirect's address only the id is taken, and only where it is the API's own.
func TestRedirectsElsewhere(t *testing.T) {
	for location, want := range map[string]string{
		"http://HOST/repositories/7/installation":          "acme/app is now acme/new",
		"http://HOST/repositories/7/installation?a=b":      "acme/app is now acme/new",
		"/repositories/7/installation":                     "acme/app is now acme/new",
		"http://evil.example/repositories/7/installation":  "acme/app has moved",
		"http://HOST/repositories/7":                       "acme/app has moved",
		"http://HOST/repositories/-7/installation":         "acme/app has moved",
		"http://HOST/repositories/7%2f..%2f8/installation": "acme/app has moved",
		"http://HOST/x/repositories/7/installation":        "acme/app has moved",
		"https://HOST/repositories/7/installation":         "acme/app has moved",
		"": "acme/app has moved",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/repos/acme/app/installation":
				if location != "" {
					w.Header().Set("Location", strings.Replace(location, "HOST", r.Host, 1))
				}
				w.WriteHeader(http.StatusMovedPermanently)
			case r.URL.Path == "/repositories/7/installation":
				_, _ = w.Write([]byte(`{"id":1}`))
			case r.Method == http.MethodDelete:
				w.WriteHeader(http.StatusNoContent)
			default:
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write([]byte(`{"token":"tok-12345678","repositories":[{"id":7,"full_name":"acme/new"}],"permissions":{"contents":"read"}}`))
			}
		}))
		_, err := strangeApp(t, server.URL).Mint(t.Context(), repo(t, "github.com/acme/app"), gitgw.Write)
		if err == nil || !strings.HasPrefix(err.Error(), want+": change the remote") {
			t.Errorf("%s: %v, want %q", location, err, want)
		}
		server.Close()
	}
}
