package nameguard

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"postern/launcher/mountinfo"
)

// zone is what the rules have to say in one mount of the sandbox.
type zone uint8

const (
	stranger zone = iota // not a mount of the sandbox: nothing is done there
	guarded              // the rules hold
	private              // no rules, but the broker acts: guarded folders lie in it
	free                 // the sandbox acts by itself, Landlock lets it
	process              // free, and a process file system
)

// mounts tells zones apart by the id of the mount, and knows which directories lead to
// mount points. Rules about paths would be about nothing if those could be moved: the
// mounts go along.
type mounts struct {
	zones map[uint64]zone
	above map[string]bool
}

// lead notes the directories that lead to a mount point.
func (m *mounts) lead(at string) {
	for at != "/" {
		if at = path.Dir(at); m.above[at] {
			return
		}
		m.above[at] = true
	}
}

// safe are the file systems on which a name is one entry and an entry one name, up to
// folding. vfat and its kin open an existing file under a second, short name; what a
// server or a program serves may do anything.
var safe = []string{"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "overlay", "f2fs", "nfs", "nfs4"}

// FileSystemError says that a folder lies on a file system where names cannot be guarded.
type FileSystemError struct{ Path, Type string }

// Error implements error.
func (e *FileSystemError) Error() string {
	return fmt.Sprintf("%s lies on %s, where one file can have several names; names can be guarded on %s", e.Path, e.Type, strings.Join(safe, ", "))
}

// readMounts reads the mounts that a process sees.
func readMounts(pid int, o *Options) (mounts, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return mounts{}, fmt.Errorf("read the mounts of the sandbox: %w", err)
	}
	return parseMounts(string(data), o)
}

// parseLines reads the text of a mountinfo.
func parseLines(text string) (out []mountinfo.Mount, err error) {
	for line := range strings.Lines(text) {
		m, err := mountinfo.ParseLine(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		return nil, errors.New("there are none")
	}
	return out, nil
}

// parseMounts finds the zones of what the text of a mountinfo says is mounted.
func parseMounts(text string, o *Options) (mounts, error) {
	lines, err := parseLines(text)
	if err != nil {
		return mounts{}, fmt.Errorf("read the mounts of the sandbox: %w", err)
	}
	out := mounts{zones: map[uint64]zone{}, above: map[string]bool{}}
	for _, m := range lines {
		z := o.zone(m.At, m.Type)
		if z == guarded && unsafely(m) {
			return mounts{}, &FileSystemError{Path: m.At, Type: m.Type}
		}
		if z == free && m.Writable && !slices.Contains(o.Free, m.At) && foreign(m.Type, m.Root) {
			return mounts{}, fmt.Errorf("guard names: %s is a folder of the host's, and lies where the sandbox acts by itself", m.At)
		}
		out.zones[m.ID] = z
		out.lead(m.At)
	}
	return out, nil
}

// unsafely reports whether names in a mount could be written by other names.
func unsafely(m mountinfo.Mount) bool { return m.Writable && !slices.Contains(safe, m.Type) }

// CheckMounts says, by a *FileSystemError, which of the folders names cannot be guarded in,
// by the text of our own mountinfo: by what each lies on, and what is mounted in it.
func CheckMounts(text string, folders []string) error {
	lines, err := parseLines(text)
	if err != nil {
		return fmt.Errorf("read what is mounted: %w", err)
	}
	for _, folder := range folders {
		var home mountinfo.Mount
		for _, m := range lines {
			switch {
			case within(m.At, folder) && len(m.At) >= len(home.At):
				home = m // the last at one place hides those before it
			case within(folder, m.At) && unsafely(m):
				return &FileSystemError{Path: m.At, Type: m.Type}
			}
		}
		if !slices.Contains(safe, home.Type) {
			return &FileSystemError{Path: folder, Type: home.Type}
		}
	}
	return nil
}

// zone is the one of a mount at a place.
func (o *Options) zone(at, kind string) zone {
	switch {
	case slices.ContainsFunc(o.Free, func(dir string) bool { return within(dir, at) }):
		if kind == "proc" {
			return process
		}
		return free
	case slices.Contains(o.Private, at):
		return private
	}
	return guarded
}

// foreign reports whether a mount shows what was there before the sandbox: a disk, or a part
// of a tree in memory.
func foreign(kind, root string) bool {
	return slices.Contains(safe, kind) && (kind != "tmpfs" || root != "/")
}

// within reports whether p is dir or lies below it; both are clean and absolute.
func within(dir, p string) bool {
	return dir == "/" || p == dir || strings.HasPrefix(p, dir+"/")
}

// check refuses options that contradict each other: what Landlock grants it grants at
// every place below, so a guarded one must not lie there.
func (o *Options) check() error {
	if o.Rules == nil {
		return errors.New("guard names: no rules")
	}
	for _, dir := range slices.Concat(o.Free, o.Private, []string{o.Canary.Dir}) {
		if !path.IsAbs(dir) || path.Clean(dir) != dir {
			return fmt.Errorf("guard names: %q is not an absolute, clean path", dir)
		}
	}
	for _, dir := range o.Free {
		if dir == "/" || within(dir, o.Canary.Dir) {
			return fmt.Errorf("guard names: the free folder %q holds guarded ones", dir)
		}
	}
	return nil
}
