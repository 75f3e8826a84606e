package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serveOnce listens, reads one connection to its end, and then answers what it read.
func serveOnce(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	c, err := ln.Accept()
	if err != nil {
		return err
	}
	said, err := io.ReadAll(c)
	_, werr := fmt.Fprintf(c, "%s heard %s", addr, said)
	return errors.Join(err, werr, c.Close(), ln.Close())
}

// standing is a sandbox before its command.
func standing(t *testing.T) (*Process, *os.File) {
	t.Helper()
	needBwrap(t)
	stdout := capture(t)
	p, err := Start(t.Context(), gather(t, newWorld(t).profile()), Options{Stdin: devNull(t), Stdout: stdout, Stderr: capture(t), Timeout: 30 * time.Second})
	must(t, err)
	t.Cleanup(p.Close)
	return p, stdout
}

func execute(t *testing.T, p *Process, argv ...string) {
	t.Helper()
	must(t, p.Exec(Command{Argv: argv, Env: []string{"PATH=/usr/bin:/bin"}}))
}

// dialUntil dials until somebody listens.
func dialUntil(t *testing.T, p *Process, port uint16) *net.TCPConn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		c, err := p.Dial(ctx, port)
		if err == nil {
			return c
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("got %v, want connection refused until somebody listens", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestDialInto(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:3000", "[::1]:3000"} {
		t.Run(addr, func(t *testing.T) {
			p, _ := standing(t)
			if c, err := p.Dial(t.Context(), 3000); err == nil {
				_ = c.Close()
				t.Fatal("connected to nobody")
			}
			execute(t, p, InnerExe, attackCommand, "serve", addr)
			c := dialUntil(t, p, 3000)
			defer c.Close()
			_, err := io.WriteString(c, "hello")
			must(t, errors.Join(err, c.CloseWrite()))
			if got, err := io.ReadAll(c); err != nil || string(got) != addr+" heard hello" {
				t.Errorf("got %q, %v", got, err)
			}
			if status, err := p.Wait(); err != nil || status.Code != 0 {
				t.Errorf("status %+v, %v", status, err)
			}
			if _, err := p.Dial(t.Context(), 3000); !errors.Is(err, errEnded) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

// A listener inside whose connections are taken outside, below 1024 too: what the
// launcher may in its own user namespace, the command may not.
func TestListenInside(t *testing.T) {
	for _, port := range []uint16{80, 5432} {
		t.Run(fmt.Sprint(port), func(t *testing.T) {
			p, stdout := standing(t)
			lns, err := p.Listen(t.Context(), port)
			must(t, err)
			var addrs []string
			for _, ln := range lns {
				addrs = append(addrs, ln.Addr().String())
				go func() {
					for {
						c, err := ln.Accept()
						if err != nil {
							return
						}
						fmt.Fprintf(c, "from %s\n", ln.Addr())
						_ = c.Close()
					}
				}()
				defer ln.Close()
			}
			want := fmt.Sprintf("127.0.0.1:%d [::1]:%[1]d", port)
			if got := strings.Join(addrs, " "); got != want {
				t.Errorf("listening on %s, want %s", got, want)
			}
			if _, err := p.Listen(t.Context(), port); !errors.Is(err, unix.EADDRINUSE) {
				t.Errorf("twice: %v", err)
			}
			if _, err := p.Listen(t.Context(), uint16(DefaultPorts[0])); !errors.Is(err, unix.EADDRINUSE) {
				t.Errorf("the run's own proxy port: %v", err)
			}
			execute(t, p, "/bin/bash", "-c", fmt.Sprintf("cat < /dev/tcp/127.0.0.1/%d; cat < /dev/tcp/::1/%[1]d; exec 2>&1; %s %s serve 127.0.0.1:81", port, InnerExe, attackCommand))
			_, err = p.Wait()
			must(t, err)
			if got, want := slurp(t, stdout), fmt.Sprintf("from 127.0.0.1:%d\nfrom [::1]:%[1]d\nEACCES\n", port); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// A PID 1 that does not answer holds nobody up, and what it says too late is closed.
func TestDialIsBounded(t *testing.T) {
	p, _ := standing(t)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.child.pid))
	must(t, err)
	first, err := strconv.Atoi(strings.TrimSpace(string(children)))
	must(t, err)
	must(t, unix.Kill(first, unix.SIGSTOP))
	stopped(t, first)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := p.Dial(ctx, 3000); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	must(t, unix.Kill(first, unix.SIGCONT))
	if _, err := p.Dial(t.Context(), 3000); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("afterwards: %v", err)
	}
}

// stopped waits until no thread of a process runs any more: a signal to stop takes a
// moment on a busy machine.
func stopped(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		must(t, err)
		running := slices.ContainsFunc(threads, func(path string) bool {
			stat, err := os.ReadFile(path)
			_, state, _ := strings.Cut(string(stat), ") ")
			return err == nil && !strings.HasPrefix(state, "T")
		})
		if len(threads) > 0 && !running {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not stop", pid)
		}
	}
}

// What comes from inside is looked at: an answer nobody asked for, no descriptor, too
// many, or one that is something else.
func TestSocketAnswersAreChecked(t *testing.T) {
	tcp := func() int {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		return fd
	}
	connected := func() int {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		t.Cleanup(func() { _ = ln.Close() })
		fd := tcp()
		must(t, unix.Connect(fd, loopback(false, uint16(ln.Addr().(*net.TCPAddr).Port))))
		return fd
	}
	listening := func() int {
		fd := tcp()
		must(t, errors.Join(unix.Bind(fd, loopback(false, 0)), unix.Listen(fd, 1)))
		return fd
	}
	file := func() int {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(t, err)
		return fd
	}
	udp := func() int {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		return fd
	}
	pair := func() int {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		must(t, unix.Close(fds[1]))
		return fds[0]
	}
	for _, tc := range []struct {
		name string
		m    message
		fds  []func() int
		want string // of the error; empty: it is taken
	}{
		{"a bare socket", message{}, []func() int{tcp}, ""},
		{"none", message{}, nil, "0 descriptors"},
		{"two", message{}, []func() int{tcp, tcp}, "2 descriptors"},
		{"an error number", message{Code: int(unix.EMFILE)}, nil, unix.EMFILE.Error()},
		{"a connected one", message{}, []func() int{connected}, "not a bare"},
		{"a listening one", message{}, []func() int{listening}, "not a bare"},
		{"a file", message{}, []func() int{file}, "receive socket"},
		{"a datagram socket", message{}, []func() int{udp}, "not a bare"},
		{"a Unix socket", message{}, []func() int{pair}, "not a bare"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s sockets
			for _, asked := range []bool{false, true} {
				fds, inodes := make([]int, 0, 2), make([]uint64, 0, 2)
				for _, f := range tc.fds {
					fds = append(fds, f())
					inodes = append(inodes, inode(fds[len(fds)-1]))
				}
				m := tc.m
				m.ID = 7 // nobody's
				var ch chan socketAnswer
				if asked {
					var err error
					m.ID, ch, err = s.ask()
					must(t, err)
				}
				s.answer(&m, fds)
				if asked {
					a := <-ch
					if tc.want == "" && a.err != nil || tc.want != "" && (a.err == nil || !strings.Contains(a.err.Error(), tc.want)) {
						t.Errorf("got %v, want %q", a.err, tc.want)
					}
					if a.file != nil {
						must(t, a.file.Close())
					}
				}
				for i, fd := range fds {
					if inode(fd) == inodes[i] {
						t.Errorf("descriptor %d is still open", fd)
					}
				}
			}
		})
	}
}

// inode identifies what is behind a descriptor; 0 is nothing.
func inode(fd int) uint64 {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0
	}
	return st.Ino
}

// Who waits when the sandbox ends is told so, and who asks later at once.
func TestSocketRequestsEndWithTheSandbox(t *testing.T) {
	var s sockets
	_, ch, err := s.ask()
	must(t, err)
	s.end()
	if a := <-ch; !errors.Is(a.err, errEnded) {
		t.Errorf("got %v", a.err)
	}
	if _, _, err := s.ask(); !errors.Is(err, errEnded) {
		t.Errorf("got %v", err)
	}
}
