package gitgw_test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"postern/gitgw"
	"postern/integration/fakegithub"
)

// commitBlob adds size bytes that do not compress.
func (w *world) commitBlob(size int) {
	w.t.Helper()
	blob := make([]byte, size)
	_, _ = rand.Read(blob)
	if err := os.WriteFile(filepath.Join(w.clone, "blob.bin"), blob, 0o600); err != nil {
		w.t.Fatal(err)
	}
	// Compressing noise would be most of the test's time.
	w.mustGit(w.clone, "config", "core.compression", "0")
	w.mustGit(w.clone, "add", "blob.bin")
	w.mustGit(w.clone, "commit", "-q", "-m", "blob")
}

// E02: a large push that is denied is read to its end first.
func TestE02(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("deny ** # no"))
	w.commitBlob(20 << 20)
	r := w.git("push", "origin", "main:big")
	r.want(t, 1, " ! [remote rejected] main -> big (Control Center policy: no)")
	r.lacks(t, "RPC failed", "Everything up-to-date", "Broken pipe")
	w.untouched()
}

// E03 is what git prints when it is not: whatever refuses a large push, a rule, a
// missing approver or a malformed head, must not look so.
func TestE03(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("push **", "ask rel*"), func(w *world) { w.gateway.Limits.Commands = 1 })
	w.commitBlob(8 << 20)
	for _, refs := range [][]string{{"main:rel-1"}, {"main:a", "main:b"}, {"main:refs/x"}} {
		r := w.git(append([]string{"push", "origin"}, refs...)...)
		r.want(t, 1, "[remote rejected]")
		r.lacks(t, "RPC failed", "Everything up-to-date", "Broken pipe")
	}
	w.untouched()
}

func TestE04(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.git("-c", "http.postBuffer=1000", "push", "origin", "main:chunk").want(t, 0, " * [new branch]      main -> chunk")
	// One more, that is larger than the buffer.
	w.commitBlob(64 << 10)
	w.git("-c", "http.postBuffer=1000", "push", "origin", "main:chunk").want(t, 0, "main -> chunk")
	w.wantRef("refs/heads/chunk", w.head("main"))
	if log := w.conns.String(); !strings.Contains(log, "length=4\n") || !strings.Contains(log, "length=-1") {
		t.Errorf("no probe and chunked push:\n%s", log)
	}
}

func TestE05(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("deny **"))
	resp := w.post("0000", nil)
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/x-git-receive-pack-result" || len(body) != 0 {
		t.Errorf("%d %s %q", resp.StatusCode, resp.Header.Get("Content-Type"), body)
	}
	w.untouched()
	if len(w.records) != 0 {
		t.Errorf("a probe left records: %+v", w.records)
	}
}

// post sends a push's body by hand.
func (w *world) post(body string, header http.Header) *http.Response {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+"github.com/acme/app.git/git-receive-pack", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-git-receive-pack-request")
	maps.Copy(req.Header, header)
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: 5 * time.Second, DisableCompression: true}, Timeout: 30 * time.Second}
	w.t.Cleanup(client.CloseIdleConnections)
	resp, err := client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

const zero = "0000000000000000000000000000000000000000"

func pkt(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }

// capabilities of a raw client.
const rawCaps = " report-status side-band-64k object-format=sha1 agent=raw"

// creation is the body of a push that creates ref at main's tip, pack included.
func (w *world) creation(ref string) string {
	return pkt(zero+" "+w.head("main")+" "+ref+"\x00"+rawCaps) + "0000" + w.pack()
}

// pack is everything that main needs beyond the forge.
func (w *world) pack() string {
	w.t.Helper()
	r := w.run(w.clone, nil, []byte("main\n^origin/main\n"), "pack-objects", "--revs", "--stdout", "-q")
	if r.code != 0 {
		w.t.Fatal(r.out)
	}
	return r.out
}

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestE08(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	resp := w.post(w.creation("refs/heads/expect"), http.Header{"Expect": {"100-continue"}})
	if body := readAll(t, resp); !strings.Contains(body, "ok refs/heads/expect") {
		t.Errorf("%q", body)
	}
	w.wantRef("refs/heads/expect", w.head("main"))
}

// No client of git's gzips a push, others may.
func TestGzip(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	var body bytes.Buffer
	zw := gzip.NewWriter(&body)
	_, _ = io.WriteString(zw, w.creation("refs/heads/zipped"))
	_ = zw.Close()
	resp := w.post(body.String(), http.Header{"Content-Encoding": {"gzip"}})
	if body := readAll(t, resp); !strings.Contains(body, "ok refs/heads/zipped") {
		t.Errorf("%q", body)
	}
	w.wantRef("refs/heads/zipped", w.head("main"))
	for _, p := range w.hub.Pushes() {
		if p.Header.Get("Content-Encoding") != "" {
			t.Error("the forge got the client's encoding")
		}
	}
}

// E11: a forge that dies in mid report is passed on as a broken connection, not
// as an answer; what is known is said before.
func TestE11(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.hub.SetFaults(fakegithub.Faults{AbortReport: true})
	started := time.Now()
	r := w.git("push", "origin", "main:feat")
	r.want(t, 1, "error: RPC failed; curl 18 transfer closed",
		"remote: Control Center: github.com broke off before it had reported; fetch to see whether the push arrived")
	if took := time.Since(started); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
	if rec := w.record(); rec.Outcome != gitgw.Unknown || rec.UpstreamStatus != 200 {
		t.Errorf("record: %+v", rec)
	}
}

// E12: an answer of the forge that ends cleanly in mid packet must not reach
// git, which would wait for ever.
func TestE12(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.hub.SetFaults(fakegithub.Faults{TruncateReport: true})
	r := w.git("push", "origin", "main:feat")
	r.want(t, 1, "remote: Control Center: github.com broke off before it had reported",
		" ! [remote failure]  main -> feat (remote failed to report status)")
	r.lacks(t, "Everything up-to-date")
	if rec := w.record(); rec.Outcome != gitgw.Unknown {
		t.Errorf("record: %+v", rec)
	}
}

func TestE13(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll, func(w *world) {
		w.gateway.Limits.Retry = []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 2 * time.Second}
	})
	for _, status := range []int{401, 403, 404} {
		w.hub.SetFaults(fakegithub.Faults{TokenLag: 700 * time.Millisecond, LagStatus: status})
		time.Sleep(time.Second) // the read token ages
		ref := fmt.Sprint("lag-", status)
		w.git("push", "origin", "main:"+ref).want(t, 0,
			" * [new branch]      main -> "+ref, "remote: Control Center: waiting for github.com to accept the new token")
		w.wantRef("refs/heads/"+ref, w.head("main"))
	}
}

func TestE17(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.gitIn(w.clone, []string{"GIT_SMART_HTTP=0"}, "push", "origin", "main:feat").want(t, 128, "remote: ", "fatal: unable to access")
	w.untouched()
}

func TestE18(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	r := w.git("-c", "push.negotiate=true", "push", "origin", "main:neg")
	r.want(t, 0, "main -> neg")
	w.wantRef("refs/heads/neg", w.head("main"))
}

// F03 and F04: who cannot be told the result is refused. With a side-band it
// can at least be told that.
func TestF03(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	body := pkt(zero+" "+w.head("main")+" refs/heads/main\x00 side-band-64k") + "0000" + w.pack()
	got := readAll(t, w.post(body, nil))
	cure := "push to a ref that the rules allow, or have whoever keeps them add a rule for this one"
	if want := pkt("\x02Control Center: "+cure+"\n") + pkt("\x03Control Center policy: push to main is denied (rule 3)\n") + "0000"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	w.untouched()
}

func TestF04(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	body := pkt(zero+" "+w.head("main")+" refs/heads/main\x00 quiet") + "0000" + w.pack()
	if got := readAll(t, w.post(body, nil)); got != "" {
		t.Errorf("%q, want nothing", got)
	}
	// Allowed or not makes no difference: the client could not be answered.
	body = pkt(zero+" "+w.head("main")+" refs/heads/free\x00 quiet") + "0000" + w.pack()
	if got := readAll(t, w.post(body, nil)); got != "" {
		t.Errorf("%q, want nothing", got)
	}
	w.untouched()
}

// F01 and F02: clients without side-band-64k. git takes what is offered, so the
// offer is cut down on its way.
func TestF01(t *testing.T) { t.Parallel(); withholding(t, "side-band-64k ") }

func TestF02(t *testing.T) {
	t.Parallel()
	withholding(t, "side-band-64k ", "report-status-v2 ", "quiet ", "atomic ", "ofs-delta ", "delete-refs ", "push-options ")
}

func withholding(t *testing.T, withheld ...string) {
	t.Helper()
	w := newWorld(t, denyMain, func(w *world) { w.strip = withheld })
	w.git("push", "origin", "main").want(t, 1,
		" ! [remote rejected] main -> main (Control Center policy: push to main is denied (rule 3))")
	w.untouched()
	w.git("push", "origin", "main:feat").want(t, 0, " * [new branch]      main -> feat")
	w.wantRef("refs/heads/feat", w.head("main"))
}

func TestF08(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.git("push", "--signed=if-asked", "origin", "main:s1").want(t, 0,
		"warning: not sending a push certificate", " * [new branch]      main -> s1")
}

// F12 is the shallow clone with nothing to push; newer clients send its
// boundary and a flush.
func TestF12(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	if got := readAll(t, w.post(pkt("shallow "+w.head("main")+"\n")+"0000", nil)); got != "" {
		t.Errorf("%q, want nothing", got)
	}
	w.untouched()
}

// Shallow clones push their boundaries along, one or two of them.
func TestShallowClone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	for _, depth := range []string{"1", "2"} {
		dir := filepath.Join(w.dir, "shallow"+depth)
		w.mustGit(w.dir, "clone", "-q", "--depth", depth, "https://github.com/acme/app.git", dir)
		w.commit(dir, "s", "s"+depth)
		w.gitIn(dir, nil, "push", "origin", "HEAD:sh"+depth).want(t, 0, "HEAD -> sh"+depth)
	}
}

// F14: a sha256 repository, empty and not.
func TestF14(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll, with("acme/empty"))
	far, err := w.hub.Dir("acme/empty")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(far); err != nil {
		t.Fatal(err)
	}
	w.mustGit(w.dir, "init", "-q", "--bare", "--object-format=sha256", far)
	dir := w.emptyClone("sha256")
	w.gitIn(dir, nil, "push", "origin", "HEAD:x").want(t, 0, " * [new branch]      HEAD -> x")
	w.commit(dir, "y", "y\n")
	w.gitIn(dir, nil, "push", "origin", "HEAD:x", "HEAD:z").want(t, 0, "HEAD -> x", " * [new branch]      HEAD -> z")
	// A clone of the other kind is told so, by git or by us.
	other := w.emptyClone("sha1")
	r := w.gitIn(other, nil, "push", "origin", "HEAD:w")
	if r.code == 0 || strings.Contains(r.out, "unexpected capabilities^{}") {
		t.Errorf("exit %d: %s", r.code, r.out)
	}
}

func TestF15(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.gitIn(w.clone, []string{"GIT_USER_AGENT="}, "push", "origin", "HEAD:ua2").want(t, 0, " * [new branch]      HEAD -> ua2")
}

func TestF16(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	dir := filepath.Join(w.dir, "partial")
	w.mustGit(w.dir, "clone", "-q", "--filter=blob:none", "https://github.com/acme/app.git", dir)
	w.commit(dir, "p", "p\n")
	w.gitIn(dir, nil, "push", "origin", "HEAD:part").want(t, 0, " * [new branch]      HEAD -> part")
}

func TestPushOptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll, options("ci.*", "a=b c"))
	far, err := w.hub.Dir("acme/app")
	if err != nil {
		t.Fatal(err)
	}
	// A hook that says what it got; hooks talk after the report, too.
	hooks := filepath.Join(w.dir, "hooks")
	if err := os.MkdirAll(hooks, 0o700); err != nil {
		t.Fatal(err)
	}
	hook := "#!/bin/sh\ni=0\nwhile [ $i -lt ${GIT_PUSH_OPTION_COUNT:-0} ]; do eval echo \"option: \\$GIT_PUSH_OPTION_$i\"; i=$((i+1)); done\necho see ghs_0123456789abcdefghijklmnopqrstuvwxyz\n"
	if err := os.WriteFile(filepath.Join(hooks, "post-receive"), []byte(hook), 0o700); err != nil {
		t.Fatal(err)
	}
	w.mustGit(far, "config", "core.hooksPath", hooks)
	r := w.git("push", "-o", "ci.skip", "-o", "a=b c", "origin", "main:opt")
	r.want(t, 0, "remote: option: ci.skip", "remote: option: a=b c", "remote: see [redacted]", " * [new branch]      main -> opt")
	r.lacks(t, "ghs_0123")
	if got := w.record().Options; !slices.Equal(got, []string{"ci.skip", "a=b c"}) {
		t.Errorf("the record has the options %q", got)
	}
}
