package session

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/session/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// runDir makes a run directory whose path is short enough for sockets.
func runDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "run") //nolint:usetesting // TempDir has the test's name in it
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir // of mode 0700, as MkdirTemp makes them
}

// newRegistry makes a registry that is closed with the test.
func newRegistry(tb testing.TB) *Registry {
	tb.Helper()
	return newRegistryIn(tb, runDir(tb))
}

func newRegistryIn(tb testing.TB, dir string) *Registry {
	tb.Helper()
	r := New(Options{RunDir: dir})
	tb.Cleanup(func() {
		if err := r.Destruct(); err != nil {
			tb.Errorf("destruct: %v", err)
		}
	})
	return r
}

// rules parses an allowlist.
func rules(tb testing.TB, lines ...string) []policy.Rule {
	tb.Helper()
	var all []policy.Rule
	for i, line := range lines {
		rule, err := policy.ParseRule(line, policy.Origin{File: "test.list", Line: i + 1})
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, rule)
	}
	return all
}

// set compiles a policy that allows the lines.
func set(tb testing.TB, r *Registry, lines ...string) *policy.Set {
	tb.Helper()
	s, err := policy.Compile(policy.Lists{Allow: rules(tb, lines...)}, r.Own)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// generation is one with the policy agent, which is the default and allows the
// lines, and the policy other, which allows nothing.
func generation(tb testing.TB, r *Registry, lines ...string) *Generation {
	tb.Helper()
	return &Generation{
		Policies:      map[string]*policy.Set{"agent": set(tb, r, lines...), "other": set(tb, r)},
		DefaultPolicy: "agent",
		Resolver:      noNames{},
		LocalHosts:    []string{"git.internal"},
		Forges:        []string{"github.com"},
	}
}

// noNames is a resolver that must not be asked: the tests dial addresses.
type noNames struct{}

func (noNames) Resolve(_ context.Context, name string) ([]netip.Addr, error) {
	return nil, fmt.Errorf("asked for %s", name)
}

// echo starts a server that sends back what it gets.
func echo(tb testing.TB) string {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var open sync.WaitGroup
	var mu sync.Mutex
	conns := map[net.Conn]bool{}
	open.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns[c] = true
			mu.Unlock()
			open.Go(func() {
				_, _ = io.Copy(c, c)
				c.Close()
				mu.Lock()
				delete(conns, c)
				mu.Unlock()
			})
		}
	})
	tb.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for c := range conns {
			c.Close()
		}
		mu.Unlock()
		open.Wait()
	})
	return ln.Addr().String()
}

// rule is the allowlist line for an address of echo.
func rule(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return host + " " + port
}

// tunnel is a CONNECT through a session's proxy that was answered.
type tunnel struct {
	net.Conn
	br     *bufio.Reader
	status int
	reason string // of the header
	phrase string
	body   string
}

// connect asks the proxy at proxy for target and returns the answer, whatever
// it is.
func connect(tb testing.TB, network, proxy, target string) *tunnel {
	tb.Helper()
	c, err := net.DialTimeout(network, proxy, patience)
	if err != nil {
		tb.Fatalf("dial the proxy: %v", err)
	}
	tb.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	return readAnswer(tb, c)
}

func readAnswer(tb testing.TB, c net.Conn) *tunnel {
	tb.Helper()
	tun := &tunnel{Conn: c, br: bufio.NewReader(c)}
	resp, err := http.ReadResponse(tun.br, &http.Request{Method: http.MethodConnect})
	if err != nil {
		tb.Fatalf("read the proxy's answer: %v", err)
	}
	defer resp.Body.Close()
	tun.status, tun.phrase, tun.reason = resp.StatusCode, resp.Status, resp.Header.Get("Postern-Reason")
	if tun.status != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		tun.body = string(body)
	}
	return tun
}

// alive reports whether bytes still go round.
func (tun *tunnel) alive() bool {
	_ = tun.SetDeadline(time.Now().Add(patience))
	if _, err := tun.Write([]byte("ping")); err != nil {
		return false
	}
	buf := make([]byte, 4)
	_, err := io.ReadFull(tun.br, buf)
	return err == nil && string(buf) == "ping"
}

// cut waits until the tunnel has ended.
func (tun *tunnel) cut(tb testing.TB) {
	tb.Helper()
	_ = tun.SetDeadline(time.Now().Add(patience))
	if _, err := tun.br.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		tb.Errorf("the tunnel is still open (%v)", err)
	}
}

// open opens an API session and returns its info.
func open(tb testing.TB, r *Registry, spec lease.Spec) Info {
	tb.Helper()
	a, err := r.Open(tb.Context(), spec, os.Geteuid())
	if err != nil {
		tb.Fatal(err)
	}
	return a.Session
}

// codeOf is the code of a *lease.Error, "" for none.
func codeOf(err error) string {
	if e, ok := errors.AsType[*lease.Error](err); ok {
		return e.Code
	}
	if refused, ok := errors.AsType[*lease.RefusedError](err); ok {
		return refused.Code
	}
	return ""
}

// eventually waits for f.
func eventually(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("never happened: %s", what)
		}
	}
}

// doors opens both sockets and returns the path of lease.sock.
func openDoors(tb testing.TB, r *Registry) string {
	tb.Helper()
	if err := r.Listen(); err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(r.options.RunDir, LeaseSocket)
}

// newPair makes two listeners as a launcher does; pair closes them at the end of
// the test.
func newPair(t *testing.T) lease.Pair {
	t.Helper()
	var p lease.Pair
	for _, ln := range []**net.TCPListener{&p.HTTP, &p.SOCKS} {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		*ln = l
	}
	return p
}

func pair(t *testing.T) lease.Pair {
	t.Helper()
	p := newPair(t)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// lend lends with patience.
func lend(tb testing.TB, path string, h lease.Hello, p lease.Pair) (*lease.Lease, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	l, err := lease.Lend(ctx, path, h, p)
	if err == nil {
		tb.Cleanup(func() { l.Close() })
	}
	return l, err
}

// forge is a broker that counts.
type forge struct {
	mu      sync.Mutex
	minted  []string
	adopted []string
	live    map[string]bool

	mint func(ctx context.Context, repository string) error // nil: succeeds
	n    atomic.Int64
}

// onMint makes mint decide, from now on.
func (f *forge) onMint(mint func(ctx context.Context, repository string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mint = mint
}

func newForge() *forge { return &forge{live: map[string]bool{}} }

func (f *forge) Mint(ctx context.Context, repository string) (string, time.Time, func(context.Context) error, error) {
	f.mu.Lock()
	mint := f.mint
	f.mu.Unlock()
	if mint != nil {
		if err := mint(ctx, repository); err != nil {
			return "", time.Time{}, nil, err
		}
	}
	value := fmt.Sprintf("secret-%d", f.n.Add(1))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.minted = append(f.minted, repository)
	f.live[value] = true
	return value, time.Now().Add(time.Hour), f.revoker(value), nil
}

func (f *forge) Adopt(value string) func(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.adopted = append(f.adopted, value)
	f.live[value] = true
	return f.revoker(value)
}

func (f *forge) revoker(value string) func(context.Context) error {
	return func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.live, value)
		return nil
	}
}

// alive is the number of tokens that can be used.
func (f *forge) alive() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.live)
}

// sink collects events.
type sink struct {
	mu  sync.Mutex
	all []lease.Event
}

func (s *sink) add(e lease.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, e)
}

// of returns the events of a type, session or not.
func (s *sink) of(kind string) []lease.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var some []lease.Event
	for _, e := range s.all {
		if e.Type == kind {
			some = append(some, e)
		}
	}
	return some
}
