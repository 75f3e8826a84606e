//go:build linux

package integration_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
	"postern/integration/netlab"
)

// soakLoad is all that goes on.
type soakLoad struct {
	t     *testing.T
	run   string
	caddy *soaked
	life  time.Duration // of a tunnel, on average
	hello []byte        // for h1.soak.example

	stop      chan struct{}
	wg        sync.WaitGroup
	slots     []atomic.Pointer[soakSession]
	tunnelsUp int
	number    atomic.Int64

	sure, perhaps atomic.Int64 // connections with a verdict, and such that ended before one
	did           tally
	wrong         *faults
}

// soakSession is a session that may be gone.
type soakSession struct {
	id, http, socks string
	gone            atomic.Bool
	end             func()
}

// tally counts by name.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[name]++
}

// turn counts, and says how often it did.
func (c *tally) turn(name string) int {
	c.add(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

func (c *tally) get(name string) int { return c.n[name] }

func (c *tally) names() iter.Seq[string] { return maps.Keys(c.n) }

func newSoakLoad(t *testing.T, sessions, tunnels int, length time.Duration) *soakLoad {
	t.Helper()
	return &soakLoad{
		t: t, run: runDir(t), life: min(30*time.Second, length/6), hello: clientHello(t, "h1.soak.example"),
		stop: make(chan struct{}), slots: make([]atomic.Pointer[soakSession], sessions), tunnelsUp: tunnels,
		did: tally{n: map[string]int{}}, wrong: new(faults),
	}
}

// clientHello is what a client of TLS says first.
func clientHello(t *testing.T, name string) []byte {
	t.Helper()
	here, there := net.Pipe()
	go func() {
		_ = tls.Client(there, &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12}).Handshake()
	}()
	buf := make([]byte, 16<<10)
	n, err := here.Read(buf)
	if err := errors.Join(err, here.Close(), there.Close()); err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

// soakOrigins are the far side: names, and echoes on the ports.
func soakOrigins(t *testing.T) (closeAll func()) {
	t.Helper()
	names, err := netlab.ListenDNS(netip.MustParseAddr("9.9.9.9"))
	if err != nil {
		t.Fatal(err)
	}
	names.SetDefault(soakNames)
	var all []net.Listener
	for _, port := range []string{"80", "443", "8443"} {
		ln, err := net.Listen("tcp4", "0.0.0.0:"+port)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ln)
		go echoOn(ln)
	}
	forget := time.NewTicker(10 * time.Second)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-forget.C:
				names.Forget()
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		forget.Stop()
		for _, ln := range all {
			_ = ln.Close()
		}
		names.Close()
	}
}

// open opens a session over the door whose turn it is: lent listeners, sockets, ports.
func (l *soakLoad) open(t *testing.T, turn int) *soakSession {
	t.Helper()
	s := &soakSession{id: fmt.Sprintf("soak-%d", l.number.Add(1))}
	if turn%5 < 3 {
		h, k := listenTCP(t), listenTCP(t)
		held, err := lease.Lend(t.Context(), filepath.Join(l.run, "lease.sock"), lease.Hello{Spec: lease.Spec{ID: s.id}}, lease.Pair{HTTP: h, SOCKS: k})
		if err != nil {
			l.wrong.add(err)
			return nil
		}
		l.did.add("sessions opened, listeners lent")
		s.http, s.socks = h.Addr().String(), k.Addr().String()
		s.end = func() {
			_ = held.Close()
			_ = h.Close()
			_ = k.Close()
		}
		return s
	}
	network := []string{"unix", "tcp"}[turn%5-3]
	got, err := control(t, l.run, http.MethodPut, "/v1/sessions/"+s.id, fmt.Sprintf(`{"listen": {"network": %q}}`, network))
	var opened lease.Answer
	if err == nil && got.status != http.StatusCreated {
		err = fmt.Errorf("%+v", got)
	}
	if err == nil {
		err = json.Unmarshal([]byte(got.body), &opened)
	}
	if err != nil {
		l.wrong.add(fmt.Errorf("open a session at %s: %w", network, err))
		return nil
	}
	l.did.add("sessions opened at the control API, " + network)
	s.http, s.socks = opened.Session.HTTP, opened.Session.SOCKS
	s.end = func() {
		if got, err := control(t, l.run, http.MethodDelete, "/v1/sessions/"+s.id, ""); err != nil || got.status != http.StatusNoContent {
			l.wrong.add(fmt.Errorf("end a session: %+v %w", got, err))
		}
	}
	return s
}

// start opens the sessions, and begins with everything else.
func (l *soakLoad) start() {
	for i := range l.slots {
		l.slots[i].Store(l.open(l.t, i))
	}
	for range l.tunnelsUp {
		l.wg.Go(func() {
			if l.wait(l.life) { // not all at once
				l.every(0, l.hold)
			}
		})
	}
	for _, c := range []struct {
		workers int
		every   time.Duration
		once    func()
	}{
		{2, 50 * time.Millisecond, l.refused},
		{2, 50 * time.Millisecond, l.plain},
		{2, 100 * time.Millisecond, l.unresolved},
		{20, 100 * time.Millisecond, l.slowHead},
		{20, 100 * time.Millisecond, l.slowHello},
		{2, 50 * time.Millisecond, l.reset},
		{1, 500 * time.Millisecond, l.replace},
		{1, 300 * time.Millisecond, l.change},
		{1, 5 * time.Second, l.reload},
	} {
		for range c.workers {
			l.wg.Go(func() { l.every(c.every, c.once) })
		}
	}
}

// finish ends everything, sessions last.
func (l *soakLoad) finish() {
	close(l.stop)
	l.wg.Wait()
	for i := range l.slots {
		if s := l.slots[i].Load(); s != nil {
			s.end()
		}
	}
}

// wait waits for twice d at most, and reports whether to go on.
func (l *soakLoad) wait(d time.Duration) bool {
	timer := time.NewTimer(rand.N(2*d + 1))
	defer timer.Stop()
	select {
	case <-l.stop:
		return false
	case <-timer.C:
		return true
	}
}

func (l *soakLoad) every(d time.Duration, once func()) {
	for l.wait(d) {
		once()
	}
}

func (l *soakLoad) session() *soakSession {
	for {
		if s := l.slots[rand.IntN(len(l.slots))].Load(); s != nil {
			return s
		}
	}
}

// ended counts a connection. Without an error it had a verdict; with one it is a fault
// unless its session is gone.
func (l *soakLoad) ended(what string, s *soakSession, err error) bool {
	switch {
	case err == nil:
		l.sure.Add(1)
	case s.gone.Load():
		what += ", cut with the session"
		l.perhaps.Add(1)
	default:
		l.perhaps.Add(1)
		l.wrong.add(fmt.Errorf("%s: %w", what, err))
	}
	l.did.add(what)
	return err == nil
}

// hold keeps a tunnel for a while, and ends it in one of the ways there are.
func (l *soakLoad) hold() {
	s, host := l.session(), fmt.Sprintf("h%d.soak.example", rand.IntN(10))
	var conn net.Conn
	var err error
	say, what := "hello", "tunnels by CONNECT"
	switch rand.IntN(3) {
	case 0:
		var status int
		conn, status, err = openTunnel(s.http, host+":8443")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d", status)
		}
	case 1:
		what, say = "tunnels by CONNECT, TLS", string(l.hello)
		var status int
		conn, status, err = openTunnel(s.http, "h1.soak.example:443")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d", status)
		}
	default:
		what = "tunnels by SOCKS5"
		var answer byte
		conn, answer, err = openSOCKS(s.socks, host+":8443")
		if err == nil && answer != 0 {
			err = fmt.Errorf("answer %d", answer)
		}
	}
	if conn != nil {
		defer conn.Close()
	}
	if !l.ended(what, s, err) {
		return
	}
	t := &tunnel{conn: conn}
	for range 2 {
		if err := t.tryEcho(say); err != nil {
			if !s.gone.Load() {
				l.wrong.add(fmt.Errorf("%s: %w", what, err))
			}
			return
		}
		say = "again"
		if !l.wait(l.life / 2) {
			return
		}
	}
	type halves interface{ CloseWrite() error }
	switch tcp, _ := conn.(*net.TCPConn); rand.IntN(4) {
	case 0:
		if tcp != nil {
			_ = tcp.SetLinger(0)
		}
	case 1:
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_ = conn.(halves).CloseWrite() //nolint:forcetypeassert // both kinds have it
		_, _ = io.Copy(io.Discard, conn)
	}
}

func (l *soakLoad) refused() {
	s := l.session()
	for name, ask := range map[string]func() (bool, error){
		"CONNECT":    func() (bool, error) { return askConnect(s.http, "denied.example:443") },
		"plain HTTP": func() (bool, error) { return askPlain(s.http, "denied.example") },
		"SOCKS5":     func() (bool, error) { return askSOCKS5(s.socks, "h1.soak.example:22") },
	} {
		allowed, err := ask()
		if err == nil && allowed {
			l.wrong.add(fmt.Errorf("%s: allowed", name))
		}
		l.ended("refusals, "+name, s, err)
	}
}

func (l *soakLoad) plain() {
	s := l.session()
	allowed, err := askPlain(s.http, "h2.soak.example")
	if err == nil && !allowed {
		err = errors.New("refused")
	}
	l.ended("plain requests", s, err)
}

// unresolved asks for names whose lookup fails, or leads where nobody may go.
func (l *soakLoad) unresolved() {
	s, name := l.session(), []string{"servfail", "silent", "private", "none", "slow"}[rand.IntN(5)]
	conn, err := dialProxy(s.http)
	if err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, err = fmt.Fprintf(conn, "CONNECT %s.soak.example:8443 HTTP/1.1\r\nHost: x\r\n\r\n", name)
	}
	status := make([]byte, 12)
	if err == nil {
		_, err = io.ReadFull(conn, status)
	}
	if name != "slow" && err == nil && string(status[9:]) == "200" {
		err = errors.New("status 200")
	}
	l.ended("lookups that fail: "+name, s, err)
}

// slowHead says a head letter by letter, and is to be cut off.
func (l *soakLoad) slowHead() {
	s := l.session()
	conn, err := dialProxy(s.http)
	if err == nil {
		err = l.drip(conn, []byte("CONNECT h1.soak.example:443 HTTP/1.1\r\nX-Long: "))
	}
	l.did.add("slow heads")
	if err != nil && !s.gone.Load() {
		l.wrong.add(fmt.Errorf("a slow head: %w", err))
	}
}

func (l *soakLoad) slowHello() {
	s := l.session()
	conn, status, err := openTunnel(s.http, "h1.soak.example:443")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d", status)
	}
	if l.ended("slow ClientHellos", s, err) {
		if err := l.drip(conn, l.hello); err != nil {
			l.wrong.add(fmt.Errorf("a slow ClientHello: %w", err))
		}
	} else if conn != nil {
		_ = conn.Close()
	}
}

// drip sends text slowly until the other side has enough; an error says that it has not.
func (l *soakLoad) drip(conn net.Conn, text []byte) error {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	over := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, conn)
		over <- err
	}()
	for _, b := range text {
		_, _ = conn.Write([]byte{b})
		timer := time.NewTimer(500 * time.Millisecond)
		select {
		case err := <-over:
			timer.Stop()
			if slow, ok := errors.AsType[net.Error](err); ok && slow.Timeout() {
				return errors.New("it was never cut")
			}
			return nil
		case <-timer.C:
		}
	}
	return errors.New("it was heard to its end")
}

// reset breaks connections off, before and in the middle of what they want.
func (l *soakLoad) reset() {
	s := l.session()
	conn, err := dialProxy(s.http)
	if err != nil {
		return
	}
	text := "CONNECT h3.soak.example:8443 HTTP/1.1\r\nHost: x\r\n\r\n"
	if rand.IntN(2) == 0 {
		text = text[:20]
	} else {
		l.perhaps.Add(1)
	}
	_, _ = io.WriteString(conn, text)
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
	l.did.add("resets")
}

// replace puts a new session in the place of another, which ends.
func (l *soakLoad) replace() {
	i := rand.IntN(len(l.slots))
	s := l.open(l.t, i)
	if s == nil {
		return
	}
	if old := l.slots[i].Swap(s); old != nil {
		old.gone.Store(true)
		old.end()
	}
	l.did.add("sessions replaced")
}

// change patches a session, or grants it more.
func (l *soakLoad) change() {
	s := l.session()
	method, path, body, want := http.MethodPatch, "", fmt.Sprintf(`{"egressAllowlist": ["x%d.example 443"]}`, rand.IntN(100)), http.StatusOK
	if rand.IntN(2) == 0 {
		method, path, body, want = http.MethodPost, "/grants", `{"allow": ["granted.example 443"], "seconds": 5}`, http.StatusCreated
	}
	got, err := control(l.t, l.run, method, "/v1/sessions/"+s.id+path, body)
	if (err != nil || got.status != want) && !s.gone.Load() {
		l.wrong.add(fmt.Errorf("change a session: %+v %w", got, err))
	}
	l.did.add("sessions changed")
}

func (l *soakLoad) reload() {
	turn := l.did.turn("reloads")
	got, err := unixRequest(l.t, filepath.Join(l.run, "admin.sock"), http.MethodPost, "/load", soakConfig(turn))
	if err != nil || got.status != http.StatusOK {
		l.wrong.add(fmt.Errorf("reload: %+v %w", got, err))
	}
}
