package nameguard

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	// A thread has another socket, or another device, under a number than the rest of its
	// process; with "shared" it has the same.
	enemies["thread"] = func(args []string) error {
		own := args[0] == "own"
		socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		file, err := unix.Open("plain", unix.O_CREAT|unix.O_RDWR, 0o644)
		if err != nil {
			return err
		}
		OnOwnThread(func() { err = thread(own, socket, file) })
		if err != nil {
			return err
		}
		fmt.Println("process:", bound(socket))
		return nil
	}
}

func thread(own bool, socket, file int) error {
	if own {
		if err := unix.Unshare(unix.CLONE_FILES); err != nil {
			return err
		}
		other, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		if err := unix.Dup3(other, socket, 0); err != nil {
			return err
		}
	}
	fmt.Println("bind:", unix.Bind(socket, &unix.SockaddrUnix{Name: "socket"}))
	fmt.Println("thread:", bound(socket))
	if err := unix.Dup3(0, file, 0); err != nil { // a device that came from outside
		return err
	}
	device("device", fmt.Sprintf("/proc/thread-self/fd/%d", file))
	device("of the process", "/proc/self/fd/0")
	return nil
}

// device says whether a path leads to one.
func device(what, path string) {
	fd, err := unix.Open(path, unix.O_WRONLY, 0)
	if err != nil {
		fmt.Println(what+":", err)
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	fmt.Println(what+":", unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR)
}

// bound is whether a socket has a name.
func bound(socket int) bool {
	sa, err := unix.Getsockname(socket)
	named, ok := sa.(*unix.SockaddrUnix)
	return err == nil && ok && strings.Trim(named.Name, "@\x00") != ""
}

// What a thread calls by a number is what it has under it, and not what another thread has. A
// kernel that does not give what is a thread's alone (before Linux 6.9) gives nothing.
func TestDescriptorsOfThreads(t *testing.T) {
	for _, tc := range []struct {
		table string
		older bool
		want  string
		made  bool
	}{
		{"own", false, "bind: <nil>\nthread: true\ndevice: true\nof the process: true\nprocess: false\n", true},
		{"shared", false, "bind: <nil>\nthread: true\ndevice: true\nof the process: true\nprocess: true\n", true},
		{"own", true, "bind: permission denied\nthread: false\ndevice: permission denied\nof the process: true\nprocess: false\n", false},
		{"shared", true, "bind: <nil>\nthread: true\ndevice: true\nof the process: true\nprocess: true\n", true},
	} {
		t.Run(fmt.Sprintf("%s, older kernel %v", tc.table, tc.older), func(t *testing.T) {
			b := newBox(t)
			var err error
			b.stdin, err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
			must(t, err)
			defer b.stdin.Close()
			b.started = func(broker *Broker, _ *exec.Cmd) { broker.groups.Store(tc.older) }
			o := b.do("thread", tc.table)
			if o.err != nil || o.out != tc.want {
				t.Errorf("%v: %s, want %s", o.err, o.out, tc.want)
			}
			if b.has("socket") != tc.made {
				t.Errorf("the socket is there: %v", b.has("socket"))
			}
		})
	}
}
