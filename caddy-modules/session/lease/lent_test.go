package lease

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// dnsSockets makes a UDP and a TCP socket as a launcher without namespaces does.
func dnsSockets(t *testing.T) []Lent {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	return []Lent{
		{Socket: Socket{UseDNS, SocketUDP, pc.LocalAddr().(*net.UDPAddr).AddrPort().Port()}, Packets: pc},
		{Socket: Socket{UseDNS, SocketTCP, ln.Addr().(*net.TCPAddr).AddrPort().Port()}, Listener: ln},
	}
}

// The sockets arrive in their order, work, and are closed with the lease; the
// launcher's go on.
func TestLendSockets(t *testing.T) {
	ln, path := socket(t)
	served := grant(t, ln, Answer{OK: true, DNS: DNSAnswer})
	more := dnsSockets(t)
	before := openDescriptors(t)
	l, err := Lend(ctx(t), path, Hello{Spec: Spec{ID: "a"}, Sockets: []Socket{{Use: "forgotten"}}}, newPair(t), more...)
	if err != nil {
		t.Fatal(err)
	}
	r := <-served
	if r.err != nil {
		t.Fatal(r.err)
	}
	if l.Answer().DNS != DNSAnswer {
		t.Errorf("the answer says dns %q", l.Answer().DNS)
	}
	if len(r.req.More) != 2 || r.req.More[0].Socket != more[0].Socket || r.req.More[1].Socket != more[1].Socket {
		t.Fatalf("arrived as %v", r.req.More)
	}
	answers(t, r.req.More[1].Listener, more[1].Listener.Addr().String())
	c, err := net.Dial("udp", more[0].Packets.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("ask")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 8)
	_ = r.req.More[0].Packets.SetDeadline(time.Now().Add(20 * time.Second))
	if n, _, err := r.req.More[0].Packets.ReadFromUDP(buf); err != nil || string(buf[:n]) != "ask" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
	c.Close()
	if err := r.req.Close(); err != nil {
		t.Error(err)
	}
	l.Close()
	if _, err := r.req.More[0].Packets.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the appliance's socket is open: %v", err)
	}
	if err := more[0].Packets.SetDeadline(time.Time{}); err != nil {
		t.Errorf("the launcher's is closed: %v", err)
	}
	if after := openDescriptors(t); after > before+2 { // the two of newPair
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// A socket that is not what the hello says is refused, whatever it is, and no
// descriptor stays open.
func TestForeignSocketsAreRefused(t *testing.T) {
	bind := func(t *testing.T, kind int, at [4]byte, options ...int) (fd int, port uint16) {
		t.Helper()
		fd = rawSocket(t, unix.AF_INET, kind)
		for _, opt := range options {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt, 1); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: at}); err != nil {
			t.Fatal(err)
		}
		if kind == unix.SOCK_STREAM {
			if err := unix.Listen(fd, 1); err != nil {
				t.Fatal(err)
			}
		}
		ap, err := boundTo(fd)
		if err != nil {
			t.Fatal(err)
		}
		return fd, ap.Port()
	}
	lo, any4 := [4]byte{127, 0, 0, 1}, [4]byte{}
	for _, c := range []struct {
		name   string
		socket Socket
		kind   int
		at     [4]byte
		opts   []int
		shift  uint16 // of the port said
		say    string
	}{
		{name: "wildcard TCP of the host", socket: Socket{Use: UseDNS, Network: SocketTCP}, kind: unix.SOCK_STREAM, at: any4, say: "network of the sandbox's own"},
		{name: "wildcard UDP of the host", socket: Socket{Use: UseDNS, Network: SocketUDP}, kind: unix.SOCK_DGRAM, at: any4, say: "network of the sandbox's own"},
		{name: "transparent on every address of the host", socket: Socket{Use: UseTransparent, Network: SocketTCP}, kind: unix.SOCK_STREAM, at: any4, say: "network of the sandbox's own"},
		{name: "transparent on one address", socket: Socket{Use: UseTransparent, Network: SocketTCP}, kind: unix.SOCK_STREAM, at: lo, say: "one address"},
		{name: "TCP for UDP", socket: Socket{Use: UseDNS, Network: SocketUDP}, kind: unix.SOCK_STREAM, at: lo, say: "not a UDP socket"},
		{name: "UDP for TCP", socket: Socket{Use: UseDNS, Network: SocketTCP}, kind: unix.SOCK_DGRAM, at: lo, say: "not a TCP socket"},
		{name: "another port", socket: Socket{Use: UseDNS, Network: SocketUDP}, kind: unix.SOCK_DGRAM, at: lo, shift: 1, say: "another port"},
		{name: "shared UDP", socket: Socket{Use: UseDNS, Network: SocketUDP}, kind: unix.SOCK_DGRAM, at: lo, opts: []int{unix.SO_REUSEPORT}, say: "SO_REUSEPORT"},
		{name: "UDP that others may bind", socket: Socket{Use: UseDNS, Network: SocketUDP}, kind: unix.SOCK_DGRAM, at: lo, opts: []int{unix.SO_REUSEADDR}, say: "SO_REUSEADDR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pair := newPair(t)
			fd, port := bind(t, c.kind, c.at, c.opts...)
			defer unix.Close(fd)
			c.socket.Port = port + c.shift
			refused(t, pair, []Socket{c.socket}, []int{fd}, CodeBadDescriptors, c.say)
		})
	}
	t.Run("connected UDP", func(t *testing.T) {
		pair := newPair(t)
		fd, port := bind(t, unix.SOCK_DGRAM, lo)
		defer unix.Close(fd)
		if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: lo, Port: 9}); err != nil {
			t.Fatal(err)
		}
		refused(t, pair, []Socket{{UseDNS, SocketUDP, port}}, []int{fd}, CodeBadDescriptors, "connected")
	})
	t.Run("one socket twice", func(t *testing.T) {
		pair := newPair(t)
		fd, port := bind(t, unix.SOCK_DGRAM, lo)
		defer unix.Close(fd)
		s := Socket{UseDNS, SocketUDP, port}
		refused(t, pair, []Socket{s, s}, []int{fd, fd}, CodeBadDescriptors, "one socket")
	})
	t.Run("named and not sent", func(t *testing.T) {
		refused(t, newPair(t), []Socket{{UseDNS, SocketUDP, 53}}, nil, CodeBadDescriptors, "want 3")
	})
	for name, c := range map[string]struct {
		sockets []Socket
		say     string
	}{
		"unknown use":     {[]Socket{{"http", SocketTCP, 80}}, "use"},
		"unknown network": {[]Socket{{UseDNS, "sctp", 53}}, "network"},
		"transparent UDP": {[]Socket{{UseTransparent, SocketUDP, 443}}, "does not go with"},
		"port 0":          {[]Socket{{UseDNS, SocketUDP, 0}}, "not a port"},
		"three times":     {[]Socket{{UseDNS, SocketUDP, 53}, {UseDNS, SocketUDP, 53}, {UseDNS, SocketUDP, 53}}, "third"},
		"eleven":          {make([]Socket, 11), "at most 10"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, newPair(t), c.sockets, nil, CodeBadRequest, c.say) })
	}
}

// refused sends a hello with sockets and descriptors, and wants it refused.
func refused(t *testing.T, pair Pair, sockets []Socket, fds []int, code, say string) {
	t.Helper()
	before := openDescriptors(t)
	us, them := socketPair(t)
	line, err := encodeLine(Hello{Version: Version, Spec: Spec{ID: "a"}, Sockets: sockets})
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		_, _, err := them.WriteMsgUnix(line, unix.UnixRights(append([]int{fdOf(t, pair.HTTP), fdOf(t, pair.SOCKS)}, fds...)...), nil)
		sent <- err
	}()
	req, err := (&Acceptor{Timeout: 20 * time.Second}).Accept(us)
	if err == nil {
		req.Close()
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	them.Close()
	e, is := errors.AsType[*RefusedError](err)
	if !is || e.Code != code || !strings.Contains(e.Message, say) {
		t.Errorf("refused with %v, want code %s and %q", err, code, say)
	}
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

// What is to be lent must be there.
func TestLendWantsTheSocket(t *testing.T) {
	_, err := Lend(ctx(t), "/nonexistent", Hello{Spec: Spec{ID: "a"}}, newPair(t), Lent{Socket: Socket{UseDNS, SocketUDP, 53}})
	if err == nil || !strings.Contains(err.Error(), "dns socket on udp port 53") {
		t.Errorf("lent: %v", err)
	}
}
