//go:build linux

package clients

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// origin is every host of the Internet at once: HTTP on port 80, HTTP and gRPC over TLS
// on 443, SSH on 22.
type origin struct {
	ca *authority

	mu    sync.Mutex
	hosts map[string]bool // that were asked for anything
}

// startOrigin serves files, which are by path.
func startOrigin(t *testing.T, files http.Handler) *origin {
	t.Helper()
	o := &origin{ca: newAuthority(t), hosts: map[string]bool{}}
	rpc := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(rpc, health.NewServer())
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello from %s\n", r.Host) })
	mux.HandleFunc("/user", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"login":"octocat"}`) })
	mux.Handle("/", files)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.note(r.Host)
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			rpc.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
	// Two, for one that served plain HTTP first would not know HTTP/2 over TLS.
	plain := &http.Server{ReadHeaderTimeout: time.Minute, Handler: handler}
	secure := &http.Server{ReadHeaderTimeout: time.Minute, Handler: handler, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: o.ca.certificate}}
	var serving sync.WaitGroup
	on80, on443 := listen(t, 80), listen(t, 443)
	serving.Go(func() { _ = plain.Serve(on80) })
	serving.Go(func() { _ = secure.ServeTLS(on443, "", "") })
	t.Cleanup(func() {
		_ = plain.Close()
		_ = secure.Close()
		rpc.Stop()
		serving.Wait()
	})
	return o
}

func listen(t *testing.T, port int) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

func (o *origin) note(host string) {
	name, _, _ := strings.Cut(host, ":")
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hosts[name] = true
}

// asked reports whether anything of a host was asked for.
func (o *origin) asked(host string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.hosts[host]
}

// authority signs certificates for whatever name is asked for.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte

	mu    sync.Mutex
	names map[string]*tls.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "origins"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{key: key, cert: cert, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), names: map[string]*tls.Certificate{}}
}

func (a *authority) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.names[hello.ServerName]; c != nil {
		return c, nil
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(a.names)) + 2), Subject: pkix.Name{CommonName: hello.ServerName}, DNSNames: []string{hello.ServerName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
	a.names[hello.ServerName] = c
	return c, nil
}
