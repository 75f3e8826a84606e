package nameguard

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Each of these makes files in a directory until every worker knows it, changes at once what
// its path leads to, and makes one more.
var changes = []struct {
	name   string
	change func(dir int) error
	last   string // the last file, as it is asked for; "fd" in front of it: from the descriptor of a/d
	want   error
	there  string // where it has to be
	told   string
}{
	{"nothing", nil, "a/d/x", nil, "a/d/x", ""},
	{"moved", func(int) error { return os.Rename("a", "b") }, "a/d/x", unix.ENOENT, "", ""},
	{"moved and made", func(int) error { return errors.Join(os.Rename("a", "b"), os.MkdirAll("a/d", 0o755)) }, "a/d/x", nil, "a/d/x", ""},
	{"exchanged", func(int) error {
		return errors.Join(os.MkdirAll("b/d", 0o755), unix.Renameat2(unix.AT_FDCWD, "a", unix.AT_FDCWD, "b", unix.RENAME_EXCHANGE), os.Remove("a/d"))
	}, "a/d/x", unix.ENOENT, "", ""},
	{"a symlink", func(int) error {
		return errors.Join(os.Rename("a", "b"), os.MkdirAll("c/d", 0o755), os.Symlink("c", "a"))
	}, "a/d/x", nil, "c/d/x", ""},
	{"a link of a symlink", func(int) error {
		return errors.Join(os.Rename("a", "b"), os.MkdirAll("c/d", 0o755), os.Symlink("c", "s"), unix.Linkat(unix.AT_FDCWD, "s", unix.AT_FDCWD, "a", 0))
	}, "a/d/x", nil, "c/d/x", ""},
	{"a symlink back", func(int) error { return errors.Join(os.Rename("a", "b"), os.Symlink("b", "a")) }, "a/d/x", nil, "b/d/x", ""},
	{"removed", func(int) error {
		return errors.Join(os.RemoveAll("a"), os.MkdirAll("a/d", 0o755))
	}, "a/d/x", nil, "a/d/x", ""},
	{"removed for ever", func(int) error { return os.RemoveAll("a") }, "fd x", unix.ENOENT, "", ""},
	{"a file", func(int) error { return errors.Join(os.RemoveAll("a"), os.WriteFile("a", nil, 0o644)) }, "a/d/x", unix.ENOTDIR, "", ""},
	{"gone elsewhere", func(int) error { return errors.Join(os.MkdirAll("e/a/d", 0o755), os.Chdir("e")) }, "a/d/x", nil, "e/a/d/x", ""},
	{"another descriptor", func(dir int) error {
		if err := os.Mkdir("f", 0o755); err != nil {
			return err
		}
		fd, err := unix.Open("f", unix.O_PATH, 0)
		return errors.Join(err, unix.Dup3(fd, dir, 0))
	}, "fd x", nil, "f/x", ""},
	{"closed", unix.Close, "fd x", unix.EBADF, "", ""},
	{"moved with a descriptor", func(int) error { return os.Rename("a", "b") }, "fd x", nil, "b/d/x", ""},
	{"no search in it", func(int) error { return os.Chmod("a/d", 0o600) }, "a/d/x", unix.EACCES, "", ""},
	{"no search in it by a descriptor", func(int) error { return os.Chmod("a/d", 0o600) }, "fd x", unix.EACCES, "", ""},
	{"no search on the way", func(int) error { return os.Chmod("a", 0o600) }, "a/d/x", unix.EACCES, "", ""},
	{"no search on the way to a descriptor", func(int) error { return os.Chmod("a", 0o600) }, "fd x", nil, "a/d/x", ""},
	{"no search where it starts", func(int) error { return os.Chmod(".", 0o600) }, "a/d/x", unix.EACCES, "", ""},
	{"no right to write", func(int) error { return os.Chmod("a/d", 0o500) }, "a/d/x", unix.EACCES, "", ""},
	{"a file for a descriptor", func(dir int) error {
		fd, err := unix.Open("i", unix.O_CREAT|unix.O_RDWR, 0o644)
		return errors.Join(err, unix.Dup3(fd, dir, 0))
	}, "fd x", unix.ENOTDIR, "", ""},
	{"told of where it is", func(int) error { return os.Rename("a", "b") }, "fd .env", unix.EACCES, "", "file-write-create /w/b/d/.env **/.env"},
	{"told of where it is after two", func(int) error {
		return errors.Join(os.Mkdir("b", 0o755), os.Rename("a", "b/a"), os.Rename("b/a/d", "b/d"))
	}, "fd .env", unix.EACCES, "", "file-write-create /w/b/d/.env **/.env"},
}

func init() {
	enemies["known"] = func(args []string) error {
		runtime.LockOSThread()
		i, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		c := changes[i]
		if err := os.MkdirAll("a/d", 0o755); err != nil {
			return err
		}
		dir, err := unix.Open("a/d", unix.O_PATH, 0)
		if err != nil {
			return err
		}
		for i := range 40 {
			if err := errors.Join(
				made(unix.Open(fmt.Sprintf("a/d/f%d", i), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)),
				made(unix.Open(fmt.Sprintf(inside+"/a/d/g%d", i), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)),
				made(unix.Openat(dir, fmt.Sprintf("h%d", i), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)),
			); err != nil {
				return err
			}
		}
		for i := range 40 {
			if err := errors.Join(os.Remove(fmt.Sprintf("a/d/f%d", i)), os.Remove(fmt.Sprintf("a/d/g%d", i)), os.Remove(fmt.Sprintf("a/d/h%d", i))); err != nil {
				return err
			}
		}
		if err := made(unix.Openat(dir, "i", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)); err != nil {
			return err
		}
		if c.change != nil {
			if err := c.change(dir); err != nil {
				return err
			}
		}
		defer func() { // so that they can be looked at, and removed
			for _, dir := range []string{"", "/a", "/a/d"} {
				_ = os.Chmod(inside+dir, 0o755)
			}
		}()
		paths := []string{c.last, inside + "/" + c.last}
		if name, ok := strings.CutPrefix(c.last, "fd "); ok {
			if err := made(unix.Openat(dir, name, unix.O_CREAT|unix.O_WRONLY, 0o644)); !errors.Is(err, c.want) {
				fmt.Printf("%v, want %v\n", err, c.want)
			}
			return nil
		}
		if c.name == "gone elsewhere" {
			paths = paths[:1]
		}
		for _, path := range paths {
			if err := made(unix.Open(path, unix.O_CREAT|unix.O_WRONLY, 0o644)); !errors.Is(err, c.want) {
				fmt.Printf("%s: %v, want %v\n", path, err, c.want)
			}
		}
		return nil
	}
}

// What a path led to a moment ago is not believed when it has changed.
func TestKnownPlacesChange(t *testing.T) {
	for i, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			o := b.do("known", strconv.Itoa(i))
			if o.err != nil || o.out != "" || o.told() != c.told {
				t.Errorf("%q (%v), refused %q, want %q", o.out, o.err, o.told(), c.told)
			}
			for _, at := range []string{"a/d/x", "b/d/x", "c/d/x", "e/a/d/x", "f/x"} {
				want := at == c.there || c.there == "b/d/x" && at == "a/d/x" && c.name == "a symlink back" || c.there == "c/d/x" && at == "a/d/x"
				if _, err := os.Stat(b.dir + "/" + at); (err == nil) != want {
					t.Errorf("%s is there: %v, want %v", at, err == nil, want)
				}
			}
		})
	}
}
