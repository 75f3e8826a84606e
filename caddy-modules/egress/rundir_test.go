package egress

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// shortDir is a directory whose sockets have a name short enough.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "postern-test-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestRunDirIsFound(t *testing.T) {
	base, uid := shortDir(t), strconv.Itoa(os.Getuid())
	for _, c := range []struct{ name, run, xdg, want string }{
		{"named", filepath.Join(base, "named"), base, filepath.Join(base, "named")},
		{"named with a slash", filepath.Join(base, "named") + "/", base, filepath.Join(base, "named")},
		{"of the session", "", base, filepath.Join(base, "postern-"+uid)},
		{"of the machine", "", "", "/tmp/postern-" + uid},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(RunDirEnv, c.run)
			t.Setenv("XDG_RUNTIME_DIR", c.xdg)
			got, err := RunDir(false)
			if err != nil || got != c.want {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestRunDirIsMade(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	t.Setenv(RunDirEnv, dir)
	if _, err := RunDir(false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Fatal("made without being asked")
	}
	for range 2 { // the second time it is there
		if _, err := RunDir(true); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Lstat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestRunDirOfSomebodyElse refuses what another user could have put in our place.
func TestRunDirOfSomebodyElse(t *testing.T) {
	base := shortDir(t)
	open, file, link, private := filepath.Join(base, "open"), filepath.Join(base, "file"), filepath.Join(base, "link"), filepath.Join(base, "private")
	for _, err := range []error{
		os.Mkdir(open, 0o700), os.Chmod(open, 0o710),
		os.WriteFile(file, nil, 0o600), os.Mkdir(private, 0o700), os.Symlink(private, link),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, dir, want string }{
		{"others may enter", open, "lets other users in"},
		{"a file", file, "is not a directory"},
		{"a link", link, "is not a directory"},
		{"relative", "run", "absolute path"},
		{"too long", "/" + strings.Repeat("x", maxRunDir), "no room"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(RunDirEnv, c.dir)
			for _, create := range []bool{false, true} {
				if dir, err := RunDir(create); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("create %v: %q, %v, want %q", create, dir, err, c.want)
				}
			}
		})
	}
	t.Run("another user's", func(t *testing.T) {
		if os.Geteuid() != 0 {
			// /proc/1 belongs to root and others may enter: either is enough.
			t.Skip("needs root to give a directory away")
		}
		if err := os.Chown(private, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		t.Setenv(RunDirEnv, private)
		if _, err := RunDir(false); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
			t.Error(err)
		}
	})
}

func TestInUse(t *testing.T) {
	dir := shortDir(t)
	if err := InUse(dir); err != nil {
		t.Errorf("nobody is there: %v", err)
	}
	path := filepath.Join(dir, "control.sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := InUse(dir); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("somebody is there: %v", err)
	}
	// A crash leaves the file.
	ln.SetUnlinkOnClose(false)
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	if err := InUse(dir); err != nil {
		t.Errorf("the file is stale: %v", err)
	}
}
