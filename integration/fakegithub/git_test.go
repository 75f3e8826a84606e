package fakegithub

import (
	"crypto/rand"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPushLandsAndIsLogged(t *testing.T) {
	s, id := start(t, Options{})
	read := mintToken(t, s, id, "app", readPerms)
	w := clone(t, s, read, "acme/app")
	s.ForgetRequests()
	w.commit("f", "x")
	write := mintToken(t, s, id, "app", writePerms)
	out := w.git("push", withToken(s, write, "acme/app"), "main:agent/x")
	if !strings.Contains(out, "* [new branch]      main -> agent/x") {
		t.Errorf("output:\n%s", out)
	}
	if got := ref(t, s, "acme/app", "refs/heads/agent/x"); got != w.head() {
		t.Errorf("agent/x is %q, want %q", got, w.head())
	}
	pushes := s.Pushes()
	if len(pushes) != 1 || pushes[0].Token != write || pushes[0].Status != 200 || pushes[0].Repo != "acme/app" {
		t.Errorf("pushes: %+v", pushes)
	}
	if mints := s.Mints(); len(mints) != 1 {
		t.Errorf("mints: %+v", mints)
	}
	if tok, _ := s.Token(write); tok.Uses == 0 || !tok.CanWrite() {
		t.Errorf("ledger: %+v", tok)
	}
}

func TestGitRefusals(t *testing.T) {
	s, id := start(t, Options{})
	if err := s.AddRepo("other/thing"); err != nil {
		t.Fatal(err)
	}
	read := mintToken(t, s, id, "app", readPerms)
	write := mintToken(t, s, id, "app", writePerms)
	w := clone(t, s, read, "acme/app")
	w.commit("f", "x")
	revoked := mintToken(t, s, id, "app", writePerms)
	if r := call(t, "DELETE", s.APIURL()+"installation/token", revoked, ""); r.status != http.StatusNoContent {
		t.Fatalf("revoke: %d", r.status)
	}
	tests := []struct {
		name, url string
		want      []string
	}{
		{"read token", withToken(s, read, "acme/app"), []string{"remote: Write access to repository not granted.", "error: 403"}},
		{"no token", s.RepoURL("acme/app"), []string{"could not read Username"}},
		{"made-up token", withToken(s, "ghs_nonsense", "acme/app"), []string{"remote: Invalid username or token."}},
		{"revoked token", withToken(s, revoked, "acme/app"), []string{"remote: Invalid username or token."}},
		{"other repository of the same owner", withToken(s, write, "acme/lib"), []string{"remote: Repository not found."}},
		{"other owner", withToken(s, write, "other/thing"), []string{"remote: Repository not found."}},
		{"no such repository", withToken(s, write, "acme/none"), []string{"remote: Repository not found."}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.ForgetRequests()
			work{t, w.dir}.fails(tt.want, "push", tt.url, "main:feat")
			if p := s.Pushes(); len(p) != 0 {
				t.Errorf("a POST came all the same: %+v", p)
			}
		})
	}
	for _, name := range []string{"acme/app", "acme/lib", "other/thing"} {
		if got := ref(t, s, name, "refs/heads/feat"); got != "" {
			t.Errorf("%s has feat", name)
		}
	}
}

func TestRefusalsArePlainText(t *testing.T) {
	s, id := start(t, Options{})
	read := mintToken(t, s, id, "app", readPerms)
	for token, want := range map[string]string{"": "No anonymous write access.", "bad": "Invalid username or token.", read: "Write access to repository not granted."} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", s.RepoURL("acme/app")+"/info/refs?service=git-receive-pack", nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.SetBasicAuth("x-access-token", token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if ct := resp.Header.Get("Content-Type"); ct != "text/plain; charset=utf-8" || !strings.HasPrefix(string(body), want) {
			t.Errorf("token %q: %d %s %q", token, resp.StatusCode, ct, body)
		}
		if (resp.StatusCode == 401) != (resp.Header.Get("WWW-Authenticate") != "") {
			t.Errorf("token %q: %d with challenge %q", token, resp.StatusCode, resp.Header.Get("WWW-Authenticate"))
		}
	}
}

func TestPublicRepositoryIsReadByAnybody(t *testing.T) {
	s, _ := start(t, Options{})
	if err := s.SetPublic("acme/app", true); err != nil {
		t.Fatal(err)
	}
	w := work{t, filepath.Join(t.TempDir(), "w")}
	if out, err := w.run("", "clone", "-q", s.RepoURL("acme/app"), w.dir); err != nil {
		t.Fatalf("clone: %v\n%s", err, out)
	}
	w.fails([]string{"could not read Username"}, "push", s.RepoURL("acme/app"), "main:feat")
}

func TestNamesHaveNoCase(t *testing.T) {
	s, id := start(t, Options{})
	token := mintToken(t, s, id, "APP", writePerms)
	w := clone(t, s, token, "ACME/App")
	w.commit("f", "x")
	w.git("push", "-q", withToken(s, token, "Acme/aPP"), "main:feat")
	if ref(t, s, "acme/app", "refs/heads/feat") != w.head() {
		t.Error("feat did not land")
	}
}

// A push above http.postBuffer is a probe of four bytes and a chunked body,
// and git reads the answer while it still writes.
func TestChunkedPush(t *testing.T) {
	s, id := start(t, Options{})
	token := mintToken(t, s, id, "app", writePerms)
	w := clone(t, s, token, "acme/app")
	big := make([]byte, 3<<20)
	_, _ = rand.Read(big)
	w.commit("big", string(big))
	w.git("push", "-q", "origin", "main:big")
	if ref(t, s, "acme/app", "refs/heads/big") != w.head() {
		t.Fatal("big did not land")
	}
	pushes := s.Pushes()
	if len(pushes) != 2 || pushes[0].ContentLength != 4 || pushes[1].ContentLength != -1 || pushes[1].Received < 3<<20 {
		t.Errorf("pushes: %+v", pushes)
	}
}

func TestWholeRangeOfPushes(t *testing.T) {
	s, id := start(t, Options{})
	token := mintToken(t, s, id, "app", writePerms)
	w := clone(t, s, token, "acme/app")
	w.commit("f", "x")
	w.git("tag", "-a", "v1", "-m", "one")
	w.git("push", "-q", "--atomic", "origin", "main", "main:a", "v1")
	w.git("push", "-q", "-o", "hello", "origin", "main:b")
	w.git("push", "-q", "origin", ":a")
	w.git("commit", "-q", "--amend", "-m", "other")
	w.fails([]string{"non-fast-forward"}, "push", "origin", "main")
	w.git("push", "-q", "--force", "origin", "main")
	refs, err := s.Refs("acme/app")
	if err != nil {
		t.Fatal(err)
	}
	if len(refs) != 3 || refs["refs/heads/main"] != w.head() || refs["refs/tags/v1"] == "" || refs["refs/heads/b"] == "" {
		t.Errorf("refs: %v", refs)
	}
	shallow := clone(t, s, token, "acme/app", "--depth", "1")
	shallow.commit("g", "y")
	shallow.git("push", "-q", "origin", "HEAD:shallow")
	if ref(t, s, "acme/app", "refs/heads/shallow") != shallow.head() {
		t.Error("push from a shallow clone did not land")
	}
}

func TestWorkflowsNeedTheirPermission(t *testing.T) {
	s, _ := start(t, Options{})
	id := s.Install(Installation{Account: "acme", Permissions: map[string]string{"contents": "write", "workflows": "write"}})
	without := mintToken(t, s, id, "app", writePerms)
	with := mintToken(t, s, id, "app", `{"contents":"write","workflows":"write"}`)
	w := clone(t, s, without, "acme/app")
	w.commit("src/a", "x")
	w.commit(".github/workflows/x.yml", "on: push\n")
	const reason = "! [remote rejected] main -> wf (refusing to allow a GitHub App to create or update workflow `.github/workflows/x.yml` without `workflows` permission)"
	w.fails([]string{reason}, "push", "origin", "main:wf")
	if ref(t, s, "acme/app", "refs/heads/wf") != "" {
		t.Fatal("wf landed without the permission")
	}
	// The part of the history before the workflow is nobody's business.
	w.git("push", "-q", "origin", "main~1:refs/heads/before")
	w.git("push", "-q", withToken(s, with, "acme/app"), "main:wf")
	// Once the commit is there, pointing another branch at it creates nothing.
	w.git("push", "-q", "origin", "main:wf2")
	// A later commit that leaves the workflow alone is fine, one that edits it is not.
	w.commit("src/b", "y")
	w.git("push", "-q", "origin", "main:wf2")
	w.commit(".github/workflows/x.yml", "on: [push, pull_request]\n")
	w.fails([]string{"refusing to allow a GitHub App"}, "push", "origin", "main:wf2")
	w.git("rm", "-q", ".github/workflows/x.yml")
	w.git("commit", "-q", "--amend", "-m", "remove")
	w.git("push", "-q", "origin", "main:wf2")
}

func TestProtectedBranch(t *testing.T) {
	s, id := start(t, Options{})
	if err := s.Protect("acme/app", "main"); err != nil {
		t.Fatal(err)
	}
	token := mintToken(t, s, id, "app", writePerms)
	w := clone(t, s, token, "acme/app")
	before := w.head()
	w.commit("f", "x")
	w.fails([]string{
		"remote: error: GH006: Protected branch update failed for refs/heads/main.",
		"! [remote rejected] main -> main (protected branch hook declined)",
	}, "push", "origin", "main")
	w.fails([]string{"(protected branch hook declined)"}, "push", "origin", ":main")
	if got := ref(t, s, "acme/app", "refs/heads/main"); got != before {
		t.Errorf("main is %q, want %q", got, before)
	}
	w.git("push", "-q", "origin", "main:feat")
}

func TestSuspendedInstallation(t *testing.T) {
	s, id := start(t, Options{})
	token := mintToken(t, s, id, "app", writePerms)
	w := clone(t, s, token, "acme/app")
	w.commit("f", "x")
	if err := s.Suspend(id, true); err != nil {
		t.Fatal(err)
	}
	w.fails([]string{"remote: This installation has been suspended."}, "push", "origin", "main")
	if r := call(t, "POST", s.URL()+"/app/installations/"+itoa(id)+"/access_tokens", goodJWT(t, s), ""); r.status != 403 {
		t.Errorf("mint: %d %s", r.status, r.text)
	}
	if err := s.Suspend(id, false); err != nil {
		t.Fatal(err)
	}
	w.git("push", "-q", "origin", "main")
}

func TestRenamedRepository(t *testing.T) {
	s, id := start(t, Options{})
	token := mintToken(t, s, id, "app", writePerms)
	if err := s.Rename("acme/app", "acme/shop"); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.RepoURL("acme/app")+"/info/refs?service=git-receive-pack", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("x-access-token", token)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	want := s.RepoURL("acme/shop") + "/info/refs?service=git-receive-pack"
	if resp.StatusCode != 301 || resp.Header.Get("Location") != want {
		t.Errorf("git: %d %q", resp.StatusCode, resp.Header.Get("Location"))
	}
	r := call(t, "GET", s.APIURL()+"repos/acme/app/installation", goodJWT(t, s), "")
	if r.status != 301 || r.body["message"] != "Moved Permanently" {
		t.Fatalf("API: %d %s", r.status, r.text)
	}
	if r := call(t, "GET", r.header.Get("Location"), goodJWT(t, s), ""); r.status != 200 || r.body["id"] != float64(id) {
		t.Errorf("after the redirect: %d %s", r.status, r.text)
	}
	// The token holds the repository's id, so it still works under the new name.
	w := clone(t, s, token, "acme/shop")
	w.commit("f", "x")
	w.git("push", "-q", "origin", "main")
}

func TestDumbProtocolIsRefused(t *testing.T) {
	s, id := start(t, Options{})
	token := mintToken(t, s, id, "app", readPerms)
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.RepoURL("acme/app")+"/info/refs", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("x", token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 403 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestLFS(t *testing.T) {
	s, id := start(t, Options{})
	read, write := mintToken(t, s, id, "app", readPerms), mintToken(t, s, id, "app", writePerms)
	const oid = "3608bca1e44ea6c4d268eb6db02260269892c0b42b86bbf1e77a6fa16c3c9282" // of xyz
	base := s.RepoURL("acme/app") + "/info/lfs/"
	batch := func(token, operation string) reply {
		return call(t, "POST", base+"objects/batch", "", `{"operation":"`+operation+`","objects":[{"oid":"`+oid+`","size":3}]}`, "Authorization", basic(token))
	}
	put := func(token, text string) reply {
		return call(t, "PUT", base+"upload/"+oid, "", text, "Authorization", basic(token))
	}
	verify := func() reply {
		return call(t, "POST", base+"verify/"+oid, "", `{"oid":"`+oid+`","size":3}`, "Authorization", basic(write))
	}
	for _, c := range []struct {
		what   string
		reply  reply
		status int
		text   string
	}{
		{"an upload with the read token", batch(read, "upload"), 403, ""},
		{"a download of what is not there", batch(read, "download"), 200, "Object does not exist"},
		{"an upload", batch(write, "upload"), 200, "info/lfs/upload/" + oid},
		{"the object with the read token", put(read, "xyz"), 403, ""},
		{"another object", put(write, "xyw"), 422, "is not the object's hash"},
		{"verification of nothing", verify(), 422, "verification failed"},
		{"the object", put(write, "xyz"), 200, ""},
		{"its verification", verify(), 200, ""},
		{"an upload of what is there", batch(write, "upload"), 200, `"oid":"` + oid + `","size":3}`},
		{"a download", batch(read, "download"), 200, "info/lfs/download/" + oid},
		{"its content", call(t, "GET", base+"download/"+oid, "", "", "Authorization", basic(read)), 200, "xyz"},
		{"locks", call(t, "POST", base+"locks/verify", "", "{}", "Authorization", basic(write)), 404, ""},
	} {
		if c.reply.status != c.status || !strings.Contains(c.reply.text, c.text) {
			t.Errorf("%s: %d %s", c.what, c.reply.status, c.reply.text)
		}
	}
	if got := s.LFSObjects(); len(got) != 1 || got[oid] != 3 {
		t.Errorf("objects: %v", got)
	}
}

func TestNothingOfTheCallersConfigurationReachesTheServer(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte("[receive]\n\tdenyNonFastForwards = true\n[transfer]\n\thideRefs = refs/heads\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	s, id := start(t, Options{})
	token := mintToken(t, s, id, "app", writePerms)
	w := clone(t, s, token, "acme/app")
	w.commit("f", "x")
	w.git("push", "-q", "origin", "main")
	w.git("commit", "-q", "--amend", "-m", "again")
	w.git("push", "-q", "--force", "origin", "main")
	if ref(t, s, "acme/app", "refs/heads/main") != w.head() {
		t.Error("main did not land")
	}
}
