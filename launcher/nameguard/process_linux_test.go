package nameguard

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	// What lies behind the magic links of others is not ours to find, and what has the same
	// name on this side of them is another file.
	enemies["cut"] = func([]string) error {
		cmd := exec.Command("/usr/bin/sleep", "60")
		if err := cmd.Start(); err != nil {
			return err
		}
		defer func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}()
		other := fmt.Sprintf("/proc/%d", cmd.Process.Pid)
		for _, path := range []string{
			other + "/cwd/comm", other + "/cwd/mem", other + "/root/exe", other + "/root/cwd", other + "/cwd/none",
			"/proc/self/task/1/cwd/mounts", "/proc/self/task/1/cwd/stat", "/proc/self/comm",
		} {
			for _, link := range []string{"l", "/tmp/l"} {
				if err := os.Symlink(path, link); err != nil {
					return err
				}
				for _, at := range []string{path, link} {
					if err := unix.Truncate(at, 1); !errors.Is(err, unix.EACCES) {
						fmt.Printf("truncate %s to %s: %v\n", at, path, err)
					}
				}
				if err := made(unix.Open(link, unix.O_RDONLY|unix.O_TRUNC, 0)); !errors.Is(err, unix.EACCES) {
					fmt.Printf("open %s to %s: %v\n", link, path, err)
				}
				if err := os.Remove(link); err != nil {
					return err
				}
			}
		}
		return nil
	}
	enemies["apart"] = func([]string) error {
		fd, err := unix.Open("process", unix.O_CREAT|unix.O_RDWR, 0o644)
		if err != nil {
			return err
		}
		if err := os.Mkdir("d", 0o755); err != nil {
			return err
		}
		write := func(path, text string) error {
			fd, err := unix.Open(path, unix.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = unix.Write(fd, []byte(text))
			return err
		}
		var failed error
		OnOwnThread(func() {
			if failed = errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_FILES), unix.Chdir("d")); failed != nil {
				return
			}
			own, err := unix.Open("../thread", unix.O_CREAT|unix.O_RDWR, 0o644)
			failed = errors.Join(
				err, unix.Dup3(own, fd, 0),
				made(unix.Creat("/proc/self/cwd/self", 0o644)),
				made(unix.Creat(fmt.Sprintf("/proc/%d/cwd/number", os.Getpid()), 0o644)),
				made(unix.Creat("/proc/thread-self/cwd/thread-self", 0o644)),
				made(unix.Creat("plain", 0o644)),
				write(fmt.Sprintf("/proc/self/fd/%d", fd), "process"),
				write(fmt.Sprintf("/proc/thread-self/fd/%d", fd), "thread"),
			)
		})
		return failed
	}
	// Flags that the kernel does not know.
	enemies["flags"] = func([]string) error {
		if err := os.WriteFile("a", nil, 0o644); err != nil {
			return err
		}
		for bit := range 64 {
			for _, resolve := range []uint64{0, unix.RESOLVE_BENEATH} {
				flags := unix.O_WRONLY | uint64(1)<<bit
				if flags&(unix.O_PATH|unix.O_CREAT|tmpfileBit) != 0 {
					continue
				}
				fmt.Printf("%#x %d: %v\n", flags, resolve, made(unix.Openat2(unix.AT_FDCWD, "a", &unix.OpenHow{Flags: flags, Resolve: resolve})))
			}
		}
		return nil
	}
}

func TestTruncateBehindMagicLinks(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	if o := b.do("cut"); o.err != nil || o.out != "" {
		t.Errorf("%q (%v)", o.out, o.err)
	}
}

// openat2 refuses what it does not know, whoever does it.
func TestUnknownFlags(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.plain = true
	want := b.do("flags")
	b = newBox(t)
	got := b.do("flags")
	lines, wanted := strings.Split(got.out, "\n"), strings.Split(want.out, "\n")
	if got.err != nil || len(lines) != len(wanted) || len(lines) < 100 {
		t.Fatalf("%s (%v), and without a guard %s", got.out, got.err, want.out)
	}
	for i := range lines {
		if lines[i] != wanted[i] {
			t.Errorf("%s, and without a guard %s", lines[i], wanted[i])
		}
	}
}

// A file that had a denied name when it was opened for reading is not written by the
// descriptor when that name is gone, nor given another: it may have one more.
func TestRemovedNamesStayDenied(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.write(".env", "secret\n")
	b.write("x/y", "")
	must(t, os.Link(b.dir+"/.env", b.dir+"/x/.env"))
	o := b.sh("exec 5<.env; rm .env; echo bad > /dev/fd/5; ln -L /proc/self/fd/5 mine; cat x/.env")
	if o.err != nil || !strings.HasSuffix(o.out, "\nsecret\n") || strings.Count(o.out, "Permission denied") != 2 || b.has("mine") {
		t.Errorf("%q (%v), a link was made: %v", o.out, o.err, b.has("mine"))
	}
	if want := "file-write-data /w/.env **/.env"; o.told() != want+"\n"+want {
		t.Errorf("refused %q", o.told())
	}
}

// A thread with a working directory and descriptors of its own still finds those of its
// process where it asks for them.
func TestThreadsOfTheirOwn(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	if o := b.do("apart"); o.err != nil || o.out != "" {
		t.Errorf("%q (%v)", o.out, o.err)
	}
	for _, name := range []string{"self", "number", "d/thread-self", "d/plain"} {
		if !b.has(name) {
			t.Errorf("%s was not made", name)
		}
	}
	for name, want := range map[string]string{"process": "process", "thread": "thread"} {
		if got, err := os.ReadFile(b.dir + "/" + name); err != nil || string(got) != want {
			t.Errorf("%s: %q (%v)", name, got, err)
		}
	}
}
