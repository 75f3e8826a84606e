package namework

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// read says of each entry below root what it is: type, mode and owner, where a link leads, the
// hash of what a file holds, and which entries are one file. Of those that aside matches it
// is said that they are there, and what their mode is.
func read(t *testing.T, root string, aside *regexp.Regexp) map[string]string {
	t.Helper()
	seen := map[string]string{}
	first := map[uint64]string{} // the first name of an inode that has more
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: no status", path)
		}
		rel := strings.TrimPrefix(path, root)
		what := fmt.Sprintf("%s %d:%d", info.Mode(), st.Uid, st.Gid)
		switch {
		case d.IsDir():
		case st.Nlink > 1 && first[st.Ino] != "":
			what += " is " + first[st.Ino]
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			what += " to " + to
		case info.Mode().IsRegular() && (aside == nil || !aside.MatchString(rel)):
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what += fmt.Sprintf(" %d %x", len(data), sha256.Sum256(data))
		}
		if st.Nlink > 1 && first[st.Ino] == "" {
			first[st.Ino] = rel
		}
		seen[rel] = what
		return nil
	})
	if err != nil {
		t.Fatalf("read what is in %s: %v", root, err)
	}
	return seen
}

// differences are the entries of which two readings say not the same.
func differences(out, in map[string]string) (diff []string) {
	all := maps.Clone(out)
	maps.Copy(all, in)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if out[path] != in[path] {
			diff = append(diff, fmt.Sprintf("%s: outside %q, inside %q", path, out[path], in[path]))
		}
	}
	return diff
}

// What is compared tells apart what must not be taken for the same.
func TestDifferences(t *testing.T) {
	build := func(change func(dir string) error) map[string]string {
		dir := t.TempDir()
		for _, err := range []error{
			os.WriteFile(dir+"/a", []byte("a"), 0o600), os.WriteFile(dir+"/b", []byte("a"), 0o600),
			os.Link(dir+"/a", dir+"/c"), os.Symlink("a", dir+"/l"), change(dir),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		return read(t, dir, regexp.MustCompile(`^/x$`))
	}
	plain := build(func(string) error { return nil })
	for name, change := range map[string]func(dir string) error{
		"content": func(dir string) error { return os.WriteFile(dir+"/b", []byte("b"), 0o600) },
		"mode":    func(dir string) error { return os.Chmod(dir+"/b", 0o640) },
		"more":    func(dir string) error { return os.Mkdir(dir+"/d", 0o700) },
		"less":    func(dir string) error { return os.Remove(dir + "/b") },
		"link":    func(dir string) error { return relink(os.Symlink, "b", dir+"/l") },
		"inode":   func(dir string) error { return relink(os.Link, dir+"/b", dir+"/c") },
	} {
		if diff := differences(plain, build(change)); len(diff) == 0 {
			t.Errorf("%s: no difference is seen", name)
		}
	}
	aside := build(func(dir string) error { return os.WriteFile(dir+"/x", []byte("1"), 0o600) })
	again := build(func(dir string) error { return os.WriteFile(dir+"/x", []byte("2"), 0o600) })
	if diff := differences(aside, again); len(diff) != 0 {
		t.Errorf("what was put aside is compared: %q", diff)
	}
}

func relink(link func(from, to string) error, from, to string) error {
	if err := os.Remove(to); err != nil {
		return err
	}
	return link(from, to)
}
