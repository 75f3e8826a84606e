package egress

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"postern/caddy-modules/policy"
)

// alwaysList is the file to which an approver's "always" goes. It belongs to the
// operator, who edits it as well, so it is never seen half written and never written
// over: a line is added to a copy, which then takes its place.
type alwaysList struct{ path string }

// Bounds of what is written and read.
const (
	maxAlwaysList = 64 << 20 // bytes
	maxNote       = 64       // bytes of a name in a comment
	alwaysTries   = 5        // that somebody else may edit the file in between
	alwaysStale   = time.Hour
)

// alwaysLock is held by whoever writes one of the lists: of two approvals of two
// generations neither may lose the other's line.
var alwaysLock sync.Mutex

// approval is what the comment above a line tells.
type approval struct {
	by, session string
	at          time.Time
}

// check refuses a file that is not the operator's alone: not there, not regular, a
// link, another user's, or in a place where others could put one of theirs.
func (l alwaysList) check() error {
	_, dir, _, err := l.open()
	if err != nil {
		return err
	}
	return dir.Close()
}

// open opens the folder of the list, by its real name, and looks at both.
func (l alwaysList) open() (fs.FileInfo, *os.Root, string, error) {
	fail := func(err error) (fs.FileInfo, *os.Root, string, error) {
		return nil, nil, "", fmt.Errorf("check always_list %s: %w", l.path, err)
	}
	if !filepath.IsAbs(l.path) {
		return fail(errors.New("want an absolute path"))
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(l.path))
	if err != nil {
		return fail(err)
	}
	for dir := folder; ; dir = filepath.Dir(dir) {
		info, err := os.Lstat(dir)
		if err != nil {
			return fail(err)
		}
		// Whoever may write into a folder decides what its names mean. A folder like
		// /tmp, in which nobody moves what is another's, is none of those above.
		sticky := dir != folder && info.Mode()&fs.ModeSticky != 0
		if uid, ok := ownerOf(info); !ok || uid != os.Geteuid() && uid != 0 || info.Mode().Perm()&0o022 != 0 && !sticky {
			return fail(fmt.Errorf("others may write to the folder %s; keep the list in one of your own, of mode 0755 or less", dir))
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fail(err)
	}
	name := filepath.Base(l.path)
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("there is no such file; make an empty one, of mode 0600")
	}
	if err == nil {
		err = ownList(info)
	}
	if err != nil {
		_ = root.Close()
		return fail(err)
	}
	return info, root, name, nil
}

func ownList(info fs.FileInfo) error {
	uid, ok := ownerOf(info)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return errors.New("is a symbolic link; name the file itself")
	case !info.Mode().IsRegular():
		return errors.New("is not a regular file")
	case !ok || uid != os.Geteuid():
		return errors.New("belongs to another user")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("mode %04o lets other users write to it; chmod 0600 it", info.Mode().Perm())
	}
	return nil
}

func ownerOf(info fs.FileInfo) (int, bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}

// add writes the rule HOST PORT of the target at the end of the list, with a comment
// that tells who wanted it. It reports false where the list has that rule already.
// The text is the canonical one of the parsed target, so that nothing a client says
// can be a line, or a wildcard, of the list.
func (l alwaysList) add(t policy.Target, note approval) (bool, error) {
	alwaysLock.Lock()
	defer alwaysLock.Unlock()
	rule, err := alwaysRule(t)
	if err != nil {
		return false, err
	}
	for range alwaysTries {
		added, again, err := l.try(rule, note)
		if err != nil {
			return false, fmt.Errorf("add %q to always_list: %w", rule, err)
		}
		if !again {
			return added, nil
		}
	}
	return false, fmt.Errorf("add %q to always_list %s: the file keeps changing", rule, l.path)
}

// alwaysRule is the line for a target. One that could open nothing, as localhost
// without the flag private, would make the next load fail.
func alwaysRule(t policy.Target) (string, error) {
	line := t.Rule()
	rule, err := policy.ParseRule(line, policy.Origin{File: "always_list"})
	var set *policy.Set
	if err == nil {
		set, err = policy.Compile(policy.Lists{Allow: []policy.Rule{rule}}, nil)
	}
	if err == nil {
		err = refuseDead(set)
	}
	if err != nil {
		return "", fmt.Errorf("write rule %q: %w", line, err)
	}
	return line, nil
}

// try adds the rule once. again says that somebody has changed the file meanwhile.
func (l alwaysList) try(rule string, note approval) (added, again bool, err error) {
	before, dir, name, err := l.open()
	if err != nil {
		return false, false, err
	}
	defer dir.Close()
	text, err := readAlways(dir, name)
	if err != nil {
		return false, false, err
	}
	rules, err := policy.ParseList(bytes.NewReader(text), l.path)
	if err != nil {
		return false, false, fmt.Errorf("mend the list first: %w", err)
	}
	if slices.ContainsFunc(rules, func(r policy.Rule) bool { return r.String() == rule }) {
		return false, false, nil
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	text = fmt.Appendf(text, "# approved by %s, %s, session %s\n%s\n", plain(note.by), note.at.UTC().Format(time.RFC3339), plain(note.session), rule)
	sweepAlways(dir, name)
	next := "." + name + "." + rand.Text() + ".new"
	if err := writeAlways(dir, next, text, before.Mode().Perm()); err != nil {
		_ = dir.Remove(next)
		return false, false, err
	}
	if now, err := dir.Lstat(name); err != nil || !sameFile(before, now) {
		_ = dir.Remove(next)
		return false, true, err
	}
	if err := dir.Rename(next, name); err != nil {
		_ = dir.Remove(next)
		return false, false, err
	}
	return true, false, syncDir(dir)
}

// sameFile reports whether a file is still the one that was read.
func sameFile(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func readAlways(dir *os.Root, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxAlwaysList+1))
	if err == nil && len(text) > maxAlwaysList {
		err = fmt.Errorf("read %s: more than %d bytes", name, maxAlwaysList)
	}
	return text, err
}

// writeAlways writes a new file and returns when the disk has it.
func writeAlways(dir *os.Root, name string, text []byte, perm fs.FileMode) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Chmod(perm), f.Sync(), f.Close())
}

// syncDir has the disk know the new name.
func syncDir(dir *os.Root) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// sweepAlways removes what a killed process left behind. A failure is no trouble.
func sweepAlways(dir *os.Root, name string) {
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return
	}
	for _, e := range entries {
		if n := e.Name(); strings.HasPrefix(n, "."+name+".") && strings.HasSuffix(n, ".new") {
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > alwaysStale {
				_ = dir.Remove(n)
			}
		}
	}
}

// plain makes a name fit for a comment: whoever answers may call himself anything.
func plain(name string) string {
	clean := []byte(name[:min(len(name), maxNote)])
	for i, c := range clean {
		if c <= ' ' || c > '~' {
			clean[i] = '_'
		}
	}
	if len(clean) == 0 {
		return "nobody known"
	}
	return string(clean)
}
