package nameguard

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// chooser draws what a random program does.
type chooser struct{ *rand.Rand }

func one[T any](c *chooser, from ...T) T { return from[c.IntN(len(from))] }

// path draws a path of a small world, in one of the forms that paths have.
func (c *chooser) path() string {
	name := one(c, "a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "l", "m", "l/a", "m/b", "loop", "loop/x", "none/x", "a/x", "d/../a", "./b", "d/.", "d/..", ".", "..", "", "/", "/w/a", "/w/d/b", "//w//c", "/tmp/t", "/tmp/d/t", "/tmp/l/a", "/proc/self/cwd/a", "/proc/self/cwd/d/b", "/dev/null", "/home/u/h", "/home/u/p/a", "/home/u/d/x", "tl", "hl", "/usr/x", "/none")
	switch c.IntN(12) {
	case 0:
		return name + "/"
	case 1:
		return "d/../" + strings.TrimPrefix(name, "/")
	case 2:
		return name + "/."
	default:
		return name
	}
}

// step makes one call and says how it went.
func (c *chooser) step(dir int) string {
	at := one(c, unix.AT_FDCWD, unix.AT_FDCWD, dir)
	p, q := c.path(), c.path()
	switch c.IntN(16) {
	case 0, 1, 2, 3:
		flags := one(c, unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR, 3)
		for _, f := range []int{unix.O_CREAT, unix.O_EXCL, unix.O_TRUNC, unix.O_APPEND, unix.O_NOFOLLOW, unix.O_DIRECTORY, unix.O_CLOEXEC, unix.O_NONBLOCK} {
			if c.IntN(3) == 0 {
				flags |= f
			}
		}
		if flags&unix.O_CREAT != 0 {
			flags &^= unix.O_DIRECTORY
		}
		var st unix.Stat_t
		if unix.Fstatat(at, p, &st, 0) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
			flags |= unix.O_NONBLOCK // nobody has the other end
		}
		mode := one[uint32](c, 0o644, 0o600, 0o755, 0o4711, 0)
		fd, err := unix.Openat(at, p, flags, mode)
		text := fmt.Sprintf("open %d %q %#x %o: %s", min(at, 0), p, flags, mode, errName(err))
		if err == nil {
			got, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			onExec, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			n, werr := unix.Write(fd, []byte(strconv.Itoa(c.IntN(100))))
			text += fmt.Sprintf(" %#x %d %d %s", got, onExec, n, errName(werr))
			_ = unix.Close(fd)
		}
		return text
	case 4:
		return fmt.Sprintf("mkdir %q: %s", p, errName(unix.Mkdirat(at, p, one[uint32](c, 0o755, 0o700, 0o1777))))
	case 5:
		return fmt.Sprintf("symlink %q %q: %s", p, q, errName(unix.Symlinkat(p, at, q)))
	case 6:
		flags := one(c, 0, 0, unix.AT_SYMLINK_FOLLOW, 1)
		return fmt.Sprintf("link %q %q %#x: %s", p, q, flags, errName(unix.Linkat(at, p, unix.AT_FDCWD, q, flags)))
	case 7, 8, 9:
		if strings.Contains(p+q, "/usr") {
			return "" // nothing can be written there, and which of two errors it is differs
		}
		flags := one[uint](c, 0, 0, unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE, unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE, 0x80)
		return fmt.Sprintf("rename %q %q %#x: %s", p, q, flags, errName(unix.Renameat2(at, p, unix.AT_FDCWD, q, flags)))
	case 10:
		return fmt.Sprintf("unlink %q: %s", p, errName(unix.Unlinkat(at, p, one(c, 0, unix.AT_REMOVEDIR, 1))))
	case 11:
		size := one[int64](c, 0, 3, 100, -1)
		return fmt.Sprintf("truncate %q %d: %s", p, size, errName(unix.Truncate(p, size)))
	case 12:
		mode := one[uint32](c, unix.S_IFREG|0o644, 0o644, unix.S_IFIFO|0o600, unix.S_IFSOCK|0o600, unix.S_IFDIR|0o755)
		return fmt.Sprintf("mknod %q %#o: %s", p, mode, errName(unix.Mknodat(at, p, mode, 0)))
	case 13:
		fd, err := unix.Open(p, unix.O_TMPFILE|unix.O_RDWR, 0o640)
		text := fmt.Sprintf("tmpfile %q: %s", p, errName(err))
		if err == nil {
			text += " " + errName(unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, q, unix.AT_SYMLINK_FOLLOW))
			_ = unix.Close(fd)
		}
		return text
	case 14:
		return fmt.Sprintf("umask %o", unix.Umask(one(c, 0o22, 0o27, 0o77, 0)))
	default:
		var st unix.Stat_t
		if unix.Fstatat(at, p, &st, 0) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR {
			return "" // the host's own
		}
		return fmt.Sprintf("chmod %q: %s", p, errName(unix.Fchmodat(at, p, one[uint32](c, 0o755, 0o711, 0o700), 0)))
	}
}

func init() {
	enemies["random"] = func(args []string) error {
		seed, err := strconv.ParseUint(args[0], 10, 64)
		if err != nil {
			return err
		}
		c := &chooser{rand.New(rand.NewPCG(seed, 1))}
		for _, d := range []string{"d", "d/e", "/tmp/d", home + "/d"} {
			_ = os.Mkdir(d, 0o755)
		}
		for from, to := range map[string]string{"l": "d", "m": "/w/d", "loop": "loop", "/tmp/l": "/w", "tl": "/tmp/t", "hl": home + "/h"} {
			_ = os.Symlink(to, from)
		}
		dir, err := unix.Open("d", unix.O_PATH, 0)
		if err != nil {
			return err
		}
		for range 400 {
			fmt.Println(c.step(dir))
		}
		for _, root := range []string{".", "/tmp", home} {
			fmt.Println(strings.Join(listing(root), "\n"))
		}
		return nil
	}
}

// listing is all of a tree: names, types, rights, links and content.
func listing(root string) (out []string) {
	_ = filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what cannot be read is not compared
		}
		line := path + " " + info.Mode().String()
		if to, err := os.Readlink(path); err == nil {
			line += " " + to
		}
		if info.Mode().IsRegular() {
			data, _ := os.ReadFile(path)
			line += fmt.Sprintf(" %q", data)
		}
		out = append(out, line)
		return nil
	})
	sort.Strings(out)
	return out
}

// alike is a line without which error it was that kept a link from being made: of several
// reasons the kernel may find another first.
func alike(line string) string {
	what, how, _ := strings.Cut(line, ": ")
	if op, _, _ := strings.Cut(what, " "); op != "link" && op != "tmpfile" {
		return line
	}
	words := strings.Fields(how)
	for i := range words {
		if words[i] != "done" {
			words[i] = "fails"
		}
	}
	return what + strings.Join(words, " ")
}

// A random program with no name that a rule is about does the same, with the same errors,
// whether names are guarded or not.
func TestAlike(t *testing.T) {
	for seed := range 30 {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			var said [2][]string
			for i, plain := range []bool{true, false} {
				b := newBox(t)
				b.plain = plain
				o := b.do("random", strconv.Itoa(seed))
				if o.err != nil || o.code != 0 {
					t.Fatalf("%v: %s", o.err, o.out)
				}
				said[i] = strings.Split(o.out, "\n")
			}
			for i := range min(len(said[0]), len(said[1])) {
				if alike(said[0][i]) != alike(said[1][i]) {
					t.Fatalf("line %d: %s, and without a guard %s", i, said[1][i], said[0][i])
				}
			}
			if len(said[0]) != len(said[1]) {
				t.Errorf("%d lines, and without a guard %d", len(said[1]), len(said[0]))
			}
		})
	}
}
