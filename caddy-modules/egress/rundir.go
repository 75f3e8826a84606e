package egress

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// RunDirEnv names the run directory, to the process and to its Caddyfile.
const RunDirEnv = "POSTERN_RUN"

// maxRunDir is the longest run directory in bytes: a socket's path is at most
// 103 bytes on macOS and 107 on Linux, and "/control.sock" must follow.
const maxRunDir = 103 - len("/control.sock")

// RunDir returns the directory of this user's sockets: $POSTERN_RUN, else
// $XDG_RUNTIME_DIR/postern-UID, else /tmp/postern-UID. It makes the directory
// where create says so. An existing one must be a directory (not a link to one)
// that belongs to this user and that nobody else may enter; anything else is an
// error, as whoever owns the directory may put his own sockets in our place.
func RunDir(create bool) (string, error) {
	dir := os.Getenv(RunDirEnv)
	if dir == "" {
		base := os.Getenv("XDG_RUNTIME_DIR")
		if base == "" {
			base = "/tmp"
		}
		dir = filepath.Join(base, "postern-"+strconv.Itoa(os.Getuid()))
	}
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("run directory %q: give an absolute path in $%s", dir, RunDirEnv)
	}
	dir = filepath.Clean(dir)
	if len(dir) > maxRunDir {
		return "", fmt.Errorf("run directory %q: %d bytes leave no room for a socket's name, %d are possible; set $%s",
			dir, len(dir), maxRunDir, RunDirEnv)
	}
	if create {
		//nolint:gosec // G703 the user's own environment names the directory
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("make run directory: %w", err)
		}
	}
	if err := checkRunDir(dir); err != nil && (create || !errors.Is(err, fs.ErrNotExist)) {
		return "", err
	}
	return dir, nil
}

// checkRunDir refuses a directory that somebody else controls. /tmp is open to
// all, so the name may have been taken before us.
func checkRunDir(dir string) error {
	info, err := os.Lstat(dir) //nolint:gosec // G703 the user's own environment names the directory
	if err != nil {
		return fmt.Errorf("check run directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("run directory %s: is not a directory", dir)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("run directory %s: belongs to another user; set $%s to one of your own", dir, RunDirEnv)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return fmt.Errorf("run directory %s: mode %04o lets other users in; chmod 0700 it", dir, perm)
	}
	return nil
}

// InUse returns an error where another appliance answers in the run directory. It
// must be asked before Caddy starts: Caddy unlinks an admin socket that is in its
// way whether or not somebody listens on it, so that a second appliance would
// leave the first one without.
func InUse(dir string) error {
	for _, name := range []string{"admin.sock", "control.sock"} {
		path := filepath.Join(dir, name)
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err != nil {
			continue // none, or one that a crash left behind
		}
		_ = conn.Close()
		return fmt.Errorf("an appliance runs already, %s answers; stop it with `caddy stop`, or set $%s", path, RunDirEnv)
	}
	return nil
}

// AdminListen returns the address of Caddy's admin endpoint in the run directory.
func AdminListen(dir string) string {
	return "unix/" + filepath.Join(dir, "admin.sock") + "|0600"
}
