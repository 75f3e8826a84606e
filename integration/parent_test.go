//go:build linux

package integration_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
	"postern/integration/netlab"
)

// TestParentProxy runs the appliance in a network that has a proxy to go through: what
// is allowed goes there, by the address that was vetted, and nothing else does.
func TestParentProxy(t *testing.T) {
	if !netlab.Inside() {
		t.Setenv(caddyEnv, buildCaddy(t))
	}
	netlab.Run(t, func(*netlab.Lab) {
		w := newParentWorld(t)
		for _, scheme := range []string{"http", "socks5"} {
			t.Run(scheme, func(t *testing.T) { w.goesThrough(t, scheme) })
			t.Run(scheme+" with other credentials", func(t *testing.T) { w.refuses(t, scheme) })
			t.Run(scheme+" dead", func(t *testing.T) { w.isDead(t, scheme) })
		}
	})
}

const parentLogin = "ada:s3cret"

var (
	parentAt = netip.MustParseAddr("10.20.30.40")
	resolver = netip.MustParseAddr("9.9.9.9")
)

// parentWorld is what stands around the appliance: names, an origin that answers for
// every address, and a parent of each kind.
type parentWorld struct {
	dns   *netlab.DNS
	ports map[string]string // of the parents, by scheme

	mu   sync.Mutex
	seen []string // what the parents were asked for
}

func newParentWorld(t *testing.T) *parentWorld {
	t.Helper()
	w := &parentWorld{ports: map[string]string{}}
	var err error
	if w.dns, err = netlab.ListenDNS(resolver); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.dns.Close)
	for name, addr := range map[string]string{
		"allowed.example": "93.184.216.34", "direct.example": "93.184.216.35", "denied.example": "93.184.216.36",
		"near.example": "93.184.217.7", "inside.example": "10.0.0.7",
	} {
		w.dns.Set(name, netlab.Addrs(addr))
	}
	w.listen(t, "0.0.0.0:80", func(conn net.Conn) {
		if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			text := "origin at " + conn.LocalAddr().String() + " for " + req.Host
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text)
		}
	})
	w.ports["http"] = w.listen(t, parentAt.String()+":0", w.serveHTTP)
	w.ports["socks5"] = w.listen(t, parentAt.String()+":0", w.serveSOCKS)
	return w
}

// listen serves an address to the test's end, and gives its port.
func (w *parentWorld) listen(t *testing.T, addr string, serve func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
				serve(conn)
			}()
		}
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

func (w *parentWorld) note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, text)
}

// asked gives what the parents were asked for since the last time.
func (w *parentWorld) asked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = nil
	return seen
}

// serveHTTP is a parent that takes CONNECT, from who is known.
func (w *parentWorld) serveHTTP(conn net.Conn) {
	in := bufio.NewReader(conn)
	req, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	login := req.Header.Get("Proxy-Authorization")
	w.note(req.Method + " " + req.RequestURI + " Host: " + req.Host + " " + login)
	if login != "Basic "+base64.StdEncoding.EncodeToString([]byte(parentLogin)) {
		_, _ = io.WriteString(conn, "HTTP/1.1 407 Who are you, at "+parentAt.String()+"\r\nContent-Length: 0\r\n\r\n")
		return
	}
	up, err := net.DialTimeout("tcp", req.RequestURI, 10*time.Second)
	if err != nil {
		return
	}
	defer up.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	both(conn, in, up)
}

// serveSOCKS is the same in SOCKS5, with RFC 1929.
func (w *parentWorld) serveSOCKS(conn net.Conn) {
	in := bufio.NewReader(conn)
	read := func(n int) []byte {
		b := make([]byte, n)
		_, _ = io.ReadFull(in, b) // what is missing is zero, and refused
		return b
	}
	if methods := read(int(read(2)[1])); !slices.Contains(methods, 2) {
		w.note("SOCKS without a login")
		return
	}
	_, _ = conn.Write([]byte{5, 2})
	user := string(read(int(read(2)[1])))
	login := user + ":" + string(read(int(read(1)[0])))
	if login != parentLogin {
		w.note("SOCKS by " + login)
		_, _ = conn.Write([]byte{1, 1})
		return
	}
	_, _ = conn.Write([]byte{1, 0})
	head := read(4)
	host := "a name"
	if head[3] == 1 {
		host = netip.AddrFrom4([4]byte(read(4))).String()
	}
	port := read(2)
	to := net.JoinHostPort(host, strconv.Itoa(int(port[0])<<8|int(port[1])))
	w.note("SOCKS " + to + " by " + login)
	up, err := net.DialTimeout("tcp", to, 10*time.Second)
	if err != nil {
		return
	}
	defer up.Close()
	_, _ = conn.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	both(conn, in, up)
}

// both copies both ways until the origin has said all.
func both(client net.Conn, in io.Reader, up net.Conn) {
	go func() { _, _ = io.Copy(up, in) }()
	_, _ = io.Copy(client, up)
}

// run starts an appliance with the parent at a port, and a session in it.
func (w *parentWorld) run(t *testing.T, scheme, port, login string) (proxy string, a *appliance, auth string) {
	t.Helper()
	run := runDir(t)
	auth = filepath.Join(run, "parent-auth")
	if err := os.WriteFile(auth, []byte(login+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(run, "Caddyfile")
	text := fmt.Sprintf(`{
	persist_config off
	egress {
		dns %s
		upstream %s://%s:%s {
			auth_file %s
			no_proxy direct.example 93.184.217.0/24
		}
		policy agent {
			allow allowed.example direct.example near.example inside.example
		}
	}
}
`, resolver, scheme, parentAt, port, auth)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a = startAppliance(t, buildCaddy(t), run, config)
	httpLn, socksLn := listenTCP(t), listenTCP(t)
	lend(t, run, lease.Hello{Version: lease.Version, PID: os.Getpid(), Spec: lease.Spec{ID: "run"}}, httpLn, socksLn)
	w.asked()
	w.dns.Forget()
	return httpLn.Addr().String(), a, auth
}

// get sends a plain request for a host by the proxy, and gives the answer's status,
// reason and text.
func get(t *testing.T, proxy, host string) (status int, reason, text string) {
	t.Helper()
	conn, err := dialProxy(proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET http://%s/ HTTP/1.1\r\nHost: %[1]s\r\nConnection: close\r\n\r\n", host); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Postern-Reason"), resp.Status + "\n" + string(body)
}

func (w *parentWorld) goesThrough(t *testing.T, scheme string) {
	t.Helper()
	proxy, a, _ := w.run(t, scheme, w.ports[scheme], parentLogin)
	through := "SOCKS 93.184.216.34:80 by " + parentLogin
	if scheme == "http" {
		through = "CONNECT 93.184.216.34:80 Host: 93.184.216.34:80 Basic " + base64.StdEncoding.EncodeToString([]byte(parentLogin))
	}
	for _, c := range []struct{ host, says, asks string }{
		{"allowed.example", "origin at 93.184.216.34:80 for allowed.example", through},
		{"direct.example", "origin at 93.184.216.35:80 for direct.example", ""},
		{"near.example", "origin at 93.184.217.7:80 for near.example", ""},
	} {
		// As a plain request, and in a tunnel.
		if status, reason, text := get(t, proxy, c.host); status != http.StatusOK || !strings.Contains(text, c.says) {
			t.Errorf("%s: %s %s", c.host, reason, text)
		}
		if got := fetchThrough(t, proxy, c.host+":80"); !strings.HasPrefix(got, c.says) {
			t.Errorf("%s in a tunnel: %s", c.host, got)
		}
		var want []string
		if c.asks != "" {
			want = []string{c.asks, c.asks}
		}
		if got := w.asked(); !slices.Equal(got, want) {
			t.Errorf("%s: the parent was asked %q, want %q", c.host, got, want)
		}
	}
	for host, want := range map[string]string{"denied.example": "not_allowed", "inside.example": "address_class", "169.254.169.254": "always_denied"} {
		if status, reason, text := get(t, proxy, host); status != http.StatusForbidden || reason != want {
			t.Errorf("%s: %s %s", host, reason, text)
		}
		if status := dialThrough(t, proxy, host+":443"); status != http.StatusForbidden {
			t.Errorf("%s in a tunnel: %d", host, status)
		}
	}
	if got := w.asked(); len(got) > 0 {
		t.Errorf("the parent heard of what is refused: %q", got)
	}
	for _, q := range w.dns.Queries() {
		if strings.HasPrefix(q.Name, "denied.") {
			t.Errorf("looked up: %s", q)
		}
	}
	if strings.Contains(a.output.String(), "s3cret") {
		t.Error("the credentials are in the log")
	}
}

// refuses is a parent that does not know who asks: a refusal of its own kind, without its
// words, and nothing goes another way.
func (w *parentWorld) refuses(t *testing.T, scheme string) {
	t.Helper()
	proxy, _, _ := w.run(t, scheme, w.ports[scheme], "eve:guess")
	status, reason, text := get(t, proxy, "allowed.example")
	if status != http.StatusBadGateway || reason != "parent_refused" || strings.Contains(text, parentAt.String()) || strings.Contains(text, "guess") {
		t.Errorf("%s %s", reason, text)
	}
	if got := w.asked(); len(got) != 1 {
		t.Errorf("the parent was asked %q", got)
	}
}

// isDead is a parent that is not there: said by name, without where it is, and nothing
// goes past it but what no_proxy names.
func (w *parentWorld) isDead(t *testing.T, scheme string) {
	t.Helper()
	ln, err := net.Listen("tcp", parentAt.String()+":0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	_ = ln.Close()
	proxy, a, auth := w.run(t, scheme, port, parentLogin)
	status, reason, text := get(t, proxy, "allowed.example")
	if status != http.StatusBadGateway || reason != "parent_failed" {
		t.Errorf("%s %s", reason, text)
	}
	for _, secret := range []string{parentAt.String(), port, auth, "s3cret"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is told inside: %s", secret, text)
		}
	}
	if status := dialThrough(t, proxy, "allowed.example:443"); status != http.StatusBadGateway {
		t.Errorf("in a tunnel: %d", status)
	}
	if status, _, text := get(t, proxy, "direct.example"); status != http.StatusOK {
		t.Errorf("no_proxy: %s", text)
	}
	if at := net.JoinHostPort(parentAt.String(), port); !strings.Contains(a.output.String(), at) {
		t.Errorf("the log does not say %s:\n%s", at, a.output)
	}
}
