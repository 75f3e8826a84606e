package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"postern/caddy-modules/session/lease"
)

// maxSocketPath is the longest path of a Unix socket in bytes, on the system
// with the shorter limit (macOS; Linux takes 107).
const maxSocketPath = 103

// socketFile is a Unix listener with its file. Closing it removes the file, unless
// somebody has put another one in its place.
type socketFile struct {
	*net.UnixListener
	path  string
	made  os.FileInfo
	close sync.Once
	err   error
}

// listenUnix makes a socket of mode 0600 at path. What is left of a process that
// was killed is removed first; a socket that somebody answers is not ours to
// remove, and is an error that names the other process.
//
// The directory must be this user's and closed to others. That is the lock on
// the door: a socket is made with the mode of the umask and is open until chmod.
func listenUnix(ctx context.Context, path string) (*socketFile, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("listen on %s: the path has %d bytes, a socket's has at most %d", path, len(path), maxSocketPath)
	}
	dir := filepath.Dir(path)
	if err := checkPrivate(dir); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	unlock, err := lockDir(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	defer unlock()
	if err := removeStale(ctx, path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false) // it would remove whatever has the name by then
	s := &socketFile{UnixListener: ln, path: path}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), ln.Close())
	}
	if s.made, err = os.Lstat(path); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), ln.Close())
	}
	return s, nil
}

// Close implements net.Listener.
func (s *socketFile) Close() error {
	s.close.Do(func() {
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.made) {
			s.err = os.Remove(s.path)
		}
		s.err = errors.Join(s.err, s.UnixListener.Close())
	})
	return s.err
}

// checkPrivate wants a directory that this user owns and others cannot enter.
func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case !ok || int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", dir)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s has mode %04o and lets other users in; chmod it 0700", dir, info.Mode().Perm())
	}
	return nil
}

// lockDir keeps two processes that start at once from removing each other's
// fresh sockets as stale. The lock goes with the descriptor, so a killed process
// leaves none behind.
func lockDir(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		err := flock(f)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock %s: another process holds it", dir), f.Close())
		}
	}
}

func flock(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) {
		inner = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB)
	})
	return errors.Join(err, inner)
}

// removeStale removes the socket at path if nobody listens on it.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("a file that is not a socket is in the way; remove it")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	case err != nil:
		// Its backlog is full, or it is somebody else's: somebody lives there.
		return fmt.Errorf("another process has it: %w", err)
	}
	defer c.Close()
	who := "another process"
	// The credentials of the listening end are those of who called listen.
	if peer, err := lease.PeerOf(c.(*net.UnixConn)); err == nil && peer.PID != 0 { //nolint:forcetypeassert // network "unix" has no other
		who = fmt.Sprintf("process %d", peer.PID)
	}
	return fmt.Errorf("%s serves it already; stop that one, or set another run directory", who)
}
