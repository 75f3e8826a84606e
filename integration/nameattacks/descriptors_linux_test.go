package nameattacks

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Descriptors that are open already, and others that they lead to.
var descriptors = []attack{
	{group: "descriptors", name: "opened again", run: func() error {
		return with("old.pem", func(fd int) error { return spill(unix.Open(ofFD(fd), unix.O_WRONLY, 0)) })
	}},
	{group: "descriptors", name: "opened again by dev fd", run: func() error {
		return with("old.pem", func(fd int) error {
			return spill(unix.Open(fmt.Sprintf("/dev/fd/%d", fd), unix.O_RDWR|unix.O_TRUNC, 0))
		})
	}},
	{group: "descriptors", name: "opened again by access mode 3", run: func() error {
		return with("old.pem", func(fd int) error { return shut(unix.Open(ofFD(fd), unix.O_TRUNC|3, 0)) })
	}},
	{group: "descriptors", name: "cut by reading again", run: func() error {
		return with("old.pem", func(fd int) error { return shut(unix.Open(ofFD(fd), unix.O_TRUNC, 0)) })
	}},
	{group: "descriptors", name: "truncated by its number", quiet: true, run: func() error {
		return with("old.pem", func(fd int) error { return unix.Truncate(ofFD(fd), 0) })
	}},
	{group: "descriptors", name: "opened again by a thread", quiet: true, run: func() error {
		return with("old.pem", func(fd int) error {
			return spill(unix.Open(fmt.Sprintf("/proc/self/task/%d/fd/%d", unix.Gettid(), fd), unix.O_WRONLY, 0))
		})
	}},
	{group: "descriptors", name: "opened again by openat2", run: func() error {
		return with("old.pem", func(fd int) error {
			return spill(unix.Openat2(here, ofFD(fd), &unix.OpenHow{Flags: unix.O_WRONLY}))
		})
	}},
	{group: "descriptors", name: "opened again from a folder", run: func() error {
		return with("old.pem", func(fd int) error {
			dir, err := unix.Open("/proc/self/fd", unix.O_RDONLY|unix.O_DIRECTORY, 0)
			if err != nil {
				return err
			}
			return spill(unix.Openat(dir, fmt.Sprint(fd), unix.O_WRONLY, 0))
		})
	}, quiet: true},
	{group: "descriptors", name: "opened without rights, then again", run: func() error {
		fd, err := unix.Open("sub/.env", unix.O_PATH|unix.O_RDWR|unix.O_CREAT, 0o644)
		if err != nil {
			return err
		}
		return spill(unix.Open(ofFD(fd), unix.O_WRONLY, 0))
	}},
	{group: "descriptors", name: "another process's", quiet: true, run: func() error {
		return with("old.pem", func(fd int) error {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
				return err
			}
			cmd, err := help("sleep")
			if err != nil {
				return err
			}
			defer func() { _ = cmd.Process.Kill() }()
			return spill(unix.Open(fmt.Sprintf("/proc/%d/fd/%d", cmd.Process.Pid, fd), unix.O_WRONLY, 0))
		})
	}},
	{group: "descriptors", name: "another process's folder", quiet: true, run: func() error {
		return with(".git/hooks", func(fd int) error {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
				return err
			}
			cmd, err := help("sleep")
			if err != nil {
				return err
			}
			defer func() { _ = cmd.Process.Kill() }()
			return spill(unix.Creat(fmt.Sprintf("/proc/%d/fd/%d/pre-commit", cmd.Process.Pid, fd), 0o755))
		})
	}},
	{group: "descriptors", name: "passed on", run: passed},
	{group: "descriptors", name: "fetched from another process", run: fetched},
	{group: "descriptors", name: "relative to hooks", run: func() error {
		return with(".git/hooks", func(fd int) error { return spill(unix.Openat(fd, "pre-commit", unix.O_CREAT|unix.O_WRONLY, 0o755)) })
	}},
	{group: "descriptors", name: "working directory in hooks", run: func() error {
		return first(func() error { return unix.Chdir(".git/hooks") }, func() error { return spill(unix.Creat("pre-commit", 0o755)) })
	}},
	{group: "descriptors", name: "mapped", native: "a mapping is writable where the descriptor is", run: func() error {
		return with("old.pem", func(fd int) error {
			if mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
				mem[0] = 'e'
				return unix.Msync(mem, unix.MS_SYNC)
			}
			mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			if err := unix.Mprotect(mem, unix.PROT_READ|unix.PROT_WRITE); err == nil {
				mem[0] = 'e'
				return unix.Msync(mem, unix.MS_SYNC)
			}
			own, err := unix.Open("/proc/self/mem", unix.O_RDWR, 0)
			if err != nil {
				return err
			}
			_, err = unix.Pwrite(own, []byte("evil"), int64(ptr(&mem[0])))
			return err
		})
	}},
	{group: "descriptors", name: "written though opened for reading", native: "a descriptor that reads writes nothing", run: func() error {
		return with("old.pem", func(fd int) error {
			return with("plain", func(from int) error {
				var pipe [2]int
				if err := unix.Pipe(pipe[:]); err != nil {
					return err
				}
				_, _ = unix.Write(pipe[1], []byte("evil"))
				_, e1 := unix.Write(fd, []byte("evil"))
				_, e2 := unix.CopyFileRange(from, nil, fd, nil, 4, 0)
				_, e3 := unix.Sendfile(fd, from, nil, 4)
				_, e4 := unix.Splice(pipe[0], nil, fd, nil, 4, 0)
				return errors.Join(e1, e2, e3, e4, unix.Ftruncate(fd, 0), unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4), unix.IoctlFileClone(fd, from),
					unix.IoctlFileCloneRange(fd, &unix.FileCloneRange{Src_fd: int64(from), Src_length: 4096}))
			})
		})
	}},
	{group: "descriptors", name: "spliced into pages", native: "a pipe does not write into pages that it was lent", run: func() error {
		return with("old.pem", func(fd int) error {
			var pipe [2]int
			if err := unix.Pipe(pipe[:]); err != nil {
				return err
			}
			buf := make([]byte, 65536)
			_, _ = unix.Write(pipe[1], buf)
			_, _ = unix.Read(pipe[0], buf)
			if _, err := unix.Splice(fd, nil, pipe[1], nil, 1, 0); err != nil {
				return err
			}
			_, err := unix.Write(pipe[1], []byte("evil"))
			return err
		})
	}},
	{group: "descriptors", name: "by a handle", native: "handles are for those who may read all files", run: func() error {
		handle, _, err := unix.NameToHandleAt(here, "old.pem", 0)
		if err != nil {
			return err
		}
		return with(".", func(mount int) error { return spill(unix.OpenByHandleAt(mount, handle, unix.O_WRONLY)) })
	}},
	{group: "descriptors", name: "by a map", native: "mappings are opened by those who may checkpoint", run: func() error {
		return with("old.pem", func(fd int) error {
			mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			at := ptr(&mem[0])
			return spill(unix.Open(fmt.Sprintf("/proc/self/map_files/%x-%x", at, at+4096), unix.O_WRONLY, 0))
		})
	}},
}

func init() {
	helpers["sleep"] = func([]string) error { time.Sleep(time.Minute); return nil }
	helpers["take"] = func(args []string) error {
		addr, err := net.ResolveUnixAddr("unix", args[0])
		if err != nil {
			return err
		}
		c, err := net.DialUnix("unix", nil, addr)
		if err != nil {
			return err
		}
		oob := make([]byte, unix.CmsgSpace(8))
		_, n, _, _, err := c.ReadMsgUnix(make([]byte, 1), oob)
		if err != nil {
			return err
		}
		messages, err := unix.ParseSocketControlMessage(oob[:n])
		if err != nil {
			return err
		}
		fds, err := unix.ParseUnixRights(&messages[0])
		if err != nil {
			return err
		}
		if err := unix.Fchdir(fds[1]); err != nil {
			return err
		}
		fmt.Println(spill(unix.Open(ofFD(fds[0]), unix.O_WRONLY, 0)), spill(unix.Creat("pre-commit", 0o755)), spill(unix.Openat(fds[1], "post-commit", unix.O_CREAT|unix.O_WRONLY, 0o755)))
		return nil
	}
}

// passed gives descriptors to a process that is started for it.
func passed() error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "/tmp/s"})
	if err != nil {
		return err
	}
	cmd, err := help("take", "/tmp/s")
	if err != nil {
		return err
	}
	c, err := l.AcceptUnix()
	if err != nil {
		return err
	}
	err = with("old.pem", func(file int) error {
		return with(".git/hooks", func(dir int) error {
			_, _, err := c.WriteMsgUnix([]byte{0}, unix.UnixRights(file, dir), nil)
			return err
		})
	})
	return errors.Join(err, cmd.Wait())
}

// fetched takes a descriptor out of another process, and opens it again.
func fetched() error {
	return with("old.pem", func(fd int) error {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return err
		}
		cmd, err := help("sleep")
		if err != nil {
			return err
		}
		defer func() { _ = cmd.Process.Kill() }()
		p, err := unix.PidfdOpen(cmd.Process.Pid, 0)
		if err != nil {
			return err
		}
		got, err := unix.PidfdGetfd(p, fd, 0)
		if err != nil {
			return err
		}
		return spill(unix.Open(ofFD(got), unix.O_WRONLY, 0))
	})
}
