package nameguard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
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
	return parseMounts(data, o)
}

// parseMounts reads the text of a mountinfo (proc_pid_mountinfo(5)).
func parseMounts(data []byte, o *Options) (mounts, error) {
	out := mounts{zones: map[uint64]zone{}, above: map[string]bool{}}
	for line := range bytes.SplitSeq(bytes.TrimSuffix(data, []byte{'\n'}), []byte{'\n'}) {
		m, err := parseMount(string(line))
		if err != nil {
			return mounts{}, fmt.Errorf("read the mounts of the sandbox: %w", err)
		}
		z := o.zone(m.at, m.kind)
		if z == guarded && m.writable && !slices.Contains(safe, m.kind) {
			return mounts{}, &FileSystemError{Path: m.at, Type: m.kind}
		}
		if z == free && m.writable && !slices.Contains(o.Free, m.at) && foreign(m.kind, m.root) {
			return mounts{}, fmt.Errorf("guard names: %s is a folder of the host's, and lies where the sandbox acts by itself", m.at)
		}
		out.zones[m.id] = z
		out.lead(m.at)
	}
	if len(out.zones) == 0 {
		return mounts{}, errors.New("read the mounts of the sandbox: there are none")
	}
	return out, nil
}

// CheckMounts says, by a *FileSystemError, which of the folders names cannot be guarded in,
// by the mounts of our own (a mountinfo): that each lies on, and that lie in it.
func CheckMounts(info []byte, folders []string) error {
	for _, folder := range folders {
		var home mount
		for line := range bytes.SplitSeq(bytes.TrimSuffix(info, []byte{'\n'}), []byte{'\n'}) {
			m, err := parseMount(string(line))
			switch {
			case err != nil:
				return fmt.Errorf("read what is mounted: %w", err)
			case within(m.at, folder) && len(m.at) >= len(home.at):
				home = m // the last at one place hides those before it
			case within(folder, m.at) && m.writable && !slices.Contains(safe, m.kind):
				return &FileSystemError{Path: m.at, Type: m.kind}
			}
		}
		if !slices.Contains(safe, home.kind) {
			return &FileSystemError{Path: folder, Type: home.kind}
		}
	}
	return nil
}

// mount is one line of a mountinfo (proc_pid_mountinfo(5)).
type mount struct {
	id       uint64
	at, root string
	kind     string // of file system
	writable bool
}

func parseMount(line string) (m mount, err error) {
	head, tail, ok := strings.Cut(line, " - ")
	fields, kind := strings.Fields(head), strings.Fields(tail)
	if !ok || len(fields) < 6 || len(kind) < 1 {
		return mount{}, fmt.Errorf("%q is no mount", line)
	}
	if m.id, err = strconv.ParseUint(fields[0], 10, 64); err != nil {
		return mount{}, err
	}
	m.at, m.root, m.kind = mountinfo.Unescape(fields[4]), mountinfo.Unescape(fields[3]), kind[0]
	m.writable = slices.Contains(strings.Split(fields[5], ","), "rw")
	return m, nil
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
