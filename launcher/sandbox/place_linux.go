package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A mount needs something to be mounted on. For a name of a git directory that does not
// exist a placeholder is made on the host, and removed when the last run in that
// directory has ended. It is told from other files by its stamp, a time of
// modification that no clock gives: no list of them has to survive a crash. What a
// killed launcher leaves changes nothing for git, and the next run that may write the
// folder takes it over and removes it.
//
// Whole seconds, and even: some file systems keep no more.
var stamp = time.Unix(0x2f706f72, 0) // 1995-03-22

// lockWait is how long another run's clearing up is waited for.
const lockWait = 2 * time.Second

// placed is the git directories in which a run has placeholders. Each is locked
// (shared) as long as the run needs them; the kernel gives the lock back when the
// launcher dies.
type placed struct {
	notes string // where the notes of the runs are; empty: there are none
	dirs  []*os.File
	note  *os.File // what other runs have to know of this one
	made  []string // folders that had to be made for a placeholder, inner ones first
}

// place makes the placeholders of f's denials, and notes what file each denial is now.
func (f *Facts) place() (_ *placed, err error) {
	p := &placed{notes: f.GitDir}
	defer func() {
		if err != nil {
			p.remove()
		}
	}()
	if p.note, err = f.register(); err != nil {
		return nil, err
	}
	wait := lockWait
	for _, dir := range f.gits {
		file, err := lockDir(dir, wait)
		if errors.Is(err, unix.EWOULDBLOCK) && p.notes != "" {
			// Whoever can read the directory can lock it, another user or a run as well,
			// and must not keep runs from starting. The notes stand for the lock then.
			wait, err = 0, nil
		}
		if err != nil {
			return nil, &Refusal{Reason: ReasonBind, Detail: "the git directory " + dir + " cannot be protected", Err: err}
		}
		if file != nil {
			p.dirs = append(p.dirs, file)
		}
	}
	if f.guard != nil {
		// What is not there any more is guarded by its name, and nothing is made for it.
		f.Denials = slices.DeleteFunc(f.Denials, func(d Denial) bool { return d.Git != "" && !exists(d.Path) && d.ID != FileID{} })
	}
	for i := range f.Denials {
		d := &f.Denials[i]
		if d.Git == "" {
			continue
		}
		made, err := d.place()
		p.made = append(p.made, made...)
		if err != nil {
			return nil, &Refusal{Reason: ReasonBind, Detail: "the git directory " + d.Git + " cannot be protected", Err: err}
		}
	}
	return p, nil
}

// lockDir takes the shared lock of a git directory. A directory of another user that
// cannot be opened is none of ours: nothing can be made in it either. Where the lock is not
// to be had within wait, the directory is returned with the error.
func lockDir(dir string, wait time.Duration) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) && foreign(dir) {
			return nil, nil //nolint:nilnil // as said above
		}
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	file := os.NewFile(uintptr(fd), dir)
	err = lockWithin(file, unix.LOCK_SH, wait)
	if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		_ = file.Close()
		return nil, err
	}
	return file, err
}

// place makes the placeholder of one denial, if its name is not there. It returns the
// folders that it had to make.
func (d *Denial) place() (made []string, err error) {
	info, err := os.Lstat(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if made, err = makePlaceholder(d.Path, d.Git, d.Dir); err != nil {
			if unmakeable(err, filepath.Dir(d.Path)) {
				err = nil
			}
			return made, err
		}
		info, err = os.Lstat(d.Path)
	}
	if err != nil {
		return made, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return made, fmt.Errorf("%s has just become a link", d.Path)
	}
	// What was there keeps the identity it was planned with.
	if d.ID == (FileID{}) || isPlaceholder(info) {
		d.ID, d.Dir, d.made = idOf(info), info.IsDir(), isPlaceholder(info)
	}
	return made, nil
}

// unmakeable reports whether the run, having the same user, cannot make the file
// either.
func unmakeable(err error, dir string) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission) && foreign(dir)
}

// makePlaceholder makes path. It has its content and its stamp from the first moment:
// the user's own git may look at any time.
func makePlaceholder(path, gitDir string, dir bool) (made []string, err error) {
	for at := filepath.Dir(path); at != gitDir; at = filepath.Dir(at) {
		if err := os.Mkdir(at, 0o755); err == nil { //nolint:gosec // as git makes it
			made = append(made, at)
		} else if !errors.Is(err, fs.ErrExist) {
			return made, err
		}
	}
	if dir {
		if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as git makes it
			return made, err
		}
		return made, stampAll(append(made, path))
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+temporary)
	if err != nil {
		return made, err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(placeholder(path))
	if err = errors.Join(err, f.Chmod(0o444), f.Close(), os.Chtimes(f.Name(), stamp, stamp)); err != nil {
		return made, err
	}
	// Without replacing what another run, or git, has made meanwhile.
	err = unix.Renameat2(unix.AT_FDCWD, f.Name(), unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = os.Link(f.Name(), path) // a file system that cannot do that
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return made, err
	}
	_ = os.Remove(f.Name()) // before the folder is stamped
	return made, stampAll(made)
}

const temporary = ".postern-*"

func stampAll(paths []string) error {
	var errs []error
	for _, path := range paths {
		errs = append(errs, os.Chtimes(path, stamp, stamp))
	}
	return errors.Join(errs...)
}

// isPlaceholder reports whether a file is one of ours, and as we made it.
func isPlaceholder(info fs.FileInfo) bool {
	return info.ModTime().Unix() == stamp.Unix() && (info.IsDir() || info.Mode().IsRegular() && info.Size() <= 2)
}

// remove takes the placeholders away, where no other run needs them.
func (p *placed) remove() {
	if p == nil {
		return
	}
	needed, done := p.others()
	for _, dir := range p.dirs {
		if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil && !needed(dir.Name()) {
			clearDir(dir.Name())
		}
		_ = dir.Close()
	}
	for _, dir := range p.made {
		_ = os.Remove(dir) // only if it is empty
	}
	unregister(p.note) // before another asks: of two that end at once, the second clears up
	done()
	p.dirs, p.made, p.note = nil, nil, nil
}

// others says whether another run that is on may write a git directory, by its note.
// Until done is called no run can begin that its answers would be wrong for.
func (p *placed) others() (needed func(dir string) bool, done func()) {
	unknown := func(string) bool { return true } // the next run clears up
	if p.notes == "" || len(p.dirs) == 0 {
		return func(string) bool { return false }, func() {}
	}
	lock, err := lockNotes(p.notes)
	if err != nil {
		return unknown, func() {}
	}
	own := ""
	if p.note != nil {
		own = p.note.Name()
	}
	var views []*view
	err = eachOther(p.notes, own, func(v *view) error {
		views = append(views, v)
		return nil
	})
	if err != nil {
		return unknown, func() { _ = lock.Close() }
	}
	return func(dir string) bool {
		return slices.ContainsFunc(views, func(v *view) bool {
			root, ok := tableOf(v.roots).deepest(dir)
			return ok && root.Writable
		})
	}, func() { _ = lock.Close() }
}

// clearDir removes every placeholder of a git directory, also those that a crash left.
func clearDir(dir string) {
	for _, name := range closedGit {
		path := filepath.Join(dir, name)
		parent := filepath.Dir(path)
		stale, _ := filepath.Glob(escapeGlob(path) + temporary)
		above, err := os.Lstat(parent)
		parentOurs := err == nil && parent != dir && isPlaceholder(above)
		if info, err := os.Lstat(path); err == nil && isPlaceholder(info) {
			_ = os.Remove(path) // a folder only if nothing was put into it
		}
		for _, path := range stale {
			_ = os.Remove(path)
		}
		if parentOurs {
			_ = os.Remove(parent)
		}
	}
}

// escapeGlob makes a path match itself alone.
func escapeGlob(path string) string {
	var b []byte
	for _, c := range []byte(path) {
		if c == '*' || c == '?' || c == '[' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return string(b)
}
