package gitgw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"postern/gitgw"
	"postern/gitgw/mint"
)

// trouble is a transport that spoils the POST of a push and lets the rest by.
type trouble struct {
	http.RoundTripper
	spoil func(*http.Request) (*http.Response, error)
}

func (t *trouble) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
		return t.spoil(r)
	}
	return t.RoundTripper.RoundTrip(r)
}

var errReset = errors.New("connection reset by peer")

// answerWith is an answer of the forge whose body ends with an error, nil for a
// clean end.
func answerWith(status int, kind, body string, end error) *http.Response {
	var r io.Reader = strings.NewReader(body)
	if end != nil {
		r = io.MultiReader(r, &failing{end})
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(r)}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// TestUpstreamDies: the forge dies or misbehaves at each stage of a push of
// 4 MB. git never hangs, and hears what is known; the token is revoked each time
// (checkEnd).
func TestUpstreamDies(t *testing.T) {
	t.Parallel()
	const result = "application/x-git-receive-pack-result"
	spoiler := &trouble{RoundTripper: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	w := newWorld(t, allowAll, func(w *world) {
		w.gateway.Limits.Upstream = 2 * time.Second
		w.gateway.Transport = spoiler
	})
	w.commitBlob(4 << 20)
	all := func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	some := func(r *http.Request) { _, _ = io.CopyN(io.Discard, r.Body, 1<<20) }
	unpacked := pkt("\x01" + pkt("unpack ok\n"))
	for _, c := range []struct {
		name    string
		spoil   func(*http.Request) (*http.Response, error)
		want    string
		outcome gitgw.Outcome
		cut     bool // the connection is aborted, which git words itself
	}{
		{
			"before the first byte", func(*http.Request) (*http.Response, error) { return nil, errReset },
			"[remote rejected] main -> x (Control Center: github.com ended the connection)", gitgw.Failed, false,
		},
		{
			"in mid pack", func(r *http.Request) (*http.Response, error) { some(r); return nil, errReset },
			"[remote rejected] main -> x (Control Center: github.com ended the connection)", gitgw.Failed, false,
		},
		{
			"after the pack", func(r *http.Request) (*http.Response, error) { all(r); return nil, errReset },
			"[remote rejected] main -> x (Control Center: github.com ended the connection; fetch to see whether the push arrived)", gitgw.Unknown, false,
		},
		{"502 at once", func(*http.Request) (*http.Response, error) {
			return answerWith(502, "text/plain", "upstream sad\nmore", nil), nil
		}, "[remote rejected] main -> x (Control Center: github.com answered 502: upstream sad)", gitgw.Failed, false},
		{"413 in mid pack", func(r *http.Request) (*http.Response, error) {
			some(r)
			return answerWith(413, "text/html", "<html>", nil), nil
		}, "[remote rejected] main -> x (Control Center: github.com answered 413)", gitgw.Failed, false},
		{"a redirect", func(r *http.Request) (*http.Response, error) {
			all(r)
			resp := answerWith(307, "text/plain", "", nil)
			resp.Header.Set("Location", "https://evil.example/acme/app.git/git-receive-pack?token=x")
			resp.Request = r
			return resp, nil
		}, "[remote rejected] main -> x (Control Center: github.com says the repository has moved to https://evil.example/acme/app: change the remote)", gitgw.Failed, false},
		{"a web page", func(r *http.Request) (*http.Response, error) {
			all(r)
			return answerWith(200, "text/html", "<html>", nil), nil
		}, "[remote rejected] main -> x (Control Center: github.com answered 200: but not as a git server)", gitgw.Failed, false},
		{"200 in mid pack, then nothing", func(r *http.Request) (*http.Response, error) {
			some(r)
			return answerWith(200, result, "", errReset), nil
		}, "[remote rejected] main -> x (Control Center: github.com broke off before it had the whole push)", gitgw.Failed, false},
		{
			"200 and a clean end", func(r *http.Request) (*http.Response, error) { all(r); return answerWith(200, result, "", nil), nil },
			"[remote failure]  main -> x (remote failed to report status)", gitgw.Unknown, false,
		},
		{"200, half a report, a clean end", func(r *http.Request) (*http.Response, error) {
			all(r)
			return answerWith(200, result, unpacked, nil), nil
		}, "[remote failure]  main -> x (remote failed to report status)", gitgw.Unknown, false},
		{"200, half a packet, a clean end", func(r *http.Request) (*http.Response, error) {
			all(r)
			return answerWith(200, result, unpacked[:9], nil), nil
		}, "[remote failure]  main -> x (remote failed to report status)", gitgw.Unknown, false},
		{"200, then death", func(r *http.Request) (*http.Response, error) {
			all(r)
			return answerWith(200, result, unpacked[:9], errReset), nil
		}, "remote: Control Center: github.com broke off before it had reported; fetch to see whether the push arrived", gitgw.Unknown, true},
		{"fatal in side-band 3", func(r *http.Request) (*http.Response, error) {
			all(r)
			return answerWith(200, result, pkt("\x03fatal: out of disk\n"), nil), nil
		}, "remote: fatal: out of disk", gitgw.Unknown, false},
		{
			"silence", func(r *http.Request) (*http.Response, error) {
				all(r)
				<-r.Context().Done()
				return nil, r.Context().Err()
			},
			"[remote rejected] main -> x (Control Center: github.com did not answer in time; fetch to see whether the push arrived)", gitgw.Unknown, false,
		},
	} {
		w.mu.Lock()
		w.records = nil
		w.mu.Unlock()
		w.change(func() { spoiler.spoil = c.spoil })
		started := time.Now()
		r := w.git("push", "origin", "main:x")
		if r.code != 1 || !strings.Contains(r.out, c.want) || !c.cut && strings.Contains(r.out, "Everything up-to-date") {
			t.Errorf("%s: exit %d, want %q in\n%s", c.name, r.code, c.want, r.out)
		}
		if took := time.Since(started); took > 20*time.Second {
			t.Errorf("%s: took %s", c.name, took)
		}
		if rec := w.record(); rec.Outcome != c.outcome || !rec.Revoked || strings.Contains(fmt.Sprint(rec), "token=x") {
			t.Errorf("%s: record %+v", c.name, rec)
		}
	}
	w.wantRef("refs/heads/x", "")
}

// A run outlives its read token by hours and still pushes.
func TestReadTokenExpired(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.hub.Advance(61 * time.Minute)
	w.git("push", "origin", "main:late").want(t, 0, " * [new branch]      main -> late")
	_ = w.gateway.Close() // which ends the token that further listings would use
	for _, tok := range w.hub.Live() {
		t.Errorf("a token lives on: %v", tok.Permissions)
	}
}

// Without any token for the listing, the reason is the minter's, not the
// forge's 404.
func TestNoTokenToList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll, func(w *world) {
		w.gateway.Minter = w.appOf("nobody/else")
		w.caller.ReadToken = func(context.Context, gitgw.Repo) (gitgw.Token, bool) { return gitgw.Token{}, false }
	})
	w.git("push", "origin", "main:x").want(t, 128, "remote: Control Center: no token to list acme/app: the GitHub App is not installed on acme/app")
	if r := w.record(); r.Outcome != gitgw.Failed {
		t.Errorf("%+v", r)
	}
	// A public repository is listed without one.
	if err := w.hub.SetPublic("acme/app", true); err != nil {
		t.Fatal(err)
	}
	w.git("push", "origin", "main:x").want(t, 1, "(Control Center: no push token: the GitHub App is not installed on acme/app)")
}

// The forge is asked as git asks, with the token as its password.
func TestStaticToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	token, err := w.hub.IssueToken(map[string]string{"contents": "write"}, "acme/app")
	if err != nil {
		t.Fatal(err)
	}
	w.staticToken = token
	w.change(func() { w.gateway.Minter = mint.NewStatic(token, "") })
	w.git("push", "origin", "main:s").want(t, 0, "main -> s")
	if made, _ := w.hub.Token(token); made.Revoked() || made.Uses != 2 {
		t.Errorf("%+v", made)
	}
	w.change(func() {
		w.gateway.Minter = mint.NewStatic("not-a-token-of-this-forge", "")
		w.gateway.Limits.Retry = []time.Duration{time.Millisecond, time.Millisecond}
	})
	w.git("push", "origin", "main:s2").want(t, 1,
		"remote: Control Center: waiting for github.com to accept the new token",
		"(Control Center: github.com answered 401: Invalid username or token.")
}
