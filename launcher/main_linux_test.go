package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"postern/caddy-modules/session/lease"
	"postern/launcher/sandbox"
)

// The test binary is the launcher, too: outside as the tests call it, and inside as
// PID 1 and as the proxy command of ssh.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case injectCommand:
			syscall.Exit(inject())
		case countCommand:
			syscall.Exit(count(os.Args[2]))
		case withoutCommand:
			syscall.Exit(without(os.Args[2:]))
		case onCommand:
			syscall.Exit(on(os.Args[2:]))
		}
	}
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		fakeStart()
		code := dispatch(os.Args[1:], os.Stdout, os.Stderr)
		if os.Getpid() == 1 {
			// Without the second that the race detector sleeps in os.Exit. Outside,
			// GORACE says so; inside there is no environment.
			syscall.Exit(code)
		}
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// needBwrap fails a test where there is no bubblewrap: skipped is not proved. `make test`
// installs it.
func needBwrap(tb testing.TB) {
	tb.Helper()
	if _, err := sandbox.FindBwrap(nil); err != nil {
		tb.Fatalf("a real sandbox is needed, and nothing passes for one: %v", err)
	}
}

// appliance is the far end of leases: it takes listeners as the real one does, and
// answers every request on them by itself.
type appliance struct {
	t    testing.TB
	path string

	answer func(lease.Hello) lease.Answer
	serve  http.HandlerFunc

	mu     sync.Mutex
	ln     *net.UnixListener
	hellos []lease.Hello
	live   []*lease.Request
	told   []lease.Event    // what launchers reported
	ended  chan lease.Hello // a lease has ended
	wg     sync.WaitGroup
}

const readToken = "ghs_a-read-token-that-nobody-may-see"

// newAppliance starts one in dir.
func newAppliance(tb testing.TB, dir string) *appliance {
	tb.Helper()
	needBwrap(tb)
	a := &appliance{t: tb, path: filepath.Join(dir, leaseSocket), ended: make(chan lease.Hello, 100)}
	a.answer = func(h lease.Hello) lease.Answer {
		return lease.Answer{
			OK: true, Session: lease.Info{ID: h.Spec.ID}, ReadToken: readToken, Born: "b1",
			Git: lease.Git{URL: "http://git.internal/", Forges: []string{"github.com"}},
		}
	}
	a.serve = func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s\n", r.Method, r.URL) }
	a.start()
	tb.Cleanup(a.stop)
	return a
}

func (a *appliance) start() {
	a.t.Helper()
	_ = os.Remove(a.path)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: a.path, Net: "unix"})
	if err != nil {
		a.t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	a.mu.Lock()
	a.ln = ln
	a.mu.Unlock()
	a.wg.Go(func() {
		for {
			c, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			a.wg.Go(func() { a.take(c) })
		}
	})
}

func (a *appliance) take(c *net.UnixConn) {
	r, err := lease.Accept(c)
	if err != nil {
		return
	}
	defer r.Close()
	a.mu.Lock()
	a.hellos = append(a.hellos, r.Hello)
	a.live = append(a.live, r)
	answer, serve := a.answer, a.serve
	a.mu.Unlock()
	granted := answer(r.Hello)
	if granted.Error != nil {
		_ = r.Refuse(granted.Error.Code, granted.Error.Message)
		return
	}
	if r.Reply(granted) != nil {
		return
	}
	srv := &http.Server{Handler: serve, ReadHeaderTimeout: time.Minute}
	a.wg.Go(func() { _ = srv.Serve(r.Pair.HTTP) })
	a.wg.Go(func() { denySOCKS(r.Pair.SOCKS) })
	a.serveNames(r.More, granted.DNS)
	for e := range r.Reports() {
		a.mu.Lock()
		a.told = append(a.told, e)
		a.mu.Unlock()
		if e.Type == lease.EventExit {
			_ = r.Send(e)
		}
	}
	r.Wait()
	_ = srv.Close()
	_ = r.Pair.SOCKS.Close()
	select {
	case a.ended <- r.Hello:
	default: // a benchmark has more runs than anybody counts
	}
}

// will changes what it answers to hellos, and what to requests of later leases; nil
// leaves that as it is.
func (a *appliance) will(answer func(lease.Hello) lease.Answer, serve http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if answer != nil {
		a.answer = answer
	}
	if serve != nil {
		a.serve = serve
	}
}

// denySOCKS reads requests and denies them by rule, as RFC 1928 words it.
func denySOCKS(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		head := make([]byte, 5)
		_, _ = io.ReadFull(c, head[:3])
		_, _ = c.Write([]byte{5, 0})
		_, _ = io.ReadFull(c, head) // up to the length of the name
		_, _ = io.ReadFull(c, make([]byte, int(head[4])+2))
		_, _ = c.Write([]byte{5, 2, 0, 1, 0, 0, 0, 0, 0, 0})
		_ = c.Close()
	}
}

// crash ends it as a kill would: the socket file stays, every connection breaks.
func (a *appliance) crash() {
	a.mu.Lock()
	live := a.live
	a.live = nil
	_ = a.ln.Close()
	a.mu.Unlock()
	for _, r := range live {
		_ = r.Close()
	}
}

func (a *appliance) stop() {
	a.crash()
	a.wg.Wait()
}

// send sends an event to every live lease.
func (a *appliance) send(e lease.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.live {
		_ = r.Send(e)
	}
}

// reports are what launchers told so far.
func (a *appliance) reports() []lease.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.told)
}

func (a *appliance) seen() []lease.Hello {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.hellos)
}

// world is a home with a worktree and a run directory.
type world struct {
	t                testing.TB
	home, tree, runs string
	env              []string
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	// Short, for the run directory holds a socket.
	base, err := os.MkdirTemp("", "w") //nolint:usetesting // short, see above
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(base) })
	if base, err = filepath.EvalSymlinks(base); err != nil {
		tb.Fatal(err)
	}
	w := &world{t: tb, home: filepath.Join(base, "home"), tree: filepath.Join(base, "home", "tree"), runs: filepath.Join(base, "r")}
	for _, dir := range []string{w.tree, w.runs} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	w.env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + w.home, "POSTERN_RUN=" + w.runs, "LC_ALL=C", "TERM=dumb", "GORACE=atexit_sleep_ms=0"}
	return w
}

func (w *world) write(name, text string, mode os.FileMode) string {
	w.t.Helper()
	path := filepath.Join(w.home, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// command is the launcher, to be run in the worktree.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Path, _ = os.Executable()
	cmd.Args[0] = "postern"
	cmd.Dir, cmd.Env = w.tree, w.env
	return cmd
}

// result is how a launcher ended.
type result struct {
	stdout, stderr string
	code           int
}

// postern runs the launcher to its end.
func (w *world) postern(args ...string) result {
	w.t.Helper()
	cmd := w.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// script runs a shell script in a sandbox.
func (w *world) script(text string, flags ...string) result {
	w.t.Helper()
	return w.postern(append(append([]string{"run"}, flags...), "--", "/bin/sh", "-c", text)...)
}

// within waits until ok says so.
func within(tb testing.TB, limit time.Duration, what string, ok func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for !ok() {
		if ctx.Err() != nil {
			tb.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
