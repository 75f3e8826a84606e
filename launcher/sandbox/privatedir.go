package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"postern/caddy-modules/session/lease"
)

// What is in a run's private directory on macOS, where there is no /run of its own.
const (
	ownProfile = "profile.sb" // gone when the sandbox stands
	ownGit     = "gitconfig"
	ownEmpty   = "empty"
	ownSeal    = "sealed"  // what the sandbox must refuse to write, see enter
	ownExe     = "postern" // a link to our binary: a path that needs no quoting
	ownRun     = "run"     // XDG_RUNTIME_DIR
)

// privateDir is a directory of a random name that nobody else may enter.
type privateDir struct{ path string }

// makePrivateDir makes one below base, the system's temporary directory where it is
// empty.
func makePrivateDir(base, exe string) (_ *privateDir, err error) {
	path, err := os.MkdirTemp(base, "postern-") // 0700, and the name is random
	if err != nil {
		return nil, fmt.Errorf("make a private directory: %w", err)
	}
	d := &privateDir{path}
	defer func() {
		if err != nil {
			d.remove()
		}
	}()
	if d.path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, fmt.Errorf("make a private directory: %w", err)
	}
	for _, name := range []string{ownEmpty, ownSeal, ownRun, d.tempName()} {
		if err := os.Mkdir(d.in(name), 0o700); err != nil {
			return nil, fmt.Errorf("make a private directory: %w", err)
		}
	}
	if err := errors.Join(os.Symlink(exe, d.in(ownExe)), d.write(ownGit, "")); err != nil {
		return nil, fmt.Errorf("make a private directory: %w", err)
	}
	return d, nil
}

func (d *privateDir) in(name string) string { return filepath.Join(d.path, name) }

// tempName is the name of TMPDIR. It is like no other, so that what holds in it alone,
// that whole repositories may be unpacked, can be said by name.
func (d *privateDir) tempName() string { return filepath.Base(d.path) + "-tmp" }

// write makes a file that only this user may read.
func (d *privateDir) write(name, text string) error {
	f, err := os.OpenFile(d.in(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// inside says where things are.
func (d *privateDir) inside(login *lease.Login) *Inside {
	return &Inside{Exe: d.in(ownExe), Empty: d.in(ownEmpty), Git: d.in(ownGit), Runtime: d.in(ownRun), Temp: d.in(d.tempName()), SharedHome: true, Login: login}
}

func (d *privateDir) remove() {
	if d != nil {
		_ = os.RemoveAll(d.path)
	}
}
