package gitgw_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"postern/gitgw"
	"postern/gitgw/mint"
	"postern/integration/fakegithub"
)

func TestI01(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll, with("acme/nope"))
	w.git("push", "https://github.com/acme/nope.git", "main").want(t, 128,
		"remote: Control Center: acme/nope is not this run's repository or a linked one",
		"fatal: unable to access", "403")
	w.untouched()
	if r := w.record(); r.Outcome != gitgw.Refused || r.Repository.FullName() != "acme/nope" || len(r.Refs) != 0 {
		t.Errorf("record: %+v", r)
	}
	if len(w.hub.Requests()) != 0 {
		t.Errorf("the forge was asked: %+v", w.hub.Requests())
	}
	// The same without the GET: as a report, since git hides an HTTP error.
	body := w.creation("refs/heads/x")
	resp, err := http.Post(w.url+"github.com/acme/nope.git/git-receive-pack", "", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if got := readAll(t, resp); !strings.Contains(got, "ng refs/heads/x Control Center: acme/nope is not this run's repository or a linked one\n") {
		t.Errorf("%q", got)
	}
}

func TestI02(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll, with("acme/lib"))
	w.git("push", "https://github.com/acme/lib.git", "main:feat").want(t, 0, " * [new branch]")
	tokens := w.writeTokens()
	if len(tokens) != 1 || len(tokens[0].Repositories) != 1 || tokens[0].Repositories[0] != "acme/lib" {
		t.Errorf("tokens: %+v", tokens)
	}
	// The listing was fetched with a token that cannot write, and that goes when
	// the gateway does at the latest.
	_ = w.gateway.Close()
	for _, tok := range w.hub.Tokens() {
		if tok.Installation != 0 && !tok.Revoked() {
			t.Errorf("a token lives on: %v %v", tok.Repositories, tok.Permissions)
		}
	}
}

// I04: every spelling of the path is acme/app with its rules, or nothing.
func TestI04(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain, with("acme/nope"))
	for _, c := range []struct {
		path string
		code int // of the push of main:feat-N
	}{
		{"github.com/acme/app", 0},
		{"github.com/acme/app.git/", 0},
		{"github.com/acme/%61pp.git", 0},
		{"github.com/ACME/App.git", 0},
		{"github.com//acme/app.git", 128},
		{"github.com/acme//app.git", 128},
		{"github.com/acme/nope/../app.git", 0}, // tidied by the client
		{"github.com/acme/app.git.git", 128},
		{"github.com/acme%2fapp.git", 128},
		{"github.com/acme/app%00.git", 128},
		{"github.com/acme/app%2egit", 0},
		{"github.com/acme/./app.git", 0}, // as before
		{"github.com/acme/.app", 128},
		{"git.example/acme/app.git", 128},
		{"GitHub.com/acme/app.git", 0},
		{"acme/app.git", 128},
	} {
		ref := fmt.Sprintf("feat-%x", c.path)
		r := w.git("push", w.url+c.path, "main:"+ref)
		if r.code != c.code {
			t.Errorf("%s: exit %d, want %d\n%s", c.path, r.code, c.code, r.out)
		}
		if c.code == 0 {
			w.wantRef("refs/heads/"+ref, w.head("main"))
			w.git("push", w.url+c.path, "main").want(t, 1, "push to main is denied (rule 3)")
		} else if !strings.Contains(r.out, "remote: Control Center: ") {
			t.Errorf("%s: no reason:\n%s", c.path, r.out)
		}
	}
	if refs := w.refs("acme/nope"); len(refs) != 0 {
		t.Errorf("acme/nope has %v", refs)
	}
}

func TestI05(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	if err := w.hub.Rename("acme/app", "acme/moved"); err != nil {
		t.Fatal(err)
	}
	r := w.git("push", "origin", "main:feat")
	r.want(t, 128, "remote: Control Center: github.com says the repository has moved to ", "/acme/moved: change the remote")
	if len(w.writeTokens()) != 0 {
		t.Error("a write token was made")
	}
	for _, req := range w.hub.Requests() {
		if strings.Contains(req.Path, "moved") {
			t.Errorf("the redirect was followed: %+v", req)
		}
	}
}

// A repository renamed between the listing and the push.
func TestRenameBeforePush(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	if err := w.hub.Rename("acme/app", "acme/moved"); err != nil {
		t.Fatal(err)
	}
	got := readAll(t, w.post(w.creation("refs/heads/x"), nil))
	if !strings.Contains(got, "ng refs/heads/x Control Center: no push token: acme/app is now acme/moved: change the remote") {
		t.Errorf("%q", got)
	}
}

func TestI07(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	for _, path := range []string{"info/refs?service=git-upload-pack", "git-upload-pack", "info/refs"} {
		resp, err := http.Get(w.url + "github.com/acme/app.git/" + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 403 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") || len(body) == 0 {
			t.Errorf("%s: %d %s %q", path, resp.StatusCode, resp.Header.Get("Content-Type"), body)
		}
	}
	w.untouched()
}

func TestJ01(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll, func(w *world) { w.gateway.Minter = w.appOf("nobody/else") })
	w.git("push", "origin", "main:feat").want(t, 1,
		" ! [remote rejected] main -> feat (Control Center: no push token: the GitHub App is not installed on acme/app)")
	w.wantRef("refs/heads/feat", "")
	if r := w.record(); r.Outcome != gitgw.Failed || r.TokenID != "" {
		t.Errorf("record: %+v", r)
	}
}

// appOf makes a minter for a second forge whose app covers nothing of acme.
func (w *world) appOf(repo string) gitgw.Minter {
	w.t.Helper()
	appKey, err := forgeKey()
	if err != nil {
		w.t.Fatal(err)
	}
	hub, err := fakegithub.New(fakegithub.Options{Key: appKey})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = hub.Close() })
	if err := hub.AddRepo(repo); err != nil {
		w.t.Fatal(err)
	}
	forge, err := gitgw.NewForge("github.com", hub.APIURL(), hub.URL())
	if err != nil {
		w.t.Fatal(err)
	}
	key, err := mint.ParseKey(hub.KeyPEM())
	if err != nil {
		w.t.Fatal(err)
	}
	app := &mint.GitHubApp{AppID: fmt.Sprint(hub.AppID()), Key: key, Forge: forge}
	w.t.Cleanup(func() { _ = app.Close() })
	return app
}

func TestJ05(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.hub.SetTokenFormat(fakegithub.LongTokens)
	w.git("push", "origin", "main:feat").want(t, 0, " * [new branch]")
	tokens := w.writeTokens()
	if len(tokens) != 1 || !tokens[0].Long() || !tokens[0].Revoked() {
		t.Errorf("tokens: %+v", tokens)
	}
}

func TestJ06(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll, func(w *world) { w.gateway.Limits.Revoke = time.Second })
	w.hub.SetFaults(fakegithub.Faults{Revoke: 401})
	w.git("push", "origin", "main:feat").want(t, 0, " * [new branch]")
	// What cannot be revoked for another reason is logged, and no concern of git's.
	w.hub.SetFaults(fakegithub.Faults{Revoke: 500})
	w.git("push", "origin", "main:feat2").want(t, 0, " * [new branch]")
	if !strings.Contains(w.log.String(), "push token was not revoked") {
		t.Errorf("log: %s", w.log)
	}
}

func TestJ07(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	r := w.gitIn(w.clone, []string{"GIT_TRACE_CURL=1", "GIT_CURL_VERBOSE=1", "GIT_TRACE_PACKET=1"}, "push", "origin", "main:feat")
	r.want(t, 0, "main -> feat")
	// checkEnd looks for the write token in all that git printed.
	if len(w.writeTokens()) != 1 {
		t.Error("no token to look for")
	}
}

func TestJ08(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	read, _ := w.caller.ReadToken(t.Context(), w.caller.Own)
	url := strings.Replace(w.hub.RepoURL("acme/app"), "http://", "http://x-access-token:"+read.Value()+"@", 1)
	w.git("push", url, "HEAD:y").want(t, 128, "remote: Write access to repository not granted.", "fatal: unable to access", "403")
	w.wantRef("refs/heads/y", "")
}

func TestJ09(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.commit(w.clone, ".github/workflows/x.yml", "on: push\n")
	w.git("push", "origin", "main:wf").want(t, 1,
		" ! [remote rejected] main -> wf (refusing to allow a GitHub App to create or update workflow `.github/workflows/x.yml` without `workflows` permission)")
	w.wantRef("refs/heads/wf", "")
	if r := w.record(); r.Outcome != gitgw.Failed || !strings.Contains(r.Refs[0].Message, "workflows") {
		t.Errorf("record: %+v", r)
	}
}

// TestMintReasons: each cause has its own words in git's output.
func TestMintReasons(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	for _, c := range []struct {
		name string
		set  func()
		want string
	}{
		{"API down", func() { w.hub.SetFaults(fakegithub.Faults{API: 503}) }, "no push token: the GitHub API answered 503"},
		{"mint fails", func() { w.hub.SetFaults(fakegithub.Faults{Mint: 502}) }, "no push token: the GitHub API answered 502"},
		{"rate limit", func() { w.hub.SetFaults(fakegithub.Faults{RateLimit: fakegithub.PrimaryRateLimit}) }, "no push token: the GitHub API's rate limit is reached until "},
		{"secondary limit", func() { w.hub.SetFaults(fakegithub.Faults{RateLimit: fakegithub.SecondaryRateLimit}) }, "no push token: the GitHub API asks to wait "},
		{"advertisement down", func() { w.hub.SetFaults(fakegithub.Faults{Advert: 502}) }, "github.com answered 502"},
		{"push down", func() { w.hub.SetFaults(fakegithub.Faults{Push: 502}) }, "github.com answered 502"},
		{"too large", func() { w.hub.SetFaults(fakegithub.Faults{MaxPack: 10}) }, "main -> x (un"},
		{"no minter", func() { w.gateway.Minter = nil }, "no push token: no token source is configured"},
		{"static without a token", func() { w.gateway.Minter = mint.NewStatic("", "r") }, "no push token: no push token is configured"},
	} {
		w.hub.SetFaults(fakegithub.Faults{})
		w.change(func() {
			w.gateway.Limits.Retry = []time.Duration{time.Millisecond}
			c.set()
		})
		r := w.git("push", "origin", "main:x")
		if r.code != 1 || !strings.Contains(r.out, c.want) || strings.Contains(r.out, "Everything up-to-date") || !strings.Contains(r.out, "[remote rejected]") {
			t.Errorf("%s: exit %d, want %q in\n%s", c.name, r.code, c.want, r.out)
		}
		w.wantRef("refs/heads/x", "")
	}
}

// An unreachable forge is said so, at the listing and at the push.
func TestForgeDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	body := w.creation("refs/heads/x")
	w.change(func() { w.gateway.Minter = mint.NewStatic("static-write-token", "static-read-token") })
	_ = w.hub.Close()
	w.git("push", "origin", "main:x").want(t, 128, "remote: Control Center: github.com cannot be reached")
	if got := readAll(t, w.post(body, nil)); !strings.Contains(got, "ng refs/heads/x Control Center: github.com cannot be reached") {
		t.Errorf("%q", got)
	}
}

// K01: what git-lfs asks before a push. The program itself is not needed to
// replay its two requests.
func TestK01(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll, noLFS)
	for _, c := range []struct {
		path    string
		status  int
		message string
	}{
		{"info/lfs/locks/verify", 404, "Not found"},
		{"info/lfs/objects/batch", 403, "Control Center policy: Git LFS uploads are not allowed; keep the files in git (git lfs migrate export), or have `lfs on` set in the gateway's block"},
	} {
		resp, err := http.Post(w.url+"github.com/acme/app.git/"+c.path, "application/vnd.git-lfs+json", strings.NewReader(`{"operation":"upload","ref":{"name":"refs/heads/feat"},"objects":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Message string }
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != c.status || got.Message != c.message || resp.Header.Get("Content-Type") != "application/vnd.git-lfs+json" {
			t.Errorf("%s: %d %q", c.path, resp.StatusCode, got.Message)
		}
	}
	w.untouched()
	if r := w.record(); r.Outcome != gitgw.Refused {
		t.Errorf("record: %+v", r)
	}
}

// K01 with git-lfs itself, where it is installed: its hook fails and git pushes
// nothing.
func TestK01Client(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git-lfs"); err != nil {
		t.Skip("git-lfs is not installed")
	}
	w := newWorld(t, allowAll, noLFS)
	w.tracks()
	w.commit(w.clone, "a.bin", "large\n")
	r := w.git("push", "origin", "main:feat")
	r.want(t, 1, "batch response: Control Center policy: Git LFS uploads are not allowed")
	r.lacks(t, "Everything up-to-date")
	w.untouched()
}

// What the client says of itself does not reach the forge.
func TestHeadersStayHere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.git("-c", "http.extraHeader=Authorization: Basic Zm9vOmJhcg==", "-c", "http.extraHeader=Cookie: a=b",
		"-c", "http.extraHeader=X-Secret: s", "-c", "protocol.version=1", "push", "origin", "main:feat").want(t, 0, "main -> feat")
	for _, r := range w.hub.Requests() {
		if r.Header.Get("Cookie") != "" || r.Header.Get("X-Secret") != "" || r.GitProtocol != "" || strings.Contains(r.Header.Get("Authorization"), "Zm9vOmJhcg") {
			t.Errorf("%s %s got %v", r.Method, r.Path, r.Header)
		}
	}
}

// A request without a caller is nobody's.
func TestNoCaller(t *testing.T) {
	t.Parallel()
	g := &gitgw.Gateway{}
	rec := newRecorder(t, g, http.MethodGet, "/github.com/acme/app.git/info/refs?service=git-receive-pack")
	if rec.Code != http.StatusForbidden || !strings.Contains(rec.Body.String(), "belongs to no run") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
