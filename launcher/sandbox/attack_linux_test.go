package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attackCommand makes the test binary a command inside the sandbox that tries what
// it must not be able to do. It prints how it went: "ok", or the name of the error.
const attackCommand = "__attack"

func attack(args []string) int {
	var err error
	switch args[0] {
	case "socket":
		family, _ := strconv.Atoi(args[1])
		var fd int
		if fd, err = unix.Socket(family, unix.SOCK_STREAM, 0); err == nil {
			_ = unix.Close(fd)
		}
	case "pair":
		kind, _ := strconv.Atoi(args[1])
		var fds [2]int
		fds, err = unix.Socketpair(unix.AF_UNIX, kind, 0)
		if err == nil {
			err = errors.Join(unix.Close(fds[0]), unix.Close(fds[1]))
		}
	case "dial": // a Unix socket by its path
		var c net.Conn
		if c, err = net.Dial("unix", args[1]); err == nil {
			_ = c.Close()
		}
	case "syscall":
		nr, _ := strconv.ParseUint(args[1], 0, 64)
		_, _, e := unix.Syscall6(uintptr(nr), 0, 0, 0, 0, 0, 0)
		if e != 0 {
			err = e
		}
	case "tiocsti":
		err = tiocsti(args[1])
	case "userns":
		cmd := exec.Command("/proc/self/exe", attackCommand, "true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
		err = cmd.Run()
	case "true":
	case "ptrace":
		pid, _ := strconv.Atoi(args[1])
		err = unix.PtraceAttach(pid)
	case "steal": // a descriptor of PID 1
		var fd int
		if fd, err = unix.PidfdOpen(1, 0); err == nil {
			_, err = unix.PidfdGetfd(fd, fdControl, 0)
		}
	case "open":
		var f *os.File
		if f, err = os.OpenFile(args[1], os.O_RDWR, 0); err == nil {
			_ = f.Close()
		}
	case "kill":
		sig, _ := strconv.Atoi(args[1])
		if err = unix.Kill(1, syscall.Signal(sig)); err == nil {
			time.Sleep(100 * time.Millisecond) // if it works, the run is over by now
		}
	case "connect":
		var c net.Conn
		if c, err = net.DialTimeout("tcp", args[1], 3*time.Second); err == nil {
			_ = c.Close()
		}
	case "serve": // answers one connection when that has said all
		err = serveOnce(args[1])
	case "abstract": // an abstract Unix socket
		var c net.Conn
		if c, err = net.Dial("unix", "@"+args[1]); err == nil {
			_ = c.Close()
		}
	case "rename":
		err = os.Rename(args[1], args[2])
	case "exchange":
		err = unix.Renameat2(unix.AT_FDCWD, args[1], unix.AT_FDCWD, args[2], unix.RENAME_EXCHANGE)
	case "remount":
		err = unix.Mount("", args[1], "", unix.MS_REMOUNT|unix.MS_BIND, "")
	case "umount":
		err = unix.Unmount(args[1], unix.MNT_DETACH)
	case "trap": // announces itself, then waits for a signal and ends with 9
		ch := make(chan os.Signal, 1)
		signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1)
		fmt.Println("ready")
		fmt.Println("got", <-ch)
		return 9
	case "fds":
		entries, rerr := os.ReadDir("/proc/self/fd")
		for _, e := range entries {
			to, _ := os.Readlink("/proc/self/fd/" + e.Name())
			fmt.Println(e.Name(), to)
		}
		err = rerr
	default:
		err = fmt.Errorf("unknown attack %q", args[0])
	}
	var e syscall.Errno
	switch {
	case err == nil:
		fmt.Println("ok")
	case errors.As(err, &e):
		fmt.Println(unix.ErrnoName(e))
	default:
		fmt.Println(err)
	}
	return 0
}

// tiocsti types a character into a terminal: the one of the process, or a new one of
// the sandbox's own, where only the filter is in the way.
func tiocsti(which string) error {
	path := "/dev/tty"
	if which == "own" {
		path = "/dev/ptmx"
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	c := byte('x')
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.TIOCSTI, uintptr(unsafe.Pointer(&c))); e != 0 {
		return e
	}
	return nil
}
