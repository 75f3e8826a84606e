package peer

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// accepted connects to a listener on address and gives both ends.
func accepted(tb testing.TB, network, address, dial string) (near, far net.Conn) {
	tb.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		tb.Skipf("listen: %v", err) // no IPv6 here
	}
	defer func() { _ = ln.Close() }()
	to := ln.Addr().String()
	if dial != "" {
		_, port, _ := net.SplitHostPort(to)
		to = net.JoinHostPort(dial, port)
	}
	far, err = net.Dial("tcp", to)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = far.Close() })
	near, err = ln.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = near.Close() })
	return near, far
}

func TestUID(t *testing.T) {
	for name, c := range map[string]struct{ network, address, dial string }{
		"IPv4":             {"tcp4", "127.0.0.1:0", ""},
		"IPv6":             {"tcp6", "[::1]:0", ""},
		"IPv4 of a mapped": {"tcp", "[::]:0", "127.0.0.1"},
		"to oneself":       {"tcp4", "127.0.0.7:0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			near, _ := accepted(t, c.network, c.address, c.dial)
			if uid, err := UID(near); err != nil || uid != os.Geteuid() {
				t.Errorf("got %d, %v; want %d", uid, err, os.Geteuid())
			}
			if err := OnlyOwner(os.Geteuid())(near); err != nil {
				t.Error(err)
			}
			if err := OnlyOwner(os.Geteuid() + 1)(near); (err == nil) != (os.Geteuid() == 0) {
				t.Errorf("%v for another owner", err) // root is admitted
			}
		})
	}
}

// A client that sent its bytes and left must not be taken for root.
func TestUIDOfWhoLeft(t *testing.T) {
	near, far := accepted(t, "tcp4", "127.0.0.1:0", "")
	if _, err := far.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := far.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if uid, err := UID(near); err != nil || uid != os.Geteuid() {
		t.Errorf("half-closed: %d, %v", uid, err)
	}
	_ = far.Close()
	if uid, err := UID(near); !errors.Is(err, ErrGone) && !errors.Is(err, ErrUnknown) {
		t.Errorf("closed: %d, %v", uid, err)
	}
}

func TestUIDOfNoTCP(t *testing.T) {
	near, far := net.Pipe()
	defer func() { _, _ = near.Close(), far.Close() }()
	if _, err := UID(near); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

// TestOtherUser connects as other users. Only root can become them.
func TestOtherUser(t *testing.T) {
	if address := os.Getenv("PEER_TEST_DIAL"); address != "" {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Read(make([]byte, 1)) // until the parent has looked
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("must be root")
	}
	const owner, other = 61234, 61235
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	for _, uid := range []uint32{owner, other, 0} {
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		// By descriptor: another user cannot reach the test's own folder.
		self, err := os.Open("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(ctx, "/proc/self/fd/3", "-test.run=^TestOtherUser$")
		cmd.Dir, cmd.ExtraFiles = "/", []*os.File{self}
		cmd.Env = []string{"PEER_TEST_DIAL=" + ln.Addr().String()}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = ln.(*net.TCPListener).SetDeadline(time.Now().Add(15 * time.Second))
		near, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := UID(near); err != nil || got != int(uid) {
			t.Errorf("got %d, %v; want %d", got, err, uid)
		}
		err = OnlyOwner(owner)(near)
		if (err == nil) != (uid != other) {
			t.Errorf("user %d: %v", uid, err)
		}
		if uid == other && !strings.Contains(err.Error(), "of user 61235, the session of user 61234") {
			t.Error(err)
		}
		_ = near.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		_ = self.Close()
		stop()
	}
}

// BenchmarkUID is to be read beside BenchmarkAccept, the connection itself.
func BenchmarkUID(b *testing.B) {
	near, _ := accepted(b, "tcp4", "127.0.0.1:0", "")
	for b.Loop() {
		if _, err := UID(near); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAccept(b *testing.B) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	for b.Loop() {
		far, err := net.Dial("tcp4", ln.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		near, err := ln.Accept()
		if err != nil {
			b.Fatal(err)
		}
		_ = far.(*net.TCPConn).SetLinger(0) // no TIME_WAIT, which would use ports up
		_, _ = far.Close(), near.Close()
	}
}
