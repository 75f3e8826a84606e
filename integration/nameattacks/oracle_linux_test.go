package nameattacks

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"sort"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/sys/unix"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// entry is one name on the disk.
type entry struct {
	ino  uint64
	kind uint32
	text string // a hash of the content, or a link's target
}

// entries are all below a folder, by their path in it.
type entries map[string]entry

// look reads a folder by its descriptors, so that no depth is too deep.
func look(dir string) (entries, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	out := entries{}
	return out, out.read(fd, "")
}

// read reads one folder, and closes its descriptor.
func (e entries) read(fd int, at string) error {
	f := os.NewFile(uintptr(fd), at)
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			continue // gone by now
		}
		rel := path.Join(at, name)
		now := entry{ino: st.Ino, kind: st.Mode & unix.S_IFMT}
		switch now.kind {
		case unix.S_IFREG:
			now.text = content(fd, name)
		case unix.S_IFLNK:
			buf := make([]byte, 8192)
			n, _ := unix.Readlinkat(fd, name, buf)
			now.text = string(buf[:max(n, 0)])
		case unix.S_IFDIR:
			if below, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
				if err := e.read(below, rel); err != nil {
					return err
				}
			}
		}
		e[rel] = now
	}
	return nil
}

// content is a hash of a file's.
func content(dir int, name string) string {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err.Error()
	}
	f := os.NewFile(uintptr(fd), name)
	defer func() { _ = f.Close() }()
	buf := make([]byte, 1<<16)
	n, _ := f.Read(buf)
	return fmt.Sprintf("%x", sha256.Sum256(buf[:max(n, 0)]))
}

// fold is what a name is to a person, and to a volume without case.
func fold(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cf, unicode.Variation_Selector) || r == 0x34f {
			return -1
		}
		return r
	}, norm.NFKC.String(strings.ToValidUTF8(name, "\ufffd")))
	return norm.NFKC.String(cases.Fold().String(name))
}

// forbidden reports whether a path has a name in it that nobody may make. It is written
// without the rules' own code.
func forbidden(rel string) bool {
	packaged := false
	parts := strings.Split(rel, "/")
	for i, part := range parts {
		name := fold(part)
		if name == ".env" || strings.HasPrefix(name, ".env.") {
			return true
		}
		if slices.ContainsFunc([]string{".key", ".pem", ".p12", ".pfx"}, func(end string) bool { return strings.HasSuffix(name, end) }) {
			return true
		}
		if part == "node_modules" {
			packaged = true
		}
		if packaged {
			continue
		}
		if slices.Contains([]string{".bashrc", ".gitconfig", ".npmrc", ".vscode", ".ssh"}, name) {
			return true
		}
		if name != ".git" || i+1 == len(parts) {
			continue
		}
		below := make([]string, 0, len(parts))
		for _, p := range parts[i+1:] {
			below = append(below, fold(p))
		}
		if slices.Contains([]string{"hooks", "config.worktree", "commondir"}, below[0]) || below[0] == "config" && i == 0 {
			return true // git makes the configuration of new ones
		}
		if below[0] == "modules" && len(below) > 2 && (slices.Contains(below[1:], "hooks") || slices.Contains(below[1:], "config")) {
			return true
		}
	}
	return false
}

// harm says what differs that must not.
func harm(before, after entries, bad func(string) bool, trapped bool) []string {
	var out []string
	say := func(rel, what string) { out = append(out, rel+" "+what) }
	for rel, now := range after {
		was, old := before[rel]
		switch {
		case bad(rel) && !old:
			say(rel, "was made")
		case bad(rel) && was != now && (now.kind != unix.S_IFDIR || was.kind != now.kind):
			say(rel, "was changed")
		case isGit(rel) && now.kind != unix.S_IFDIR:
			say(rel, "is no folder")
		}
	}
	for rel, was := range before {
		if trapped && bad(rel) && after[rel].ino != was.ino {
			say(rel, "was removed")
		}
		for at, now := range after {
			if at == rel || before[at] == now || !same(was, now) || was.kind == unix.S_IFDIR && !before.moved(rel, after, at) {
				continue
			}
			switch {
			case bad(rel) && !bad(at):
				say(rel, "is at "+at)
			case isGit(rel) != isGit(at):
				say(rel, "was moved to "+at)
			}
		}
	}
	sort.Strings(out)
	return out
}

// isGit reports whether a path is a repository's git directory, which is on the way to
// forbidden names.
func isGit(rel string) bool { return fold(path.Base(rel)) == ".git" }

// same reports whether two entries are one file. The number of one that was removed is
// soon another's.
func same(a, b entry) bool { return a.ino == b.ino && a.kind == b.kind && a.text == b.text }

// moved reports whether a folder that was at rel is at another path, which what is in it
// says.
func (e entries) moved(rel string, after entries, at string) bool {
	for inner, was := range e {
		if rest, ok := strings.CutPrefix(inner, rel+"/"); ok && was.kind == unix.S_IFREG && same(was, after[at+"/"+rest]) {
			return true
		}
	}
	return false
}

// The oracle sees what it is for.
func TestOracle(t *testing.T) {
	for rel, want := range map[string]bool{
		".env": true, "a/.ENV": true, ".env.local": true, ".envx": false, "x.key": true, "x.keys": false, "a.pem/b": true,
		"\uff0eenv": true, "server.\u212aey": true, ".e\u200dnv": true, ".git/hooks/x": true, ".git/hookx": false, ".git": false,
		".git/modules/a/b/config": true, "x/.bashrc": true, "node_modules/x/.bashrc": false, "node_modules/x/.env": true,
	} {
		if forbidden(rel) != want {
			t.Errorf("forbidden(%q) = %t", rel, !want)
		}
	}
	dir, file := uint32(unix.S_IFDIR), uint32(unix.S_IFREG)
	before := entries{
		".git": {1, dir, ""}, ".git/config": {2, file, "a"}, "x.pem": {3, file, "s"}, "p": {5, file, "p"},
		"evil": {4, dir, ""}, "evil/HEAD": {6, file, "h"}, "empty": {7, dir, ""},
	}
	for name, tc := range map[string]struct {
		change func(e entries)
		want   int
	}{
		"nothing":          {func(entries) {}, 0},
		"made":             {func(e entries) { e[".env"] = entry{9, file, ""} }, 1},
		"removed":          {func(e entries) { delete(e, "x.pem") }, 0},
		"written":          {func(e entries) { e["x.pem"] = entry{3, file, "t"} }, 1},
		"replaced":         {func(e entries) { e["x.pem"] = entry{9, file, "s"} }, 1},
		"linked":           {func(e entries) { e["q"] = e["x.pem"] }, 1},
		"moved":            {func(e entries) { e["q"] = e["x.pem"]; delete(e, "x.pem") }, 1},
		"number used anew": {func(e entries) { e["q"] = entry{3, file, "other"}; delete(e, "x.pem") }, 0},
		"folder moved": {func(e entries) {
			e["g"], e["g/config"] = e[".git"], e[".git/config"]
			delete(e, ".git")
			delete(e, ".git/config")
		}, 2},
		"folder replaced": {func(e entries) { e[".git"], e[".git/HEAD"] = e["evil"], e["evil/HEAD"]; delete(e, "evil") }, 1},
		"parent moved":    {func(e entries) { e["b/x.pem"] = e["x.pem"]; delete(e, "x.pem") }, 1},
		"folder a file":   {func(e entries) { e[".git"] = entry{9, file, ""} }, 1},
		"link for folder": {func(e entries) { e["sub/.git"] = entry{9, unix.S_IFLNK, "evil"} }, 1},
		"made anew":       {func(e entries) { e[".git"] = entry{9, dir, ""} }, 0},
	} {
		after := maps.Clone(before)
		tc.change(after)
		if got := harm(before, after, forbidden, false); len(got) != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
