package dnsguard

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// certificate makes a key pair for dns.example and 127.0.0.1, and the pool that
// trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"dns.example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// dotServer answers over TLS like the fake upstream, and counts handshakes.
func dotServer(t *testing.T, up *fakeUpstream, cert tls.Certificate, perConn int) (addr string, handshakes *atomic.Int32) {
	t.Helper()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	handshakes = new(atomic.Int32)
	ln := tls.NewListener(raw, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	server := &dns.Server{Listener: ln, MaxTCPQueries: perConn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		wire, err := q.Pack()
		if err != nil {
			t.Error(err)
		}
		for _, reply := range up.replies(wire, "tls") {
			_, _ = w.Write(reply)
		}
	})}
	server.DecorateWriter = func(w dns.Writer) dns.Writer { handshakes.Add(1); return w }
	ended := make(chan error, 1)
	started := make(chan struct{})
	server.NotifyStartedFunc = func() { close(started) }
	go func() { ended <- server.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		_ = server.Shutdown()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return raw.Addr().String(), handshakes
}

func TestOverTLS(t *testing.T) {
	cert, roots := certificate(t)
	up := newFakeUpstream(t)
	addr, handshakes := dotServer(t, up, cert, -1)
	for _, c := range []struct {
		upstream string
		roots    *x509.CertPool
		fails    string
	}{
		{upstream: "tls://" + addr + "#dns.example", roots: roots},
		{upstream: "tls://" + addr, roots: roots}, // by the address in the certificate
		{upstream: "tls://" + addr + "#other.example", roots: roots, fails: "certificate"},
		{upstream: "tls://" + addr + "#dns.example", roots: x509.NewCertPool(), fails: "certificate"},
	} {
		t.Run(c.upstream, func(t *testing.T) {
			handshakes.Store(0)
			g, err := New(Config{Upstreams: []string{c.upstream}, RootCAs: c.roots, Types: []string{"A"}})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			var addrs []netip.Addr
			for _, name := range []string{"a.example.com", "b.example.com", "c.example.com"} {
				if addrs, err = g.Resolve(t.Context(), name); err != nil {
					break
				}
			}
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Fatalf("error %v", err)
				}
				if n := len(up.queries()); n != 0 {
					t.Errorf("%d queries went to a resolver that is not the one", n)
				}
				return
			}
			if err != nil || len(addrs) != 1 {
				t.Fatal(addrs, err)
			}
			if n := handshakes.Load(); n != 1 {
				t.Errorf("%d handshakes for three names", n)
			}
			up.queries()
		})
	}
}

// TestOverTLSAfterThePeerHungUp holds that a kept connection which is gone costs
// no lookup.
func TestOverTLSAfterThePeerHungUp(t *testing.T) {
	cert, roots := certificate(t)
	addr, handshakes := dotServer(t, newFakeUpstream(t), cert, 1) // hangs up after each
	g, err := New(Config{Upstreams: []string{"tls://" + addr + "#dns.example"}, RootCAs: roots, Tries: 1, Types: []string{"A"}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for _, name := range []string{"a.example.com", "b.example.com", "c.example.com"} {
		if _, err := g.Resolve(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if n := handshakes.Load(); n != 3 {
		t.Errorf("%d handshakes", n)
	}
}

// doh starts an HTTPS resolver.
func doh(t *testing.T, cert tls.Certificate, handler http.HandlerFunc) *url.URL {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // a client that trusts it not is the point
	s.StartTLS()
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestOverHTTPS(t *testing.T) {
	cert, roots := certificate(t)
	answer := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		q := new(dns.Msg)
		if err := q.Unpack(body); err != nil || q.Id != 0 || r.Method != http.MethodPost || r.Header.Get("Content-Type") != dohType {
			http.Error(w, "bad query", http.StatusBadRequest)
			return
		}
		if got := r.Header["User-Agent"]; len(got) > 0 {
			t.Errorf("User-Agent %q", got)
		}
		w.Header().Set("Content-Type", dohType)
		_, _ = w.Write(answerAll(q, "https")[0])
	}
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		fails   string
	}{
		{name: "answer", handler: answer},
		{name: "status", handler: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTooManyRequests) }, fails: "status 429"},
		{name: "redirect", handler: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				answer(w, r)
				return
			}
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, fails: "status 307"},
		{name: "HTML", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<p>log in to this network</p>")
		}, fails: dohType},
		{name: "too long", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", dohType)
			_, _ = w.Write(make([]byte, 1<<17))
		}, fails: "longer"},
		{name: "garbage", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", dohType)
			_, _ = io.WriteString(w, "garbage")
		}, fails: "read its answer"},
		{name: "another question", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", dohType)
			m := reply(query("evil.example", dns.TypeA), evil)
			m.Id = 0
			_, _ = w.Write(pack(m)[0])
		}, fails: "does not match"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := doh(t, cert, c.handler)
			byName := "https://dns.example:" + u.Port() + "/dns-query#127.0.0.1"
			for _, upstream := range []string{u.String() + "/dns-query", byName} {
				g, err := New(Config{Upstreams: []string{upstream}, RootCAs: roots, Tries: 1, secondFamily: patience})
				if err != nil {
					t.Fatal(err)
				}
				defer g.Close()
				addrs, err := g.Resolve(t.Context(), "a.example.com")
				if c.fails != "" {
					if err == nil || !strings.Contains(err.Error(), c.fails) {
						t.Errorf("%s: error %v", upstream, err)
					}
					continue
				}
				if err != nil || !slices.Equal(addrs, []netip.Addr{netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8::10")}) {
					t.Errorf("%s: %v %v", upstream, addrs, err)
				}
			}
		})
	}
}

// TestOverHTTPSGoesNowhereElse holds that neither the process's proxy variables
// nor a resolver's certificate for another name move the queries.
func TestOverHTTPSGoesNowhereElse(t *testing.T) {
	cert, roots := certificate(t)
	asked := false
	u := doh(t, cert, func(http.ResponseWriter, *http.Request) { asked = true })
	var dialled []string
	g, err := New(Config{
		Upstreams: []string{"https://other.example:" + u.Port() + "/#127.0.0.1"}, RootCAs: roots, Tries: 1, Types: []string{"A"},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled = append(dialled, address)
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	// The environment is read once for a process, so a variable set here would
	// show nothing.
	if g.fixed[0].(*overHTTPS).tr.Proxy != nil {
		t.Error("queries may go through a proxy")
	}
	if _, err := g.Resolve(t.Context(), "a.example.com"); err == nil || !strings.Contains(err.Error(), "certificate") || asked {
		t.Errorf("error %v, asked %v", err, asked)
	}
	if !slices.Equal(dialled, []string{"127.0.0.1:" + u.Port()}) {
		t.Errorf("dialled %q", dialled)
	}
}
