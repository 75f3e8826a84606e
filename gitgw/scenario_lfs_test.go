package gitgw_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/gitgw"
	"postern/integration/fakegithub"
)

func noLFS(w *world) { w.gateway.NoLFS = true }

// tracks makes Git LFS keep *.bin of the clone.
func (w *world) tracks() {
	w.t.Helper()
	w.mustGit(w.clone, "lfs", "install", "--local")
	w.mustGit(w.clone, "lfs", "track", "*.bin")
}

// Objects go through the gateway: the forge has them, a clone gets them back, and the
// run saw neither an address of the forge's nor a credential.
func TestLFSPush(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git-lfs"); err != nil {
		t.Skip("git-lfs is not installed")
	}
	w := newWorld(t, denyMain)
	w.tracks()
	large := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	if err := os.WriteFile(filepath.Join(w.clone, "large.bin"), large, 0o600); err != nil {
		t.Fatal(err)
	}
	w.commit(w.clone, "small.bin", "small\n")
	trace := []string{"GIT_TRACE=1", "GIT_TRACE_CURL=1", "GIT_CURL_VERBOSE=1"}
	r := w.gitIn(w.clone, trace, "push", "origin", "main:feat")
	r.want(t, 0, " * [new branch]      main -> feat", "/info/lfs/objects/", "?handle=")
	r.lacks(t, w.hub.URL(), "info/lfs/upload")
	if got := w.hub.LFSObjects(); len(got) != 2 || got[oidOf(string(large))] != int64(len(large)) || got[oidOf("small\n")] != 6 {
		t.Errorf("objects at the forge: %v", got)
	}
	w.wantRef("refs/heads/feat", w.head("main"))
	w.mu.Lock()
	if len(w.records) != 2 || w.records[0].Outcome != gitgw.Accepted || !w.records[0].Revoked || w.records[0].Reason != "Git LFS: 2 of 2 objects uploaded" ||
		w.records[0].PackBytes != int64(len(large))+6 || w.records[0].Refs[0].Ref != "refs/heads/feat" {
		t.Errorf("records: %+v", w.records)
	}
	w.mu.Unlock()
	// What is there is not sent again, under another name either.
	before := w.hub.LFSUploads()
	w.git("push", "origin", "main:feat2").want(t, 0, " * [new branch]      main -> feat2")
	if n := w.hub.LFSUploads() - before; n != 0 {
		t.Errorf("%d objects sent again", n)
	}
	other := filepath.Join(w.dir, "other")
	w.mustGit(w.dir, "clone", "-q", "-b", "feat", "https://github.com/acme/app.git", other)
	w.mustGit(other, "lfs", "install", "--local")
	w.mustGit(other, "lfs", "pull")
	if got, err := os.ReadFile(filepath.Join(other, "large.bin")); err != nil || !bytes.Equal(got, large) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
}

// The same rule that will refuse the ref refuses its objects, before any token.
func TestLFSRefused(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git-lfs"); err != nil {
		t.Skip("git-lfs is not installed")
	}
	w := newWorld(t, rules("push feat/**", "ask rel*", "deny main # push to main is denied (rule 3)"))
	w.tracks()
	w.commit(w.clone, "a.bin", "large\n")
	for ref, want := range map[string]string{
		"main":  "batch response: Control Center policy: push to main is denied (rule 3)",
		"other": "batch response: Control Center policy: no rule allows push to other",
		"rel-1": "batch response: Control Center policy: push to rel-1 needs approval (Caddyfile:3), and Git LFS objects would arrive before it; push them with a branch that needs no approval",
	} {
		r := w.git("push", "origin", "main:"+ref)
		r.want(t, 1, want)
		r.lacks(t, "Everything up-to-date")
	}
	w.untouched()
	if got := w.hub.LFSObjects(); len(got) != 0 {
		t.Errorf("objects at the forge: %v", got)
	}
}

func oidOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// lfsCall sends one request and gives its status and its message, or body.
func (w *world) lfsCall(method, url, body string, length int64) (int, string) {
	w.t.Helper()
	return w.lfsSend(method, url, strings.NewReader(body), length)
}

func (w *world) lfsSend(method, url string, body io.Reader, length int64) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, url, io.NopCloser(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.ContentLength = length
	if length == 0 {
		req.Body = http.NoBody
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	data, _ := io.ReadAll(resp.Body)
	var said struct{ Message string }
	if json.Unmarshal(data, &said) == nil && said.Message != "" {
		return resp.StatusCode, said.Message
	}
	return resp.StatusCode, string(data)
}

// lfsOpen asks for the upload of texts to feat, and gives the addresses to put them at.
func (w *world) lfsOpen(texts ...string) (upload, verify []string) {
	w.t.Helper()
	var objects []string
	for _, text := range texts {
		objects = append(objects, fmt.Sprintf(`{"oid":%q,"size":%d}`, oidOf(text), len(text)))
	}
	body := `{"operation":"upload","transfers":["basic","tus"],"ref":{"name":"refs/heads/feat"},"objects":[` + strings.Join(objects, ",") + `]}`
	status, text := w.lfsCall(http.MethodPost, w.url+"github.com/acme/app.git/info/lfs/objects/batch", body, int64(len(body)))
	var answer struct {
		Objects []struct {
			Actions map[string]struct {
				Href   string
				Header map[string]string
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != 200 || len(answer.Objects) != len(texts) {
		w.t.Fatalf("batch: %d %s", status, text)
	}
	for _, o := range answer.Objects {
		if len(o.Actions["upload"].Header) > 0 || !strings.HasPrefix(o.Actions["upload"].Href, w.url) {
			w.t.Errorf("the run is told %+v", o)
		}
		upload, verify = append(upload, o.Actions["upload"].Href), append(verify, o.Actions["verify"].Href)
	}
	return upload, verify
}

// What is not the object that was allowed does not become one at the forge.
func TestLFSHostile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	const text = "an object of Git LFS"
	size := int64(len(text))
	at, verify := w.lfsOpen(text)
	bare, _, _ := strings.Cut(at[0], "?")
	elsewhere := func(from, to string) string { return strings.Replace(at[0], from, to, 1) }
	for _, c := range []struct {
		name, method, url, body string
		length                  int64
		status                  int
		want                    string
	}{
		{"other content", "PUT", at[0], strings.ToUpper(text), size, 422, "what comes for " + oidOf(text)},
		{"other content in chunks", "PUT", at[0], strings.ToUpper(text), -1, 422, "what comes for " + oidOf(text)},
		{"a longer one", "PUT", at[0], text + "!", size + 1, 422, "has 20 bytes, and 21 come"},
		{"a longer one in chunks", "PUT", at[0], text + "!", -1, 422, "is longer than it says"},
		{"a shorter one", "PUT", at[0], text[1:], size - 1, 422, "has 20 bytes, and 19 come"},
		{"a shorter one in chunks", "PUT", at[0], text[1:], -1, 422, "ends 1 bytes too early"},
		{"nothing", "PUT", at[0], "", 0, 422, "and 0 come"},
		{"another id", "PUT", elsewhere(oidOf(text), oidOf("x")), text, size, 404, "not open any more"},
		{"another repository", "PUT", elsewhere("/app.git", "/lib.git"), text, size, 404, "not open any more"},
		{"no handle", "PUT", bare, text, size, 404, "is not served here"},
		{"a made-up handle", "PUT", bare + "?handle=" + strings.Repeat("0", 32), text, size, 404, "not open any more"},
		{"another method", "POST", at[0], text, size, 405, "is not used here"},
		{"verification first", "POST", verify[0], "{}", 2, 404, "has not been uploaded"},
	} {
		if status, said := w.lfsCall(c.method, c.url, c.body, c.length); status != c.status || !strings.Contains(said, c.want) {
			t.Errorf("%s: %d %q", c.name, status, said)
		}
	}
	if got := w.hub.LFSObjects(); len(got) != 0 {
		t.Errorf("the forge keeps %v", got)
	}
	// After all of which the object itself goes through, once.
	if status, said := w.lfsCall("PUT", at[0], text, size); status != 200 {
		t.Errorf("the object: %d %s", status, said)
	}
	if status, said := w.lfsCall("POST", verify[0], "{}", 2); status != 200 {
		t.Errorf("its verification: %d %s", status, said)
	}
	if status, said := w.lfsCall("PUT", at[0], text, size); status != 404 {
		t.Errorf("a second time: %d %s", status, said)
	}
	if got := w.hub.LFSObjects(); len(got) != 1 || got[oidOf(text)] != size {
		t.Errorf("the forge keeps %v", got)
	}
	if r := w.waitRecord(); r.Outcome != gitgw.Accepted || !r.Revoked {
		t.Errorf("record: %+v", r)
	}
}

// A batch that is none, and ones that are not allowed.
func TestLFSBatchRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	object := fmt.Sprintf(`{"oid":%q,"size":1}`, oidOf("x"))
	batch := func(operation, ref, objects string) string {
		return `{"operation":"` + operation + `","ref":{"name":"` + ref + `"},"objects":[` + objects + `]}`
	}
	for _, c := range []struct {
		repo, body string
		status     int
		want       string
	}{
		{"acme/app", "", 422, "malformed Git LFS batch"},
		{"acme/app", "[]", 422, "malformed Git LFS batch"},
		{"acme/app", strings.Repeat(" ", 1<<20), 422, "too large"},
		{"acme/app", batch("download", "refs/heads/feat", object), 422, "takes uploads only"},
		{"acme/app", batch("delete", "refs/heads/feat", object), 422, "is not known"},
		{"acme/app", `{"operation":"upload","objects":[` + object + `]}`, 422, "names no ref"},
		{"acme/app", batch("upload", "feat", object), 422, "does not begin with refs/"},
		{"acme/app", batch("upload", "refs/heads/a\u00a0b", object), 422, "invisible"},
		{"acme/app", batch("upload", "refs/heads/feat", object+","+object), 422, "stands twice"},
		{"acme/app", batch("upload", "refs/heads/feat", `{"oid":"../../x","size":1}`), 422, "is no object id"},
		{"acme/app", batch("upload", "refs/heads/feat", strings.ToUpper(object)), 422, "malformed"},
		{"acme/app", batch("upload", "refs/heads/feat", strings.Replace(object, ":1", ":-1", 1)), 422, "has no size"},
		{"acme/app", batch("upload", "refs/heads/feat", strings.Replace(object, ":1", ":9999999999999", 1)), 422, "is larger than"},
		{"acme/app", batch("upload", "refs/heads/feat", strings.TrimSuffix(strings.Repeat(object+",", 201), ",")), 422, "more than 200 objects"},
		{"acme/app", batch("upload", "refs/heads/main", object), 403, "push to main is denied (rule 3)"},
		{"other/app", batch("upload", "refs/heads/feat", object), 403, "is not this run's repository"},
	} {
		status, said := w.lfsCall("POST", w.url+"github.com/"+c.repo+".git/info/lfs/objects/batch", c.body, int64(len(c.body)))
		if status != c.status || !strings.Contains(said, c.want) {
			t.Errorf("%.80s: %d %q, want %d %q", c.body, status, said, c.status, c.want)
		}
	}
	w.untouched()
}

// A handle dies with its time, with its run and with the gateway; the token goes too.
func TestLFSHandlesDie(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	var held sync.WaitGroup
	w := newWorld(t, allowAll, func(w *world) {
		w.gateway.Limits.LFSIdle = 300 * time.Millisecond
		w.caller.Ended = ended
		w.caller.Hold = func() (func(), bool) {
			held.Add(1)
			return sync.OnceFunc(held.Done), true
		}
	})
	wait := func(what string) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			live := 0
			for _, tok := range w.writeTokens() {
				if !tok.Revoked() {
					live++
				}
			}
			if live == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d tokens live", what, live)
			}
		}
	}
	at, _ := w.lfsOpen("a", "b")
	wait("after its time")
	if status, said := w.lfsCall("PUT", at[0], "a", 1); status != 404 {
		t.Errorf("after its time: %d %s", status, said)
	}
	if r := w.waitRecord(); r.Outcome != gitgw.Aborted || !r.Revoked || r.Reason != "Git LFS: 0 of 2 objects uploaded" {
		t.Errorf("record: %+v", r)
	}
	w.change(func() { w.gateway.Limits.LFSIdle = time.Hour })
	at, _ = w.lfsOpen("c")
	close(ended)
	held.Wait() // the run's end waits for the revocation
	wait("after its run")
	if status, _ := w.lfsCall("PUT", at[0], "c", 1); status != 403 {
		t.Errorf("after its run: %d", status)
	}
	if got := w.hub.LFSObjects(); len(got) != 0 {
		t.Errorf("the forge keeps %v", got)
	}
}

// Another run's handle is nobody's.
func TestLFSHandleIsItsRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	at, _ := w.lfsOpen("a")
	w.change(func() { w.caller.Session = "s2" })
	if status, said := w.lfsCall("PUT", at[0], "a", 1); status != 404 || len(w.hub.LFSObjects()) != 0 {
		t.Errorf("another run: %d %s", status, said)
	}
	_ = w.gateway.Close()
	if r := w.waitRecord(); r.Outcome != gitgw.Aborted || !r.Revoked {
		t.Errorf("record: %+v", r)
	}
}

// A forge that fails, at each stage.
func TestLFSForgeFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll, func(w *world) { w.gateway.Limits.Retry = []time.Duration{time.Millisecond} })
	w.hub.SetFaults(fakegithub.Faults{Mint: 500})
	body := fmt.Sprintf(`{"operation":"upload","ref":{"name":"refs/heads/feat"},"objects":[{"oid":%q,"size":1}]}`, oidOf("a"))
	status, said := w.lfsCall("POST", w.url+"github.com/acme/app.git/info/lfs/objects/batch", body, int64(len(body)))
	if status != 403 || !strings.Contains(said, "no push token") {
		t.Errorf("mint: %d %s", status, said)
	}
	w.hub.SetFaults(fakegithub.Faults{TokenLag: time.Hour})
	if status, said = w.lfsCall("POST", w.url+"github.com/acme/app.git/info/lfs/objects/batch", body, int64(len(body))); status != 502 || !strings.Contains(said, "github.com answered 401") {
		t.Errorf("batch: %d %s", status, said)
	}
	w.hub.SetFaults(fakegithub.Faults{})
	at, verify := w.lfsOpen("a")
	w.hub.SetFaults(fakegithub.Faults{TokenLag: time.Hour})
	if status, said := w.lfsCall("PUT", at[0], "a", 1); status != 502 || !strings.Contains(said, "github.com answered 401") {
		t.Errorf("upload: %d %s", status, said)
	}
	w.hub.SetFaults(fakegithub.Faults{})
	if status, said := w.lfsCall("PUT", at[0], "a", 1); status != 200 {
		t.Errorf("upload again: %d %s", status, said)
	}
	w.hub.SetFaults(fakegithub.Faults{TokenLag: time.Hour})
	if status, said := w.lfsCall("POST", verify[0], "{}", 2); status != 502 {
		t.Errorf("verify: %d %s", status, said)
	}
	w.hub.SetFaults(fakegithub.Faults{})
	if status, said := w.lfsCall("POST", verify[0], "{}", 2); status != 200 {
		t.Errorf("verify again: %d %s", status, said)
	}
}

// Conditions of a rule hold for objects, too, or refuse them.
func TestLFSConditions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	for want, conditions := range map[string]gitgw.Conditions{
		"the Git LFS object " + oidOf("x") + " is larger than 1 MB; take the file out of the push or split it":                                      {MaxPack: 1e6},
		"Git LFS objects are not searched for secrets, and this rule wants that; keep the files in git (git lfs migrate export), which is searched": {Secrets: true},
	} {
		block := gitgw.RepoRules{Conditions: conditions}
		block.Pattern, _ = gitgw.ParseRepoPattern("github.com/acme/app")
		rule, err := gitgw.ParseRefRule("push", []string{"**"}, "")
		if err != nil {
			t.Fatal(err)
		}
		block.Rules = []gitgw.RefRule{rule}
		set, err := gitgw.NewRules(block)
		if err != nil {
			t.Fatal(err)
		}
		w.change(func() { w.gateway.Rules = set })
		body := fmt.Sprintf(`{"operation":"upload","ref":{"name":"refs/heads/feat"},"objects":[{"oid":%q,"size":1000001}]}`, oidOf("x"))
		if status, said := w.lfsCall("POST", w.url+"github.com/acme/app.git/info/lfs/objects/batch", body, int64(len(body))); status != 403 || said != "Control Center policy: "+want {
			t.Errorf("%d %q, want %q", status, said, want)
		}
	}
	w.untouched()
}
