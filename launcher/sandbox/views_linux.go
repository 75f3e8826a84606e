package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A mask is tied to a directory entry. Another run that may write the folder, and to
// which the entry is like any other, can rename or remove it, and the mask with it. So
// every run notes in the run directory what it sees and what it denies beyond the names
// that every run denies, and keeps the note locked while it lives: a run that would
// share a folder on other terms is refused. The kernel unlocks the notes of the dead.
type view struct {
	name     string
	roots    []Root            // paths and rights
	denied   map[string]string // denied on request: by path, the pattern that found it or ""
	patterns map[string]bool
}

const (
	viewVersion = "postern view 1"
	viewPattern = ".view-*"
)

// view is what other runs have to know of f.
func (f *Facts) view() *view {
	v := &view{name: f.Name, roots: f.Roots, denied: map[string]string{}, patterns: map[string]bool{}}
	if v.name == "" {
		v.name = fmt.Sprintf("process %d", os.Getpid())
	}
	for _, d := range f.Denials {
		if d.asked && f.shown(d.Path) {
			v.denied[d.Path] = d.pattern
		}
	}
	for _, text := range f.patterns {
		v.patterns[text] = true
	}
	return v
}

func (v *view) encode() ([]byte, error) {
	list := []string{viewVersion, v.name}
	for _, r := range v.roots {
		kind := "r"
		if r.Writable {
			kind = "w"
		}
		list = append(list, kind+r.Path)
	}
	for text := range v.patterns {
		list = append(list, "p"+text)
	}
	for path, pattern := range v.denied {
		list = append(list, "d"+path, pattern)
	}
	return pack(list)
}

func decodeView(data []byte) (*view, error) {
	list, err := unpack(data)
	if err != nil {
		return nil, err
	}
	if len(list) < 2 || list[0] != viewVersion {
		return nil, errors.New("it is of another version")
	}
	v := &view{name: list[1], denied: map[string]string{}, patterns: map[string]bool{}}
	for i := 2; i < len(list); i++ {
		kind, text := list[i][:min(1, len(list[i]))], list[i][min(1, len(list[i])):]
		switch {
		case kind == "r" || kind == "w":
			v.roots = append(v.roots, Root{Path: text, Writable: kind == "w"})
		case kind == "p":
			v.patterns[text] = true
		case kind == "d" && i+1 < len(list):
			i++
			v.denied[text] = list[i]
		default:
			return nil, errors.New("it is damaged")
		}
	}
	return v, nil
}

// endangers returns a path that v denies and other may rename or replace, or "".
func (v *view) endangers(other *view) string {
	theirs := tableOf(other.roots)
	var out []string
	for path, pattern := range v.denied {
		// What is a mount point in other's view, or lies in one that is read-only, stays.
		root, ok := theirs.deepest(path)
		if !ok || !root.Writable || root.Path == path || pattern != "" && other.patterns[pattern] {
			continue
		}
		covered := false
		for at := range above(path) {
			if _, covered = other.denied[at]; covered {
				break
			}
		}
		if !covered {
			out = append(out, path)
		}
	}
	// A folder that is shown with fewer rights than the one around it is a mask, too.
	ours := tableOf(v.roots)
	for _, r := range v.roots {
		around, ok := ours.deepest(filepath.Dir(r.Path))
		root, shared := theirs.deepest(r.Path)
		if ok && around.Writable && !r.Writable && shared && root.Writable && root.Path != r.Path {
			out = append(out, r.Path)
		}
	}
	slices.Sort(out)
	if len(out) == 0 {
		return ""
	}
	return out[0]
}

// conflict says why two runs cannot be on at once, as the one that comes later sees it.
func (v *view) conflict(other *view) error {
	path, whom := v.endangers(other), "this run must not touch it, and that one could move it out of its place"
	if path == "" {
		path, whom = other.endangers(v), "that one must not touch it, and this run could move it out of its place"
	}
	if path == "" {
		return nil
	}
	return &Refusal{
		Reason: ReasonShared,
		Detail: fmt.Sprintf("the run %s is on, and sees %s on other terms: %s", other.name, path, whom),
		Cure:   "give both the same --bind, --protect and --hide, or wait for its end",
	}
}

// register notes what a run sees, unless a run that is on sees it otherwise. The note
// lasts until it is closed.
func (f *Facts) register() (_ *os.File, err error) {
	if f.GitDir == "" {
		return nil, nil //nolint:nilnil // a probe: it shows nothing of anybody's
	}
	refuse := func(err error) error {
		return &Refusal{Reason: ReasonShared, Detail: "cannot tell which runs share a folder with this one", Err: err}
	}
	lock, err := lockNotes(f.GitDir)
	if err != nil {
		return nil, refuse(err)
	}
	defer lock.Close()
	own := f.view()
	if err := own.checkOthers(f.GitDir); err != nil {
		if _, ok := errors.AsType[*Refusal](err); ok {
			return nil, err
		}
		return nil, refuse(err)
	}
	data, err := own.encode()
	if err != nil {
		return nil, refuse(err)
	}
	note, err := os.CreateTemp(f.GitDir, viewPattern)
	if err != nil {
		return nil, refuse(err)
	}
	_, err = note.Write(data)
	if err = errors.Join(err, unix.Flock(int(note.Fd()), unix.LOCK_EX|unix.LOCK_NB)); err != nil {
		unregister(note)
		return nil, refuse(err)
	}
	return note, nil
}

// lockNotes takes the lock of the notes, which is that of the folder: one run at a time
// compares.
func lockNotes(dir string) (*os.File, error) {
	lock, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := lockWithin(lock, unix.LOCK_EX, 10*time.Second); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return lock, nil
}

// checkOthers compares with every run that is on.
func (v *view) checkOthers(dir string) error {
	return eachOther(dir, "", v.conflict)
}

// eachOther visits what every run that is on sees, but for the one with the note own, and
// removes the notes of the dead.
func eachOther(dir, own string, visit func(*view) error) error {
	notes, err := filepath.Glob(escapeGlob(dir) + "/" + viewPattern)
	if err != nil {
		return err
	}
	for _, path := range notes {
		if path == own {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has just ended
		}
		if err != nil {
			return err
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.Remove(path)
			_ = f.Close()
			continue
		}
		_ = f.Close()
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		other, err := decodeView(data)
		if err != nil {
			return fmt.Errorf("read the note of another run, %s: %w", path, err)
		}
		if err := visit(other); err != nil {
			return err
		}
	}
	return nil
}

// unregister takes a note back.
func unregister(note *os.File) {
	if note != nil {
		_ = os.Remove(note.Name())
		_ = note.Close()
	}
}

// lockWithin takes a lock, and waits for others no longer than limit.
func lockWithin(f *os.File, how int, limit time.Duration) error {
	for until := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		// A file system without locks has no other runs to tell apart, only then.
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Now().After(until) {
			return &os.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
	}
}
