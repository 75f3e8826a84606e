package lease

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const goodHello = `{"version":1,"spec":{"id":"run-1"}}` + "\n"

// openDescriptors lists this process's descriptors.
func openDescriptors(t *testing.T) int {
	t.Helper()
	for _, dir := range []string{"/proc/self/fd", "/dev/fd"} {
		if entries, err := os.ReadDir(dir); err == nil {
			return len(entries)
		}
	}
	t.Fatal("no list of descriptors on this system")
	return 0
}

// hostile is one way to send something that is not a hello.
type hostile struct {
	name string
	code string                                                // of the refusal
	say  string                                                // must be part of its message
	send func(t *testing.T, c *net.UnixConn, good Pair)        // what the peer does
	who  func(*net.UnixConn) (Peer, error)                     // nil: the truth
	fds  func(t *testing.T, good Pair) (fds []int, end func()) // nil: the good pair
}

func fdOf(t *testing.T, ln *net.TCPListener) int {
	t.Helper()
	n := -1
	if err := control(ln, func(fd int) error { n = fd; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

func rawSocket(t *testing.T, domain, kind int) int {
	t.Helper()
	fd, err := unix.Socket(domain, kind, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// with returns fds as a hostile.fds that closes what it made.
func with(made ...int) func() {
	return func() { closeAll(made) }
}

func hostiles() []hostile {
	line := func(text string) func(*testing.T, *net.UnixConn, Pair) {
		return func(t *testing.T, c *net.UnixConn, good Pair) {
			t.Helper()
			fds := []int{fdOf(t, good.HTTP), fdOf(t, good.SOCKS)}
			// Errors do not matter: the appliance may hang up meanwhile.
			n, _, err := c.WriteMsgUnix([]byte(text), unix.UnixRights(fds...), nil)
			if err == nil && n < len(text) {
				_, _ = c.Write([]byte(text)[n:])
			}
		}
	}
	replaceSocks := func(open func(t *testing.T) int) func(*testing.T, Pair) ([]int, func()) {
		return func(t *testing.T, good Pair) ([]int, func()) {
			t.Helper()
			fd := open(t)
			return []int{fdOf(t, good.HTTP), fd}, with(fd)
		}
	}
	return []hostile{
		{name: "no descriptors", code: CodeBadDescriptors, say: "0 descriptors", fds: func(*testing.T, Pair) ([]int, func()) { return nil, with() }},
		{name: "one descriptor", code: CodeBadDescriptors, say: "1 descriptors", fds: func(t *testing.T, good Pair) ([]int, func()) {
			t.Helper()
			return []int{fdOf(t, good.HTTP)}, with()
		}},
		{name: "three descriptors", code: CodeBadDescriptors, say: "3 descriptors", fds: func(t *testing.T, good Pair) ([]int, func()) {
			t.Helper()
			return []int{fdOf(t, good.HTTP), fdOf(t, good.SOCKS), fdOf(t, good.HTTP)}, with()
		}},
		{name: "two hundred descriptors", code: CodeBadDescriptors, say: "more than 12", fds: func(t *testing.T, good Pair) ([]int, func()) {
			t.Helper()
			fds := make([]int, 200)
			for i := range fds {
				fds[i] = fdOf(t, good.HTTP)
			}
			return fds, with()
		}},
		{name: "one listener twice", code: CodeBadDescriptors, say: "same listener", fds: func(t *testing.T, good Pair) ([]int, func()) {
			t.Helper()
			return []int{fdOf(t, good.HTTP), fdOf(t, good.HTTP)}, with()
		}},
		{name: "UDP socket", code: CodeBadDescriptors, say: "SOCKS listener is not a TCP socket", fds: replaceSocks(func(t *testing.T) int {
			t.Helper()
			return rawSocket(t, unix.AF_INET, unix.SOCK_DGRAM)
		})},
		{name: "socket that does not listen", code: CodeBadDescriptors, say: "is not listening", fds: replaceSocks(func(t *testing.T) int {
			t.Helper()
			return rawSocket(t, unix.AF_INET, unix.SOCK_STREAM)
		})},
		{name: "Unix listener", code: CodeBadDescriptors, say: "is not a TCP socket", fds: replaceSocks(func(t *testing.T) int {
			t.Helper()
			fd := rawSocket(t, unix.AF_UNIX, unix.SOCK_STREAM)
			path := filepath.Join(t.TempDir(), "s")
			if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
				t.Fatal(err)
			}
			if err := unix.Listen(fd, 1); err != nil {
				t.Fatal(err)
			}
			return fd
		})},
		{name: "plain file", code: CodeBadDescriptors, say: "is not a TCP socket", fds: replaceSocks(func(t *testing.T) int {
			t.Helper()
			fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			return fd
		})},
		{name: "listener on every address", code: CodeBadDescriptors, say: "loopback", fds: replaceSocks(func(t *testing.T) int {
			t.Helper()
			return listening(t, &unix.SockaddrInet4{})
		})},
		{name: "listener shared by SO_REUSEPORT", code: CodeBadDescriptors, say: "SO_REUSEPORT", fds: replaceSocks(func(t *testing.T) int {
			t.Helper()
			return listening(t, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}, unix.SO_REUSEPORT)
		})},
		{name: "connected socket", code: CodeBadDescriptors, say: "is not listening", fds: func(t *testing.T, good Pair) ([]int, func()) {
			t.Helper()
			c, err := net.Dial("tcp", good.HTTP.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			n := -1
			if err := control(c.(*net.TCPConn), func(fd int) error { n = fd; return nil }); err != nil {
				t.Fatal(err)
			}
			return []int{fdOf(t, good.HTTP), n}, func() { c.Close() }
		}},

		{name: "huge hello", code: CodeTooLarge, send: line(`{"version":1,"agent":"` + strings.Repeat("a", 2*MaxMessage) + `"}` + "\n")},
		{name: "endless hello", code: CodeTooLarge, send: func(_ *testing.T, c *net.UnixConn, _ Pair) {
			for {
				if _, err := c.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		}},
		{name: "unknown field", code: CodeBadRequest, say: `unknown field "networkenabled"`, send: line(`{"version":1,"spec":{"id":"a","networkenabled":false}}` + "\n")},
		{name: "field given twice", code: CodeBadRequest, say: `"id" is given twice`, send: line(`{"version":1,"spec":{"id":"a","id":"b"}}` + "\n")},
		{name: "null", code: CodeBadRequest, say: "null", send: line(`{"version":1,"spec":{"id":"a","networkEnabled":null}}` + "\n")},
		{name: "wrong version", code: CodeVersion, say: "version 2", send: line(`{"version":2,"spec":{"id":"a"},"new":1}` + "\n")},
		{name: "no version", code: CodeBadRequest, say: "version", send: line(`{"spec":{"id":"a"}}` + "\n")},
		{name: "bad id", code: CodeBadRequest, say: "session id", send: line(`{"version":1,"spec":{"id":"../a"}}` + "\n")},
		{name: "port 0 of this host", code: CodeBadRequest, say: "hostPorts", send: line(`{"version":1,"spec":{"id":"a"},"hostPorts":[5432,0]}` + "\n")},
		{name: "a port of this host that is none", code: CodeBadRequest, say: "hostPorts", send: line(`{"version":1,"spec":{"id":"a"},"hostPorts":[65536]}` + "\n")},
		{name: "too many ports of this host", code: CodeBadRequest, say: "hostPorts", send: line(`{"version":1,"spec":{"id":"a"},"hostPorts":[1` + strings.Repeat(",1", 64) + "]}\n")},
		{name: "listen in a lease", code: CodeBadRequest, say: "brings its own", send: line(`{"version":1,"spec":{"id":"a","listen":{"network":"tcp"}}}` + "\n")},
		{name: "not JSON", code: CodeBadRequest, send: line("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
		{name: "empty line", code: CodeBadRequest, say: "incomplete", send: line("\n")},
		{name: "array", code: CodeBadRequest, say: "not an object", send: line("[]\n")},
		{name: "two lines", code: CodeBadRequest, say: "follows", send: line(goodHello + goodHello)},
		{name: "half a line and the end", code: CodeBadRequest, say: "ended before", send: func(t *testing.T, c *net.UnixConn, good Pair) {
			t.Helper()
			line(`{"version":1,`)(t, c, good)
			_ = c.CloseWrite()
		}},
		{name: "half a line and silence", code: CodeTimeout, say: "in time", send: line(`{"version":1,`)},
		{name: "nothing", code: CodeTimeout, send: func(*testing.T, *net.UnixConn, Pair) {}},
		{name: "a byte now and then", code: CodeTimeout, send: func(_ *testing.T, c *net.UnixConn, _ Pair) {
			for {
				if _, err := c.Write([]byte(" ")); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}},
		{name: "descriptors in dribs", code: CodeBadDescriptors, say: "more than 12", send: func(t *testing.T, c *net.UnixConn, good Pair) {
			t.Helper()
			for range 13 {
				if _, _, err := c.WriteMsgUnix([]byte("{"), unix.UnixRights(fdOf(t, good.HTTP)), nil); err != nil {
					return
				}
			}
		}},
		{name: "another user", code: CodeNotPermitted, say: "user", send: line(goodHello), who: func(*net.UnixConn) (Peer, error) {
			return Peer{UID: os.Geteuid() + 1, PID: 1}, nil
		}},
	}
}

// listening makes a listening socket with the given SOL_SOCKET options on.
func listening(t *testing.T, at unix.Sockaddr, options ...int) int {
	t.Helper()
	fd := rawSocket(t, unix.AF_INET, unix.SOCK_STREAM)
	for _, opt := range options {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Bind(fd, at); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	return fd
}

// Every hostile peer is refused with its code, is told so, and leaves no
// descriptor behind.
func TestHostilePeers(t *testing.T) {
	for _, h := range hostiles() {
		t.Run(h.name, func(t *testing.T) {
			ln, path := socket(t)
			good := newPair(t)
			before := openDescriptors(t)

			served := serve(t, ln, &Acceptor{Timeout: 300 * time.Millisecond, Credentials: h.who})
			c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			sent := make(chan struct{})
			end := func() {}
			if h.send == nil {
				var fds []int
				fds, end = h.fds(t, good)
				h.send = func(t *testing.T, c *net.UnixConn, _ Pair) {
					t.Helper()
					if _, _, err := c.WriteMsgUnix([]byte(goodHello), unix.UnixRights(fds...), nil); err != nil {
						t.Error(err)
					}
				}
			}
			go func() { defer close(sent); h.send(t, c, good) }()

			r := <-served
			var refused *RefusedError
			if !errors.As(r.err, &refused) {
				t.Fatalf("accepted, or failed otherwise: %v", r.err)
			}
			if refused.Code != h.code || !strings.Contains(refused.Message, h.say) {
				t.Errorf("refused with %v, want code %s and %q", refused, h.code, h.say)
			}
			<-sent
			// The peer hears the same.
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
			var a Answer
			if err := json.NewDecoder(bufio.NewReader(c)).Decode(&a); err != nil {
				t.Errorf("the peer got no answer: %v", err)
			} else if a.OK || a.Error == nil || a.Error.Code != h.code {
				t.Errorf("the peer was told %v", a)
			}
			c.Close()
			end()
			if after := openDescriptors(t); after != before {
				t.Errorf("%d descriptors open, %d before", after, before)
			}
		})
	}
}

// What a launcher says after its hello and is no report ends the lease, and descriptors
// it sends then are closed unseen.
func TestAfterTheHello(t *testing.T) {
	ln, path := socket(t)
	good := newPair(t)
	served := grant(t, ln, Answer{OK: true})
	l, err := Lend(ctx(t), path, Hello{Spec: Spec{ID: "a"}}, good)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := <-served
	if r.err != nil {
		t.Fatal(r.err)
	}
	defer r.req.Close()
	before := openDescriptors(t)
	if _, _, err := l.conn.WriteMsgUnix([]byte("x\n"), unix.UnixRights(fdOf(t, good.HTTP)), nil); err != nil {
		t.Fatal(err)
	}
	r.req.Wait()
	<-l.Done()
	// Both ends of the connection are gone, and nothing came.
	if after := openDescriptors(t); after != before-2 {
		t.Errorf("%d descriptors open, want %d", after, before-2)
	}
}

// A launcher that does not read costs its own lease, not the appliance's time.
func TestSendToDeafLauncher(t *testing.T) {
	ln, path := socket(t)
	served := serve(t, ln, &Acceptor{Timeout: 100 * time.Millisecond})
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := send(c, []byte(goodHello), newPair(t), nil); err != nil {
		t.Fatal(err)
	}
	r := <-served
	if r.err != nil {
		t.Fatal(r.err)
	}
	defer r.req.Close()
	big := Event{Type: EventPush, Fields: map[string]any{"text": strings.Repeat("x", 32<<10)}}
	deadline := time.Now().Add(10 * time.Second)
	for r.req.Send(big) == nil {
		if time.Now().After(deadline) {
			t.Fatal("a peer that does not read takes events for ever")
		}
	}
	r.req.Wait()
}

// A launcher that looks away loses events and is told how many.
func TestEventsAreDroppedNotQueuedForEver(t *testing.T) {
	ln, path := socket(t)
	served := grant(t, ln, Answer{OK: true})
	l, err := Lend(ctx(t), path, Hello{Spec: Spec{ID: "a"}}, newPair(t))
	if err != nil {
		t.Fatal(err)
	}
	r := <-served
	for i := range eventQueue + 10 {
		if err := r.req.Send(Event{Type: EventDenied, Fields: map[string]any{"n": i}}); err != nil {
			t.Fatal(err)
		}
	}
	r.req.Close()
	<-l.Done()
	n := 0
	for range l.Events() {
		n++
	}
	if n != eventQueue || l.Dropped() != 10 {
		t.Errorf("%d events read, %d dropped; want %d and 10", n, l.Dropped(), eventQueue)
	}
	l.Close()
}

func TestRefuse(t *testing.T) {
	ln, path := socket(t)
	in := serve(t, ln, &Acceptor{})
	go func() {
		r := <-in
		if r.err == nil {
			_ = r.req.Refuse(CodeInUse, `session "a" is open`)
			r.req.Close()
		}
	}()
	_, err := Lend(ctx(t), path, Hello{Spec: Spec{ID: "a"}}, newPair(t))
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Code != CodeInUse || !strings.Contains(refused.Message, "is open") {
		t.Errorf("got %v", err)
	}
}

// A launcher does not lend to a socket of somebody else's making, which it
// notices at the first sentence that is not an answer.
func TestHostileAppliance(t *testing.T) {
	for name, reply := range map[string]string{
		"silence":             "",
		"not JSON":            "hello\n",
		"neither yes nor no":  "{}\n",
		"half an answer":      `{"ok":tr`,
		"endless answer":      strings.Repeat("x", 2*MaxMessage),
		"answer without line": `{"ok":true}`,
	} {
		t.Run(name, func(t *testing.T) {
			ln, path := socket(t)
			done := make(chan struct{})
			go func() {
				defer close(done)
				c, err := ln.AcceptUnix()
				if err != nil {
					return
				}
				defer c.Close()
				_, _ = c.Read(make([]byte, 4096))
				_, _ = c.Write([]byte(reply))
			}()
			l, err := Lend(ctx(t), path, Hello{Spec: Spec{ID: "a"}}, newPair(t))
			if err == nil {
				l.Close()
				t.Error("granted")
			}
			<-done
		})
	}
}

func TestLendStopsWithItsContext(t *testing.T) {
	ln, path := socket(t)
	served := serve(t, ln, &Acceptor{}) // takes the hello and never answers
	c, cancel := contextWith(t, 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := Lend(c, path, Hello{Spec: Spec{ID: "a"}}, newPair(t)); !errors.Is(err, c.Err()) || err == nil {
		t.Errorf("got %v, want the context's error", err)
	}
	if d := time.Since(start); d > 3*time.Second {
		t.Errorf("took %v", d)
	}
	if r := <-served; r.err == nil {
		r.req.Close()
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	const token = "ghs_verysecret"
	a := Answer{OK: true, ReadToken: token, Session: Info{ID: "a"}}
	r := Resume{ReadToken: token}
	h := Hello{Resume: &r}
	var log strings.Builder
	logTo(&log, a, r)
	for _, text := range []string{
		fmt.Sprintf("%v %+v %#v %s", a, a, a, a), fmt.Sprintf("%v %+v %#v %s", r, r, r, r),
		fmt.Sprintf("%v %+v", h, h), log.String(),
	} {
		if strings.Contains(text, token) {
			t.Errorf("the token is in %q", text)
		}
	}
	if !strings.Contains(log.String(), redacted) {
		t.Errorf("log says nothing of the token: %s", &log)
	}
}
