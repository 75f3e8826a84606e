package nameattacks

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// here is the directory that relative paths start at.
const here = unix.AT_FDCWD

// shut closes what was opened, and passes the error on.
func shut(fd int, err error) error {
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// spill writes into what was opened, and closes it.
func spill(fd int, err error) error {
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	_, err = unix.Write(fd, []byte("evil\n"))
	return err
}

// with opens a path for reading and passes it on.
func with(path string, do func(fd int) error) error {
	fd, err := unix.Open(path, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return do(fd)
}

// ofFD is the path of an own descriptor.
func ofFD(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// Direct calls: each form in which an entry is made.
var direct = []attack{
	{group: "direct", name: "creat", run: func() error { return spill(unix.Creat(".env", 0o644)) }},
	{group: "direct", name: "open to write", run: func() error { return spill(unix.Open("x.key", unix.O_CREAT|unix.O_WRONLY, 0o644)) }},
	{group: "direct", name: "open to read", run: func() error { return shut(unix.Open("x.key", unix.O_CREAT, 0o644)) }},
	{group: "direct", name: "open exclusively", run: func() error { return spill(unix.Open(".env.local", unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o644)) }},
	{group: "direct", name: "open by access mode 3", run: func() error { return shut(unix.Open("a.p12", unix.O_CREAT|3, 0o644)) }},
	{group: "direct", name: "openat", run: func() error {
		return with("folder", func(fd int) error { return spill(unix.Openat(fd, "../a.pfx", unix.O_CREAT|unix.O_RDWR, 0o644)) })
	}},
	{group: "direct", name: "mknod of a file", run: func() error { return unix.Mknod(".env", unix.S_IFREG|0o644, 0) }},
	{group: "direct", name: "mkfifo", run: func() error { return unix.Mkfifo(".env", 0o644) }},
	{group: "direct", name: "mknod of a socket", run: func() error { return unix.Mknodat(here, "x.pem", unix.S_IFSOCK|0o644, 0) }},
	{group: "direct", name: "mknod of a whiteout", run: func() error { return unix.Mknod(".env", unix.S_IFCHR, 0) }, quiet: true},
	{group: "direct", name: "mkdir", run: func() error { return unix.Mkdir(".env", 0o755) }},
	{group: "direct", name: "mkdirat with a slash", run: func() error { return unix.Mkdirat(here, "x.key/", 0o755) }},
	{group: "direct", name: "symlink", run: func() error { return unix.Symlink("plain", ".env") }},
	{group: "direct", name: "symlinkat", run: func() error {
		return with("folder", func(fd int) error { return unix.Symlinkat("plain", fd, ".bashrc") })
	}},
	{group: "direct", name: "link", run: func() error { return unix.Link("plain", ".env") }},
	{group: "direct", name: "linkat of a descriptor", run: func() error {
		return with("plain", func(fd int) error { return unix.Linkat(here, ofFD(fd), here, "x.pem", unix.AT_SYMLINK_FOLLOW) })
	}},
	{group: "direct", name: "linkat of a file without name", run: func() error {
		fd, err := unix.Open(".", unix.O_TMPFILE|unix.O_RDWR, 0o644)
		if err != nil {
			return err
		}
		return unix.Linkat(here, ofFD(fd), here, ".env", unix.AT_SYMLINK_FOLLOW)
	}},
	{group: "direct", name: "linkat of an empty path", either: "a file is linked by an empty path only by those who may read all files, or by who opened it from Linux 6.10 on", run: func() error {
		return with("plain", func(fd int) error { return unix.Linkat(fd, "", here, ".env", unix.AT_EMPTY_PATH) })
	}},
	{group: "direct", name: "file without name in hooks", run: func() error {
		fd, err := unix.Open(".git/hooks", unix.O_TMPFILE|unix.O_RDWR, 0o755)
		if err != nil {
			return err
		}
		return unix.Linkat(here, ofFD(fd), here, ".git/hooks/pre-commit", unix.AT_SYMLINK_FOLLOW)
	}},
	{group: "direct", name: "rename", run: func() error { return unix.Rename("plain", ".env") }},
	{group: "direct", name: "renameat", run: func() error {
		return with("folder", func(fd int) error { return unix.Renameat(fd, "inner", fd, "inner.key") })
	}},
	{group: "direct", name: "renameat2 without replacing", run: func() error { return unix.Renameat2(here, "plain", here, ".npmrc", unix.RENAME_NOREPLACE) }},
	{group: "direct", name: "rename of a folder", run: func() error { return unix.Rename("folder", ".vscode") }},
	{group: "direct", name: "bind", run: func() error { return bindAt("x.key") }},
	{group: "direct", name: "bind of a path without an end", run: func() error {
		return bindAt(".env.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	}},
	{group: "direct", name: "new hook", run: func() error { return spill(unix.Creat(".git/hooks/pre-commit", 0o755)) }},
	{group: "direct", name: "by the tools", run: func() error {
		return sh("echo x > sub/dir.env; mkdir -p new && echo x > new/.env; cp plain copy.key; mv second second.pem; ln -s x .ssh; touch a.pfx; tee .env.tee < plain; install plain b.p12; dd if=plain of=c.key; tar cf - folder | tar xf - --transform s/inner/inner.pem/")
	}},
}

// bindAt binds a socket at a path.
func bindAt(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	return unix.Bind(fd, &unix.SockaddrUnix{Name: path})
}

// sh runs a script.
func sh(script string) error {
	out, err := exec.Command("/bin/sh", "-c", script).CombinedOutput()
	fmt.Print(string(out))
	return err
}

// What is there already: written, cut, moved away, given another name to be written by.
var existing = []attack{
	{group: "existing", name: "write", run: func() error { return spill(unix.Open("old.pem", unix.O_WRONLY, 0)) }},
	{group: "existing", name: "append", run: func() error { return spill(unix.Open("sub/.env", unix.O_WRONLY|unix.O_APPEND, 0)) }},
	{group: "existing", name: "read and write", run: func() error { return spill(unix.Open("deep/er/x.key", unix.O_RDWR, 0)) }},
	{group: "existing", name: "cut by open", run: func() error { return shut(unix.Open("old.pem", unix.O_TRUNC, 0)) }},
	{group: "existing", name: "cut by open in access mode 3", run: func() error { return shut(unix.Open("old.pem", unix.O_TRUNC|3, 0)) }},
	{group: "existing", name: "truncate", run: func() error { return unix.Truncate("old.pem", 1) }},
	{group: "existing", name: "truncate to more", run: func() error { return unix.Truncate("sub/.env", 4096) }},
	{group: "existing", name: "truncate through a link", run: func() error {
		if err := os.Symlink("../old.pem", "folder/l"); err != nil {
			return err
		}
		return unix.Truncate("folder/l", 1)
	}},
	{group: "existing", name: "git's configuration", run: func() error { return spill(unix.Open(".git/config", unix.O_WRONLY|unix.O_APPEND, 0)) }},
	{group: "existing", name: "git's configuration by git", run: func() error { return sh("git config core.fsmonitor evil") }, skip: withoutGit},
	{group: "existing", name: "remove and make again", run: func() error {
		_ = unix.Unlink("old.pem")
		return spill(unix.Creat("old.pem", 0o644))
	}},
	{group: "existing", name: "move away", run: func() error { return unix.Rename("old.pem", "free") }},
	{group: "existing", name: "move away and write", run: func() error {
		if err := unix.Rename("sub/.env", "sub/free"); err != nil {
			return err
		}
		return spill(unix.Open("sub/free", unix.O_WRONLY|unix.O_APPEND, 0))
	}, prepare: func(_ *testing.T, b *bed) { b.forbid = func(rel string) bool { return rel == "sub/free" } }},
	{group: "existing", name: "replace", run: func() error { return unix.Rename("plain", "old.pem") }},
	{group: "existing", name: "exchange", run: func() error { return unix.Renameat2(here, "plain", here, "old.pem", unix.RENAME_EXCHANGE) }},
	{group: "existing", name: "exchange the other way", run: func() error { return unix.Renameat2(here, "old.pem", here, "plain", unix.RENAME_EXCHANGE) }},
	{group: "existing", name: "leave a whiteout", run: func() error { return unix.Renameat2(here, "old.pem", here, "free", unix.RENAME_WHITEOUT) }, quiet: true},
	{group: "existing", name: "leave a whiteout there", run: func() error { return unix.Renameat2(here, "plain", here, ".env", unix.RENAME_WHITEOUT) }, quiet: true},
	{group: "existing", name: "link and write", run: func() error {
		if err := unix.Link("old.pem", "free"); err != nil {
			return err
		}
		return spill(unix.Open("free", unix.O_WRONLY, 0))
	}},
	{group: "existing", name: "link by a descriptor and write", run: func() error {
		return with("old.pem", func(fd int) error {
			if err := unix.Linkat(here, ofFD(fd), here, "free", unix.AT_SYMLINK_FOLLOW); err != nil {
				return err
			}
			return spill(unix.Open("free", unix.O_WRONLY, 0))
		})
	}},
	{group: "existing", name: "hooks made anew", run: func() error {
		_ = os.RemoveAll(".git/hooks")
		if err := unix.Mkdir(".git/hooks", 0o755); err != nil {
			return err
		}
		return spill(unix.Creat(".git/hooks/pre-commit", 0o755))
	}},
	{group: "existing", name: "hooks moved away and back", run: func() error {
		if err := unix.Rename(".git/hooks", "h"); err != nil {
			return err
		}
		if err := spill(unix.Creat("h/pre-commit", 0o755)); err != nil {
			return err
		}
		return unix.Rename("h", ".git/hooks")
	}},
}

func withoutGit() string {
	if _, err := exec.LookPath("git"); err != nil {
		return "there is no git"
	}
	return ""
}

// how opens by openat2, again where something was moved meanwhile, as openat2(2) asks for.
func how(dirfd int, path string, resolve uint64) error {
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(dirfd, path, &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o644, Resolve: resolve})
		if !errors.Is(err, unix.EAGAIN) || tries == 1000 {
			return spill(fd, err)
		}
	}
}

// openat2 with what it can be told of the way.
var scoped = []attack{
	{group: "openat2", name: "openat2", run: func() error { return how(here, ".env", 0) }},
	{group: "openat2", name: "beneath", run: func() error { return how(here, "folder/../x.key", unix.RESOLVE_BENEATH) }},
	{group: "openat2", name: "in root", run: func() error {
		return with(inside, func(fd int) error { return how(fd, "/../../.env", unix.RESOLVE_IN_ROOT) })
	}},
	{group: "openat2", name: "in root with a link", run: func() error {
		if err := os.Symlink("/.git/hooks", "folder/l"); err != nil {
			return err
		}
		return with(inside, func(fd int) error { return how(fd, "/folder/l/pre-push", unix.RESOLVE_IN_ROOT) })
	}},
	{group: "openat2", name: "without links", run: func() error { return how(here, "x.pem", unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS) }},
	{group: "openat2", name: "on one file system", run: func() error { return how(here, "./x.pem", unix.RESOLVE_NO_XDEV) }},
	{group: "openat2", name: "existing beneath", run: func() error {
		return spill(unix.Openat2(here, "old.pem", &unix.OpenHow{Flags: unix.O_WRONLY | unix.O_TRUNC, Resolve: unix.RESOLVE_BENEATH}))
	}},
	{group: "openat2", name: "cut while reading", run: func() error {
		return shut(unix.Openat2(here, "old.pem", &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_TRUNC}))
	}},
	{group: "openat2", name: "as a longer structure", run: func() error {
		how := struct {
			unix.OpenHow
			more [4]uint64
		}{OpenHow: unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o644}}
		return openat2Raw(".env", &how.OpenHow, 24+32)
	}},
}
