package nameguard

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// These are numbers of descriptors that a program in a box does not have, and the broker has
// for directories it knows.
const firstStranger, lastStranger = 20, 120

func init() {
	// The way "l/" from a descriptor, or from the working directory, is known. Then the same
	// way starts where links are made without asking, and l leads to what the broker would
	// find under its own number, on its own way.
	enemies["astray"] = func(args []string) error {
		runtime.LockOSThread()
		if err := errors.Join(os.MkdirAll("a/l", 0o755), os.Mkdir("/tmp/e", 0o755)); err != nil {
			return err
		}
		good, err := unix.Open(inside+"/a", unix.O_PATH, 0)
		if err != nil {
			return err
		}
		free, err := unix.Open("/tmp/e", unix.O_PATH, 0)
		if err != nil {
			return err
		}
		start, turn := unix.AT_FDCWD, unix.Fchdir
		if args[0] == "fd" {
			if start, err = unix.Dup(good); err != nil {
				return err
			}
			turn = func(fd int) error { return unix.Dup3(fd, start, 0) }
		}
		for n := firstStranger; n < lastStranger; n++ {
			if err := errors.Join(os.Symlink("/proc/self/fd/"+strconv.Itoa(n), "/tmp/e/l"), turn(good)); err != nil {
				return err
			}
			for i := range 12 {
				if err := made(unix.Openat(start, "l/f"+strconv.Itoa(i), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)); err != nil {
					return err
				}
			}
			if err := turn(free); err != nil {
				return err
			}
			if err := made(unix.Openat(start, "l/astray", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)); !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("by way of %d it does not end in ENOENT (%w)", n, err)
			}
			if err := os.Remove("/tmp/e/l"); err != nil {
				return err
			}
		}
		return nil
	}
	// A link of a symlink, by its name and by a descriptor of it.
	enemies["links"] = func([]string) error {
		if err := os.Symlink("x", "s"); err != nil {
			return err
		}
		fd, err := unix.Open("s", unix.O_PATH|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		return errors.Join(
			unix.Linkat(unix.AT_FDCWD, "s", unix.AT_FDCWD, "byname", 0),
			unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, "byfd", unix.AT_SYMLINK_FOLLOW),
		)
	}
}

// The broker never goes where a link of the sandbox leads on the host, not even to look.
func TestKnownWaysAreNotOurs(t *testing.T) {
	for _, start := range []string{"fd", "cwd"} {
		t.Run(start, func(t *testing.T) {
			b := newBox(t)
			if o := b.do("astray", start); o.err != nil || o.out != "" || b.has("a/l/astray") {
				t.Errorf("%q (%v), made: %v", o.out, o.err, b.has("a/l/astray"))
			}
		})
	}
}

// Whatever brings a symlink to a name makes worthless what is known.
func TestLinksOfSymlinksAreNoted(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	var broker *Broker
	b.started = func(served *Broker, _ *exec.Cmd) { broker = served }
	if o := b.do("links"); o.err != nil || o.out != "" {
		t.Fatalf("%q (%v)", o.out, o.err)
	}
	var made []string
	for _, name := range []string{"s", "byname", "byfd"} {
		if to, err := os.Readlink(filepath.Join(b.dir, name)); err == nil && to == "x" {
			made = append(made, name)
		}
	}
	if n := broker.moved.Load(); n != uint64(len(made)) || len(made) < 2 {
		t.Errorf("%d were noted, of %s", n, strings.Join(made, ", "))
	}
}
