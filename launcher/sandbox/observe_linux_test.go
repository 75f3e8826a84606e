package sandbox

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onlooker collects what an observer sees.
type onlooker struct {
	mu   sync.Mutex
	seen bytes.Buffer
}

func (o *onlooker) observe(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen.Write(b)
	clear(b) // what is written on has been by now
}

func (o *onlooker) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen.String()
}

// observed runs a script whose stderr is looked at.
func observed(tb testing.TB, stdout, stderr *os.File, text string) (string, Status) {
	tb.Helper()
	needBwrap(tb)
	var o onlooker
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	p, err := Start(ctx, gather(tb, newWorld(tb).profile()), Options{Stdin: devNull(tb), Stdout: stdout, Stderr: stderr, Observe: o.observe, Timeout: 30 * time.Second})
	must(tb, err)
	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	must(tb, p.Exec(Command{Argv: []string{"/bin/bash", "-c", text}, Env: []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}}))
	status, err := p.Wait()
	must(tb, err)
	return o.String(), status
}

// drain reads r to its end in the background.
func drain(r io.Reader) func() string {
	var all bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(&all, r)
	}()
	return func() string { <-done; return all.String() }
}

func pipe(tb testing.TB) (r, w *os.File) {
	tb.Helper()
	r, w, err := os.Pipe()
	must(tb, err)
	tb.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return r, w
}

// Whatever stderr is, who looks on sees the bytes that arrive there, all of them, in
// their order, and changes none.
func TestObserveStderr(t *testing.T) {
	const script = `head -c 3000000 /dev/zero | tr '\0' x >&2; printf '\377\0\033[31m\r\nno line end' >&2; echo out; exit 7`
	want := strings.Repeat("x", 3000000) + "\xff\x00\x1b[31m\r\nno line end"
	t.Run("pipe", func(t *testing.T) {
		r, w := pipe(t)
		got := drain(r)
		out := capture(t)
		seen, status := observed(t, out, w, script)
		must(t, w.Close())
		if all := got(); seen != want || all != want || status.Code != 7 || slurp(t, out) != "out\n" {
			t.Errorf("seen %d, arrived %d of %d bytes; status %+v, stdout %q", len(seen), len(all), len(want), status, slurp(t, out))
		}
	})
	t.Run("file", func(t *testing.T) {
		err := capture(t)
		if seen, _ := observed(t, capture(t), err, script); seen != want || slurp(t, err) != want {
			t.Errorf("seen %d, arrived %d of %d bytes %q", len(seen), len(slurp(t, err)), len(want), strings.ReplaceAll(seen, "x", ""))
		}
	})
	t.Run("socket", func(t *testing.T) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
		c, err := net.FileConn(ours)
		must(t, err)
		must(t, ours.Close())
		defer c.Close()
		got := drain(c)
		seen, _ := observed(t, capture(t), theirs, script)
		must(t, theirs.Close())
		if all := got(); seen != want || all != want {
			t.Errorf("seen %d, arrived %d of %d bytes", len(seen), len(all), len(want))
		}
	})
}

// Where one pipe takes both, the order of what is written to either stays, and both are
// seen; stdout of its own is handed on unseen.
func TestObserveOrder(t *testing.T) {
	const script = "for i in {1..500}; do echo out $i; echo err $i >&2; done"
	r, w := pipe(t)
	got := drain(r)
	seen, _ := observed(t, w, w, script)
	must(t, w.Close())
	all := lines("%s", got())
	if seen != strings.Join(all, "\n")+"\n" || len(all) != 1000 {
		t.Errorf("seen %d bytes, %d lines", len(seen), len(all))
	}
	for i := 0; i+1 < len(all); i += 2 {
		if !strings.HasPrefix(all[i], "out ") || strings.TrimPrefix(all[i], "out ") != strings.TrimPrefix(all[i+1], "err ") {
			t.Fatalf("line %d: %q after %q", i, all[i+1], all[i])
		}
	}
	out, w1 := pipe(t)
	err, w2 := pipe(t)
	gotOut, gotErr := drain(out), drain(err)
	seen, _ = observed(t, w1, w2, "echo out; readlink /proc/self/fd/1 >&2; echo err >&2")
	must(t, w1.Close())
	must(t, w2.Close())
	if o, e := gotOut(), gotErr(); o != "out\n" || !strings.HasSuffix(e, "err\n") || seen != e {
		t.Errorf("stdout %q, stderr %q, seen %q", o, e, seen)
	}
}

// Each piece arrives when it is written, not when the next one is.
func TestObserveDoesNotDelay(t *testing.T) {
	r, w := pipe(t)
	in, answer := pipe(t)
	needBwrap(t)
	var o onlooker
	p, err := Start(t.Context(), gather(t, newWorld(t).profile()), Options{Stdin: in, Stdout: devNull(t), Stderr: w, Observe: o.observe, Timeout: 30 * time.Second})
	must(t, err)
	must(t, p.Exec(Command{Argv: []string{"/bin/bash", "-c", `for i in 1 2 3; do printf "ask $i" >&2; read x; done`}, Env: []string{"PATH=/usr/bin:/bin"}}))
	must(t, r.SetReadDeadline(time.Now().Add(30*time.Second)))
	for i := range 3 {
		b := make([]byte, 5)
		if _, err := io.ReadFull(r, b); err != nil || string(b) != "ask "+string(rune('1'+i)) {
			t.Fatalf("%q, %v", b, err)
		}
		_, err := answer.WriteString("go on\n")
		must(t, err)
	}
	if status, err := p.Wait(); err != nil || status.Code != 0 {
		t.Errorf("%+v, %v", status, err)
	}
}

// A reader that goes away is felt by the command as it would be without a relay, and is
// no fault of the run.
func TestObserveReaderGoesAway(t *testing.T) {
	r, w := pipe(t)
	must(t, r.Close())
	seen, status := observed(t, devNull(t), w, "trap '' PIPE; for i in {1..200}; do echo x >&2 2>/dev/null || exit 9; sleep 0.05; done")
	if status.Code != 9 || len(seen) > 0 {
		t.Errorf("status %+v, seen %q", status, seen)
	}
}

// A file that cannot be written is still an error of the run.
func TestObserveLostOutput(t *testing.T) {
	in := filepath.Join(tempDir(t), "in")
	write(t, in, "x")
	needBwrap(t)
	var o onlooker
	p, err := Start(t.Context(), gather(t, newWorld(t).profile()), Options{Stdin: devNull(t), Stdout: devNull(t), Stderr: opened(t, in, os.O_RDONLY), Observe: o.observe, Timeout: 30 * time.Second})
	must(t, err)
	must(t, p.Exec(Command{Argv: []string{"/bin/sh", "-c", "echo x >&2"}, Env: []string{"PATH=/usr/bin:/bin"}}))
	if _, err := p.Wait(); err == nil {
		t.Error("output was lost without a word")
	}
}
