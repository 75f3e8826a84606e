package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// What may lie at the path of a socket, and what becomes of it.
func TestListenUnix(t *testing.T) {
	stale := func(t *testing.T, path string) {
		t.Helper()
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		ln.SetUnlinkOnClose(false)
		ln.Close()
	}
	for _, c := range []struct {
		name string
		lay  func(t *testing.T, path string)
		say  string // part of the error; "" for none
	}{
		{"nothing", func(*testing.T, string) {}, ""},
		{"a socket nobody answers", stale, ""},
		{"a socket somebody answers", func(t *testing.T, path string) {
			t.Helper()
			ln, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ln.Close() })
		}, fmt.Sprintf("process %d serves it already", os.Getpid())},
		{"a file", func(t *testing.T, path string) {
			t.Helper()
			if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a socket"},
		{"a directory", func(t *testing.T, path string) {
			t.Helper()
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "not a socket"},
		{"a link to a socket", func(t *testing.T, path string) {
			t.Helper()
			stale(t, path+".real")
			if err := os.Symlink(path+".real", path); err != nil {
				t.Fatal(err)
			}
		}, "not a socket"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(runDir(t), "s")
			c.lay(t, path)
			before, _ := os.Lstat(path)
			ln, err := listenUnix(t.Context(), path)
			if c.say != "" {
				if err == nil {
					ln.Close()
					t.Fatal("opened")
				}
				if !strings.Contains(err.Error(), c.say) {
					t.Errorf("error %q does not say %q", err, c.say)
				}
				if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
					t.Error("what was there has been touched")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
			if err := ln.Close(); err != nil {
				t.Error(err)
			}
			if err := ln.Close(); err != nil {
				t.Error("closed twice:", err)
			}
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Error("the file is left")
			}
		})
	}
}

// A socket that has taken the place of ours is not ours to remove.
func TestCloseLeavesOthersAlone(t *testing.T) {
	path := filepath.Join(runDir(t), "s")
	ln, err := listenUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other, err := listenUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ln.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal("the other socket is gone:", err)
	}
	c.Close()
}

func TestListenUnixWantsAPrivateDirectory(t *testing.T) {
	dir := runDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(t.Context(), filepath.Join(dir, "s")); err == nil || !strings.Contains(err.Error(), "0755") {
		t.Errorf("got %v", err)
	}
	if _, err := listenUnix(t.Context(), filepath.Join(dir, "none", "s")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	long := filepath.Join(dir, strings.Repeat("x", maxSocketPath))
	if _, err := listenUnix(t.Context(), long); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("got %v", err)
	}
	file := filepath.Join(runDir(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(t.Context(), filepath.Join(file, "s")); err == nil {
		t.Error("a file is a directory")
	}
}

// Of many that start at once on a stale socket exactly one wins, and it keeps
// its socket.
func TestListenUnixRace(t *testing.T) {
	path := filepath.Join(runDir(t), "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	var wg sync.WaitGroup
	won := make(chan *socketFile, 20)
	for range cap(won) {
		wg.Go(func() {
			if ln, err := listenUnix(t.Context(), path); err == nil {
				won <- ln
			} else if !strings.Contains(err.Error(), "serves it already") {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(won)
	n := 0
	for ln := range won {
		n++
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Error("the winner lost its socket:", err)
		} else {
			c.Close()
		}
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("%d winners", n)
	}
}

func TestLockedDirectory(t *testing.T) {
	dir := runDir(t)
	unlock, err := lockDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lockDir(ctx, dir); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %v", err)
	}
	unlock()
	again, err := lockDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// Two appliances on one run directory: the second one says who has it, and does
// the first one no harm.
func TestListenTwice(t *testing.T) {
	dir := runDir(t)
	a, b := newRegistryIn(t, dir), newRegistryIn(t, dir)
	if err := a.Listen(); err != nil {
		t.Fatal(err)
	}
	if err := a.Listen(); err != nil {
		t.Error("the same registry, again:", err)
	}
	if err := b.Listen(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("got %v", err)
	}
	if err := b.Destruct(); err != nil {
		t.Error(err)
	}
	resp, err := control(t, dir).Get("http://control/v1/state")
	if err != nil {
		t.Fatal("the first one is hurt:", err)
	}
	resp.Body.Close()
	if err := a.Destruct(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := a.Listen(); err == nil {
		t.Error("a closed registry listens")
	}
}

// What a killed process leaves is replaced.
func TestListenAfterAKill(t *testing.T) {
	dir := runDir(t)
	for _, name := range []string{ControlSocket, LeaseSocket} {
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		ln.SetUnlinkOnClose(false)
		ln.Close()
	}
	openDoors(t, newRegistryIn(t, dir))
}

func TestListenSaysWhatIsWrong(t *testing.T) {
	dir := runDir(t)
	if err := os.WriteFile(filepath.Join(dir, LeaseSocket), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRegistryIn(t, dir)
	if err := r.Listen(); err == nil || !strings.Contains(err.Error(), LeaseSocket) {
		t.Errorf("got %v", err)
	}
	// Half open is not open: the other socket is gone again, and a second try
	// can succeed.
	if _, err := os.Lstat(filepath.Join(dir, ControlSocket)); !errors.Is(err, os.ErrNotExist) {
		t.Error("control.sock is left")
	}
	if err := os.Remove(filepath.Join(dir, LeaseSocket)); err != nil {
		t.Fatal(err)
	}
	if err := r.Listen(); err != nil {
		t.Error(err)
	}
	bad := New(Options{RunDir: runDir(t), Ports: "9-1"})
	defer func() { _ = bad.Destruct() }()
	if err := bad.Listen(); err == nil || !strings.Contains(err.Error(), "port range") {
		t.Errorf("got %v", err)
	}
}

// control is a client of the control socket in dir.
func control(tb testing.TB, dir string) *http.Client {
	tb.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, ControlSocket))
	}}
	tb.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}
