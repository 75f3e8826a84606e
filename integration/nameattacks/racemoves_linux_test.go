package nameattacks

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What a path leads to, changed on its way by the same process.
var pathRaces = []attack{
	{group: "races", name: "descriptor of a folder", raced: true, run: func() error {
		const n = 200
		dirs, err := openAll("/tmp", "folder", ".git/hooks", "/dev/shm")
		if err != nil {
			return err
		}
		step := func(int) { _ = shut(unix.Openat(n, "pre-commit", unix.O_CREAT|unix.O_WRONLY, 0o755)) }
		_ = unix.Dup2(dirs[2], n)
		step(0)
		return race(func(i int) { _ = unix.Dup2(dirs[i%len(dirs)], n) }, step)
	}},
	{group: "races", name: "working directory", raced: true, run: func() error {
		dirs := []string{"/tmp", inside + "/folder", inside + "/.git/hooks"}
		step := func(int) { _ = shut(unix.Open("pre-commit", unix.O_CREAT|unix.O_WRONLY, 0o755)) }
		_ = os.Chdir(dirs[2])
		step(0)
		return race(func(i int) { _ = unix.Chdir(dirs[i%len(dirs)]) }, step)
	}},
	{group: "races", name: "working directory through its link", raced: true, run: func() error {
		dirs := []string{"/tmp", inside + "/folder", inside + "/.git/hooks"}
		step := func(int) { _ = unix.Mkdir("/proc/self/cwd/d", 0o755); _ = unix.Rmdir("/tmp/d") }
		_ = os.Chdir(dirs[2])
		step(0)
		return race(func(i int) { _ = unix.Chdir(dirs[i%len(dirs)]) }, step)
	}},
	{group: "races", name: "descriptor opened again", raced: true, run: func() error {
		const n = 200
		files, err := openAll("plain", "old.pem", "/dev/null", "/proc/self/status")
		if err != nil {
			return err
		}
		step := func(int) { _ = shut(unix.Open(ofFD(n), unix.O_RDWR|unix.O_TRUNC, 0)) }
		_ = unix.Dup2(files[1], n)
		step(0)
		return race(func(i int) { _ = unix.Dup2(files[i%len(files)], n) }, step)
	}},
	{group: "races", name: "descriptor cut by reading again", raced: true, run: func() error {
		const n = 200
		var pipe [2]int
		if err := unix.Pipe(pipe[:]); err != nil {
			return err
		}
		files, err := openAll("plain", "old.pem", "/dev/null")
		if err != nil {
			return err
		}
		files = append(files, pipe[0])
		step := func(int) { _ = shut(unix.Open(ofFD(n), unix.O_TRUNC|unix.O_NONBLOCK, 0)) }
		_ = unix.Dup2(files[1], n)
		step(0)
		return race(func(i int) { _ = unix.Dup2(files[i%len(files)], n) }, step)
	}},
	{group: "races", name: "descriptor linked", raced: true, run: func() error {
		const n = 200
		files, err := openAll("plain", "old.pem")
		if err != nil {
			return err
		}
		step := func(i int) {
			_ = unix.Linkat(here, ofFD(n), here, "free", unix.AT_SYMLINK_FOLLOW)
			if i > 0 {
				_ = unix.Unlink("free")
			}
		}
		_ = unix.Dup2(files[1], n)
		_ = unix.Linkat(here, ofFD(n), here, "kept", unix.AT_SYMLINK_FOLLOW)
		return race(func(i int) { _ = unix.Dup2(files[i%len(files)], n) }, func(i int) {
			step(1 + i)
			if hasSecret("free") {
				_ = unix.Rename("free", "kept")
			}
		})
	}},
}

// hasSecret reports whether a file has the content of one that is forbidden.
func hasSecret(name string) bool {
	data, err := os.ReadFile(name)
	return err == nil && string(data) == "secret\n"
}

func openAll(paths ...string) ([]int, error) {
	var out []int
	for _, path := range paths {
		fd, err := unix.Open(path, unix.O_RDONLY, 0)
		if err != nil {
			return nil, err
		}
		out = append(out, fd)
	}
	return out, nil
}

// swap exchanges two entries, there and back. Where a guard does not let it, it renames
// over.
func swap(a, b string) func(int) {
	return func(int) { _ = unix.Renameat2(here, a, here, b, unix.RENAME_EXCHANGE) }
}

// Links on the way, exchanged while it is gone.
var linkRaces = []attack{
	linkRace("link to a folder", "folder", ".git/hooks", "l/pre-commit"),
	linkRace("link to a file", "plain", "x.pem", "l"),
	linkRace("link to a free folder", "/tmp", inside+"/.git/hooks", "l/pre-commit"),
	linkRace("link to a free file", "/tmp/f", inside+"/.env", "l"),
	linkRace("link into the process", "/proc/self/cwd", inside+"/.git/hooks", "l/new"),
	{group: "races", name: "free link to a file", raced: true, run: func() error {
		return errors.Join(os.Symlink("/tmp/f", "/tmp/one"), os.Symlink(inside+"/.env", "/tmp/two"), shut(unix.Open("/tmp/two", unix.O_CREAT|unix.O_WRONLY, 0o644)),
			race(swap("/tmp/one", "/tmp/two"), func(int) { _ = shut(unix.Open("/tmp/one", unix.O_CREAT|unix.O_WRONLY, 0o644)) }))
	}},
	{group: "races", name: "folder or link", raced: true, run: func() error {
		return errors.Join(os.Mkdir("one", 0o755), os.Symlink(".git/hooks", "two"), shut(unix.Creat("two/pre-commit", 0o755)),
			race(swap("one", "two"), func(int) { _ = shut(unix.Creat("one/pre-commit", 0o755)) }))
	}},
	{group: "races", name: "file or link", raced: true, run: func() error {
		return errors.Join(os.Symlink(".env", "two"), shut(unix.Creat("two", 0o644)),
			race(swap("second", "two"), func(int) { _ = shut(unix.Open("second", unix.O_CREAT|unix.O_WRONLY, 0o644)) }))
	}},
	{group: "races", name: "fifo or link", raced: true, run: func() error {
		// Whoever waits for the other end of a FIFO is tried again later.
		return errors.Join(unix.Mkfifo("one", 0o644), os.Symlink(".env", "two"), shut(unix.Creat("two", 0o644)),
			race(func(i int) {
				swap("one", "two")(i)
				if i%8 == 0 {
					_ = shut(unix.Open("one", unix.O_RDONLY|unix.O_NONBLOCK, 0))
					_ = shut(unix.Open("two", unix.O_RDONLY|unix.O_NONBLOCK, 0))
				}
			}, func(int) { _ = shut(unix.Open("one", unix.O_CREAT|unix.O_WRONLY|unix.O_NONBLOCK, 0o644)) }))
	}},
}

// linkRace writes by a path that goes through a link which leads to one place and the
// other.
func linkRace(name, one, other, path string) attack {
	return attack{group: "races", name: name, raced: true, run: func() error {
		return errors.Join(os.Symlink(one, "l"), os.Symlink(other, "m"), shut(unix.Open(strings.Replace(path, "l", "m", 1), unix.O_CREAT|unix.O_WRONLY, 0o755)),
			race(swap("l", "m"), func(int) { _ = shut(unix.Open(path, unix.O_CREAT|unix.O_WRONLY, 0o755)) }))
	}}
}

// Folders that are moved while a path goes through them.
var moveRaces = []attack{
	{group: "races", name: "folder with a link", raced: true, run: func() error {
		return errors.Join(os.MkdirAll("one/t", 0o755), os.Mkdir("two", 0o755), os.Symlink("../.git/hooks", "two/t"), shut(unix.Creat("two/t/pre-commit", 0o755)),
			race(swap("one", "two"), func(int) { _ = shut(unix.Creat("one/t/pre-commit", 0o755)) }))
	}},
	{group: "races", name: "out of the sandbox", raced: true, native: "the way up ends at the sandbox's root", run: func() error {
		return errors.Join(os.MkdirAll("s/1/2/3/4", 0o755), os.MkdirAll("t/4", 0o755),
			race(swap("s/1/2/3", "t"), func(int) {
				_ = shut(unix.Creat("s/1/2/3/4/../../../../../../outside/new", 0o644))
				_ = unix.Mkdir("s/1/2/3/4/../../../../../../../outside/d", 0o755)
			}, func(int) { _ = shut(unix.Creat("t/4/../../../outside/new", 0o644)) }))
	}},
	{group: "races", name: "file or folder among modules", raced: true, run: func() error {
		if err := first(makeEvil("evil"), func() error { return os.MkdirAll(".git/modules", 0o755) }, func() error { return os.WriteFile("one", nil, 0o644) }); err != nil {
			return err
		}
		_ = unix.Rename("evil", ".git/modules/m")
		return race(swap("one", "evil"), func(int) {
			_ = unix.Rename("one", ".git/modules/m")
			_ = unix.Rename(".git/modules/m", "one")
		})
	}},
	{group: "races", name: "file or link among modules", raced: true, prepare: func(_ *testing.T, b *bed) {
		b.forbid = func(rel string) bool { return strings.HasPrefix(rel, ".git/modules/link") }
	}, run: func() error {
		if err := first(makeEvil("evil"), func() error { return os.MkdirAll(".git/modules", 0o755) }, func() error { return os.WriteFile("one", nil, 0o644) }, func() error { return os.Symlink(inside+"/evil", "two") }); err != nil {
			return err
		}
		keep := func(at string) {
			if target, err := os.Readlink(at); err == nil {
				fmt.Println("a link to", target)
				_ = unix.Rename(at, ".git/modules/link")
			}
		}
		_ = unix.Rename("two", ".git/modules/m")
		keep(".git/modules/m")
		_ = os.Symlink(inside+"/evil", "two")
		return race(swap("one", "two"), func(int) {
			_ = unix.Rename("one", ".git/modules/m")
			keep(".git/modules/m")
			_ = unix.Rename(".git/modules/m", "one")
			_ = shut(unix.Open("one", unix.O_CREAT|unix.O_WRONLY, 0o644))
		})
	}},
	{group: "races", name: "folder that comes to packages while it leaves", run: throughPackages},
}

// throughPackages has a rename take long after it has looked where its source is. Meanwhile
// the source is moved to packages, filled there, and would leave them by that rename.
func throughPackages() error {
	if err := os.Mkdir("z", 0o755); err != nil {
		return err
	}
	// A link that takes eight hundred folders to lead nowhere.
	if err := os.Symlink(strings.Repeat("z/../", 800), "slow"); err != nil {
		return err
	}
	slow := strings.Repeat("slow/", 30)
	for i := range 5 {
		from, to := fmt.Sprintf("p%d", i), fmt.Sprintf("out%d", i)
		if err := os.MkdirAll(from+"/d", 0o755); err != nil {
			return err
		}
		dir, err := unix.Open(from, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		var both sync.WaitGroup
		both.Go(func() {
			if err := unix.Renameat(dir, "d", here, slow+to); err != nil {
				fmt.Println("it did not leave:", err)
			}
		})
		time.Sleep(time.Duration(2+4*i) * time.Millisecond)
		if err := unix.Rename(from, "node_modules/"+from); err != nil {
			fmt.Println("it did not come:", err)
		}
		_ = spill(unix.Openat(dir, "d/.bashrc", unix.O_CREAT|unix.O_WRONLY, 0o644))
		both.Wait()
		_ = spill(unix.Creat(to+"/.bashrc", 0o644)) // where nothing guards it
	}
	return nil
}
