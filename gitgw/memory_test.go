package gitgw_test

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A push of 200 MB, passed on, looked into or refused, costs the gateway's process no more
// than 24 MiB: it is streamed, never held.
func TestMemory200MB(t *testing.T) {
	if testing.Short() {
		t.Skip("pushes 200 MB")
	}
	if raceEnabled {
		t.Skip("the race detector multiplies memory")
	}
	w := newWorld(t, allowAll)
	w.commitBlob(200 << 20)
	token, err := w.hub.IssueToken(map[string]string{"contents": "write"}, "acme/app")
	if err != nil {
		t.Fatal(err)
	}
	w.staticToken = token
	far, err := w.hub.Dir("acme/app")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rule string
		code int
		want string
	}{
		{"deny", 1, " ! [remote rejected] main -> big"},
		{"push+secrets", 0, " * [new branch]      main -> big"},
		{"push", 0, " * [new branch]      main -> big"},
	} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "GITGW_TEST_UPSTREAM="+w.hub.URL(), "GITGW_TEST_TOKEN="+token, "GITGW_TEST_RULE="+c.rule)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		address, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		url := "http://" + strings.TrimSpace(address) + "/github.com/acme/app.git"
		w.git("push", url, "main~1:warm-"+c.rule) // so that code and buffers are there
		before := memory(t, cmd.Process.Pid, "VmRSS")
		started := time.Now()
		r := w.git("push", url, "main:big")
		took := time.Since(started)
		grown := memory(t, cmd.Process.Pid, "VmHWM") - before
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		r.want(t, c.code, c.want)
		if c.rule == "push+secrets" {
			// So that the next push sends it all again.
			w.mustGit(far, "update-ref", "-d", "refs/heads/big")
		}
		t.Logf("%s: 200 MB in %s, %d KiB more", c.rule, took.Round(time.Millisecond), grown)
		if grown > 24<<10 {
			t.Errorf("%s: grew by %d KiB", c.rule, grown)
		}
	}
	w.wantRef("refs/heads/big", w.head("main"))
}

// memory reads a field of /proc/PID/status in KiB.
func memory(t *testing.T, pid int, field string) int {
	t.Helper()
	return memoryOf(t, pid, field)
}

func memoryOf(tb testing.TB, pid int, field string) int {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Skip("no /proc here")
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				tb.Fatal(err)
			}
			return n
		}
	}
	tb.Fatalf("no %s", field)
	return 0
}

// piped is what write writes, as it is read.
func piped(write func(w io.Writer) error) io.ReadCloser {
	pr, pw := io.Pipe()
	go func() {
		buf := bufio.NewWriterSize(pw, 256<<10)
		_ = write(buf)
		_ = pw.CloseWithError(buf.Flush())
	}()
	return pr
}

// Hostile requests are refused, and cost the gateway's process no more than 16 MiB all
// together, however large they are.
func TestMemoryHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("sends 500 MB")
	}
	if raceEnabled {
		t.Skip("the race detector multiplies memory")
	}
	forge := newSink(t)
	address, pid := forge.alone(t, "gateway")
	id := strings.Repeat("a", 40)
	command := func(ref string, first bool) string {
		if first {
			ref += "\x00" + rawCaps
		}
		return pkt(zero + " " + id + " " + ref)
	}
	text := func(body string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, body); return err }
	}
	many := func(n int, line func(int) string) func(io.Writer) error {
		return func(w io.Writer) error {
			for i := range n {
				if _, err := io.WriteString(w, line(i)); err != nil {
					return err
				}
			}
			_, err := io.WriteString(w, "0000")
			return err
		}
	}
	zipped := func(write func(io.Writer) error) func(io.Writer) error {
		return func(w io.Writer) error {
			zw := gzip.NewWriter(w)
			return errors.Join(write(zw), zw.Close())
		}
	}
	pack := "0000PACK\x00\x00\x00\x02\x00\x00\x00\x01"
	send := func(encoding string, write func(io.Writer) error) string {
		t.Helper()
		body := piped(write)
		defer func() { _ = body.Close() }()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/github.com/acme/app.git/git-receive-pack", body)
		if err != nil {
			t.Fatal(err)
		}
		if encoding != "" {
			req.Header.Set("Content-Encoding", encoding)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		return readAll(t, resp)
	}
	if got := send("", text(command("refs/heads/warm", true)+pack+strings.Repeat("x", 1<<20))); !strings.Contains(got, "ok refs/heads/warm\n") {
		t.Fatalf("%.300q", got)
	}
	before := memory(t, pid, "VmRSS")
	last := before
	for _, c := range []struct {
		name, encoding string
		write          func(io.Writer) error
		want           string
	}{
		{"a NUL in the second command", "", text(command("refs/heads/ok", true) + command("refs/heads/main\x00x", false) + pack), "a NUL byte"},
		{"a no-break space", "", text(command("refs/heads/main\u00a0x", true) + pack), "invisible"},
		{"a double space", "", text(pkt(zero+"  "+id+" refs/heads/ok\x00"+rawCaps) + pack), "malformed ids"},
		{"no flush", "", text(command("refs/heads/ok", true) + command("refs/heads/b", false)), "ends before its flush"},
		{"2,000,000 commands", "", many(2_000_000, func(i int) string { return command(fmt.Sprintf("refs/heads/many/branch-%07d", i), i == 0) }), "more than 5000 refs"},
		{"3,000 names of 65 KB", "", many(3000, func(i int) string {
			return command("refs/heads/"+strings.Repeat("x", 65000)+fmt.Sprint(i), i == 0)
		}), "longer than 1024 bytes"},
		{"2,000,000 shallow lines", "", many(2_000_000, func(int) string { return pkt("shallow " + id + "\n") }), "more than 10000 shallow lines"},
		{"a bomb of commands", "gzip", zipped(many(2_000_000, func(i int) string { return command(fmt.Sprintf("refs/heads/many/branch-%07d", i), i == 0) })), "more than 5000 refs"},
		{"a bomb of a pack", "gzip", zipped(many(200, func(i int) string {
			if i == 0 {
				return command("refs/heads/bomb", true) + pack
			}
			return strings.Repeat("\x00", 1<<20)
		})), "inflates too far"},
	} {
		got := send(c.encoding, c.write)
		if !strings.Contains(got, c.want) || !strings.HasSuffix(got, "0000") || strings.Contains(got, "ok refs/") {
			t.Errorf("%s: %.300q", c.name, got)
		}
		now := memory(t, pid, "VmHWM")
		t.Logf("%s: %d KiB more than before all, %d of it by this", c.name, now-before, now-last)
		last = now
	}
	if last-before > 16<<10 {
		t.Errorf("grew by %d KiB", last-before)
	}
}
