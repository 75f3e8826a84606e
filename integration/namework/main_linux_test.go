package namework

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"postern/caddy-modules/session/lease"
	"postern/launcher/sandbox"
)

// sizeEnv says "all" for the larger sizes.
const sizeEnv = "POSTERN_NAMEWORK"

// size is few, or many where all of the work was asked for.
func size(few, many int) int {
	if os.Getenv(sizeEnv) == "all" {
		return many
	}
	return few
}

// leaseSocket is what launchers look for in their run directory.
const leaseSocket = "lease.sock"

var built struct {
	sync.Once
	dir, said string
	err       error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// postern is the launcher as it is shipped, built once.
func postern(tb testing.TB) string {
	tb.Helper()
	if _, err := sandbox.FindBwrap(nil); err != nil {
		tb.Skip("there is no bubblewrap")
	}
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "postern"); built.err != nil { //nolint:usetesting // it outlives the test
			return
		}
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", built.dir, "postern/launcher")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		var out []byte
		out, built.err = cmd.CombinedOutput()
		built.said = string(out)
	})
	if built.err != nil {
		tb.Fatalf("build the launcher: %v\n%s", built.err, built.said)
	}
	return filepath.Join(built.dir, "launcher")
}

// appliance takes the leases of launchers, and refuses every connection of their runs.
func appliance(tb testing.TB, dir string) {
	tb.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, leaseSocket), Net: "unix"})
	if err != nil {
		tb.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			wg.Go(func() { grant(c) })
		}
	})
	tb.Cleanup(func() {
		_ = ln.Close()
		wg.Wait()
	})
}

// grant serves one lease until its run has ended.
func grant(c *net.UnixConn) {
	r, err := lease.Accept(c)
	if err != nil {
		return
	}
	defer func() { _ = r.Close() }()
	_ = r.Pair.HTTP.Close()
	_ = r.Pair.SOCKS.Close()
	if r.Reply(lease.Answer{OK: true, Session: lease.Info{ID: r.Hello.Spec.ID}, Born: "b"}) != nil {
		return
	}
	for e := range r.Reports() {
		if e.Type == lease.EventExit {
			_ = r.Send(e)
		}
	}
	r.Wait()
}
