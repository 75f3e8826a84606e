package nameattacks

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Forms of a path that lead to the same place.
var forms = []attack{
	{group: "forms", name: "dangling link", run: func() error { return throughLink(".env") }},
	{group: "forms", name: "absolute link", run: func() error { return throughLink(inside + "/folder/../.git/hooks/pre-commit") }},
	{group: "forms", name: "link to a link", run: func() error { return chain(39) }},
	{group: "forms", name: "too many links", native: "forty links are too many", run: func() error { return chain(45) }},
	{group: "forms", name: "link in the middle", run: func() error {
		if err := os.Symlink("../.git/hooks", "folder/l"); err != nil {
			return err
		}
		return spill(unix.Creat("folder/l/pre-commit", 0o755))
	}},
	{group: "forms", name: "link with a slash", native: "a link with a slash is no place for a new entry", run: func() error {
		if err := os.Symlink("x.key", "l"); err != nil {
			return err
		}
		return unix.Mkdir("l/", 0o755)
	}},
	{group: "forms", name: "dots and slashes", run: func() error { return spill(unix.Creat("//w/./folder/..//../w/.//.env", 0o644)) }},
	{group: "forms", name: "through cwd", run: func() error { return spill(unix.Creat("/proc/self/cwd/.env", 0o644)) }},
	{group: "forms", name: "through root", run: func() error { return spill(unix.Creat("/proc/thread-self/root/w/.env", 0o644)) }},
	{group: "forms", name: "through the own number", run: func() error { return spill(unix.Creat(fmt.Sprintf("/proc/%d/cwd/.env", os.Getpid()), 0o644)) }},
	{group: "forms", name: "through a thread", quiet: true, run: func() error {
		return spill(unix.Creat(fmt.Sprintf("/proc/self/task/%d/cwd/.env", unix.Gettid()), 0o644))
	}},
	{group: "forms", name: "through the parent", quiet: true, run: func() error { return spill(unix.Creat(fmt.Sprintf("/proc/%d/cwd/.env", os.Getppid()), 0o644)) }},
	{group: "forms", name: "through the parent's root", quiet: true, run: func() error {
		return unix.Mkdir(fmt.Sprintf("/proc/%d/root/w/.env", os.Getppid()), 0o755)
	}},
	{group: "forms", name: "through the first process", quiet: true, run: func() error { return spill(unix.Creat("/proc/1/root/w/.env", 0o644)) }},
	{group: "forms", name: "through a descriptor", run: func() error {
		return with("folder", func(fd int) error { return spill(unix.Creat(ofFD(fd)+"/../.env", 0o644)) })
	}},
	{group: "forms", name: "through dev fd", run: func() error {
		return with(".git/hooks", func(fd int) error { return spill(unix.Creat(fmt.Sprintf("/dev/fd/%d/pre-commit", fd), 0o755)) })
	}},
	{group: "forms", name: "through cwd of cwd", run: func() error { return unix.Rename("/proc/self/cwd/plain", "/proc/self/root/proc/self/cwd/.env") }},
	{group: "forms", name: "through the second mount", run: func() error { return spill(unix.Creat(again+"/.env", 0o644)) }},
	{group: "forms", name: "into the private tree", run: func() error { return spill(unix.Creat(project+"/x.key", 0o644)) }},
	{group: "forms", name: "from the private tree", run: func() error {
		if err := os.WriteFile(home+"/.env", []byte("evil\n"), 0o600); err != nil {
			return err
		}
		if err := os.Symlink(inside+"/x.pem", home+"/l"); err != nil {
			return err
		}
		_ = unix.Rename(home+"/.env", inside+"/.env")
		_ = unix.Link(home+"/.env", inside+"/.env")
		return spill(unix.Creat(home+"/l", 0o644))
	}},
	{group: "forms", name: "through tmp", run: func() error {
		if err := os.Symlink(inside+"/.env", "/tmp/l"); err != nil {
			return err
		}
		if err := os.Symlink(inside, "/tmp/w"); err != nil {
			return err
		}
		_ = unix.Rename("/tmp/w/plain", "/tmp/w/x.key")
		return spill(unix.Open("/tmp/l", unix.O_CREAT|unix.O_WRONLY, 0o644))
	}},
	{group: "forms", name: "as long as paths can be", run: func() error {
		const longest = 4095
		name := "/.env"
		return spill(unix.Creat("."+strings.Repeat("/", longest-1-len(name))+name, 0o644))
	}},
	{group: "forms", name: "too long", native: "a path has 4,095 bytes at most", run: func() error {
		return spill(unix.Creat("."+strings.Repeat("/", 4100)+".env", 0o644))
	}},
	{group: "forms", name: "deeper than paths can be", quiet: true, run: deepest},
	{group: "forms", name: "at the edge of a page", run: func() error {
		mem := pages(2)
		size := unix.Getpagesize()
		if err := unix.Mprotect(mem[size:], unix.PROT_NONE); err != nil {
			return err
		}
		at := size - len(".env") - 1
		copy(mem[at:], ".env")
		_, err := raw(unix.SYS_OPENAT, ptrHere, ptr(&mem[at]), unix.O_CREAT|unix.O_WRONLY, 0o644)
		return err
	}},
	{group: "forms", name: "over the edge of a page", run: func() error {
		mem := pages(2)
		at := unix.Getpagesize() - 2
		copy(mem[at:], ".env")
		_, err := raw(unix.SYS_OPENAT, ptrHere, ptr(&mem[at]), unix.O_CREAT|unix.O_WRONLY, 0o644)
		return err
	}},
	{group: "forms", name: "no memory", native: "a path must be in memory", run: func() error {
		mem := pages(2)
		size := unix.Getpagesize()
		copy(mem[size-4:], ".env")
		if err := unix.Munmap(mem[:2*size]); err != nil {
			return err
		}
		for _, at := range []uintptr{0, 1, ptr(&mem[size-4]), 0xffffffff81000000, ^uintptr(0), ^uintptr(3)} {
			if _, err := raw(unix.SYS_OPENAT, ptrHere, at, unix.O_CREAT|unix.O_WRONLY, 0o644); !errors.Is(err, unix.EFAULT) {
				return fmt.Errorf("%s%#x: %w", brokenMark, at, err)
			}
		}
		return nil
	}},
	{group: "forms", name: "working directory that is gone", native: "nothing is made in a folder that was removed", run: func() error {
		if err := unix.Mkdir("gone", 0o755); err != nil {
			return err
		}
		if err := unix.Chdir("gone"); err != nil {
			return err
		}
		if err := unix.Rmdir(inside + "/gone"); err != nil {
			return err
		}
		return spill(unix.Creat(".env", 0o644))
	}},
}

// throughLink writes through a new link to a path.
func throughLink(target string) error {
	if err := os.Symlink(target, "l"); err != nil {
		return err
	}
	return spill(unix.Open("l", unix.O_CREAT|unix.O_WRONLY, 0o755))
}

// chain writes through n links.
func chain(n int) error {
	target := ".env"
	for i := range n {
		name := fmt.Sprintf("l%d", i)
		if err := os.Symlink(target, name); err != nil {
			return err
		}
		target = name
	}
	return spill(unix.Open(target, unix.O_CREAT|unix.O_WRONLY, 0o644))
}

// deepest makes folders until no path leads to the last, and a file there.
func deepest() error {
	name := strings.Repeat("d", 250)
	for range 20 {
		if err := unix.Mkdir(name, 0o755); err != nil {
			return err
		}
		if err := unix.Chdir(name); err != nil {
			return err
		}
	}
	return spill(unix.Creat(".env", 0o644))
}

// Names that are the same to a person, or on another volume.
var names = []attack{
	spelled("without case", ".ENV", "X.Key", ".Env.Local"),
	spelled("in compatibility form", "\uff0eenv", "server.\u212aey", "id.p\u1d49m", "\u2024env"),
	spelled("with a long s", ".\u017fsh", "x.\u212aEY"),
	spelled("with what nobody sees", ".e\u200dnv", ".env\ufe0f", "\u2060.env", "x.ke\u00ady"),
	spelled("with a line's end", ".env.\n", "\n.key", ".env.\x01"),
	spelled("as long as names can be", ".env."+strings.Repeat("a", 250), strings.Repeat("a", 251)+".key"),
	spelled("no Unicode", ".env.\xff\xfe", "\xc3\x28.key"),
	{group: "names", name: "of repositories without case", run: func() error {
		return sh("mkdir e; mkdir -p e/hooks; echo x > e/hooks/pre-commit; mv e folder/.GIT || mv e folder/.Git || ln -s ../e folder/.giT")
	}},
}

// spelled makes a file by each of the names.
func spelled(name string, names ...string) attack {
	return attack{group: "names", name: name, run: func() error {
		var errs []error
		for _, n := range names {
			errs = append(errs, spill(unix.Creat(n, 0o644)))
		}
		return errors.Join(errs...)
	}, check: func(t *testing.T, _ *bed, r result) {
		t.Helper()
		if n := strings.Count(r.Out, "permission denied"); n < len(names) {
			t.Errorf("%d of %d names were refused: %s", n, len(names), r)
		}
	}}
}
