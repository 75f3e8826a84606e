package lease

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const childEnv = "LEASE_TEST_CHILD_SOCKET"

// TestLendFromNamespaceChild is not a test of its own: it is what
// TestLendFromNamespace runs inside a network namespace.
func TestLendFromNamespaceChild(t *testing.T) {
	path := os.Getenv(childEnv)
	if path == "" {
		return
	}
	loopbackUp(t)
	ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4zero})
	if err != nil {
		t.Fatal(err)
	}
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4zero})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Lend(ctx(t), path, Hello{Spec: Spec{ID: "inside"}}, newPair(t),
		Lent{Socket: Socket{UseTransparent, SocketTCP, uint16(ln.Addr().(*net.TCPAddr).Port)}, Listener: ln},
		Lent{Socket: Socket{UseDNS, SocketUDP, uint16(pc.LocalAddr().(*net.UDPAddr).Port)}, Packets: pc})
	if err != nil {
		t.Fatal(err)
	}
	// From in here the lent listener is the only way out.
	c, err := net.Dial("tcp", l.Answer().Session.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	buf := make([]byte, 5)
	if n, err := c.Read(buf); err != nil || string(buf[:n]) != "hello" {
		t.Fatalf("read %q, %v", buf[:n], err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func loopbackUp(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		t.Fatal(err)
	}
}

// A launcher inside a network namespace lends listeners that no one outside can
// reach by address, and the appliance outside serves them.
func TestLendFromNamespace(t *testing.T) {
	ln, path := socket(t)
	served := serve(t, ln, &Acceptor{})

	c, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	child := exec.CommandContext(c, os.Args[0], "-test.run=^TestLendFromNamespaceChild$", "-test.v")
	child.Env = append(os.Environ(), childEnv+"="+path)
	uid, gid := os.Geteuid(), os.Getegid()
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}},
		// The test binary is executed as a plain user of its namespace, who may
		// not touch lo without this.
		AmbientCaps: []uintptr{unix.CAP_NET_ADMIN},
	}
	var out bytes.Buffer
	child.Stdout, child.Stderr = &out, &out
	if err := child.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
			t.Skipf("user namespaces are switched off here: %v", err)
		}
		t.Fatal(err)
	}
	// The child may fail before it lends; do not wait for a hello then.
	exited := make(chan error, 1)
	go func() {
		err := child.Wait()
		ln.Close()
		exited <- err
	}()
	r := <-served
	if r.err != nil {
		t.Fatalf("no hello: %v; the child: %v\n%s", r.err, <-exited, &out)
	}
	defer r.req.Close()
	if r.req.PeerPID != child.Process.Pid {
		t.Errorf("the peer is process %d, want %d", r.req.PeerPID, child.Process.Pid)
	}
	if OnHost(r.req.Pair.HTTP) {
		t.Error("a listener of another namespace passes for one of this host")
	}
	// In there a socket may take what goes to any address.
	if len(r.req.More) != 2 || !r.req.More[0].Listener.Addr().(*net.TCPAddr).IP.IsUnspecified() || r.req.More[0].IPv6() {
		t.Errorf("the sockets came as %v", r.req.More)
	}
	addr := r.req.Pair.HTTP.Addr().String()
	if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
		c.Close()
		t.Errorf("%s answers outside of the namespace", addr)
	}
	if err := r.req.Reply(Answer{OK: true, Session: Info{ID: "inside", HTTP: addr}}); err != nil {
		t.Fatal(err)
	}
	_ = r.req.Pair.HTTP.SetDeadline(time.Now().Add(5 * time.Second))
	conn, err := r.req.Pair.HTTP.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write([]byte("hello"))
	conn.Close()
	r.req.Wait()
	if err := <-exited; err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
}

func TestOnHost(t *testing.T) {
	if !OnHost(newPair(t).HTTP) {
		t.Error("a listener of this process passes for a foreign one")
	}
}
