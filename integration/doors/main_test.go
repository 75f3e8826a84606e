//go:build linux

package doors

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"postern/integration/fakegithub"
	"postern/integration/netlab"
	"postern/integration/world"
)

// The test binary is the go-git client, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == goGitCommand {
		os.Exit(goGit(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

const caddyfile = `{
	persist_config off
	auto_https off
	egress {
		default_policy agent
		local git.internal
		policy agent {
			allow github.com
			allow www.github.com
			allow api.github.com
		}
		dns 9.9.9.9
	}
}

http://git.internal {
	bind sandbox/git

	git_gateway {
		forge github.com {
			api %[1]s/api/v3/
			git %[1]s/
		}
		token github_app %[2]d {
			key_file %[3]s
		}
		repo github.com/acme/app {
			push **
			deny main {
				reason "push to main is denied (rule 3)"
			}
		}
		repo github.com/acme/lib {
			push **
		}
	}
}
`

// serveWorld is the far side: a forge at every address of GitHub, with TLS and without,
// and the appliance. It serves until stdin ends, and then looks back.
func serveWorld(t *testing.T, dir string) {
	t.Helper()
	netlab.Run(t, func(*netlab.Lab) {
		hub, err := fakegithub.New(fakegithub.Options{Dir: filepath.Join(dir, "forge")})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = hub.Close() }()
		for _, name := range []string{"acme/app", "acme/lib"} {
			if err := hub.AddRepo(name); err != nil {
				t.Fatal(err)
			}
			if _, err := hub.Commit(name, "main", "begin", map[string]string{"README": name + "\n"}); err != nil {
				t.Fatal(err)
			}
		}
		hub.Install(fakegithub.Installation{Account: "acme"})
		ca := serveForge(t, hub)
		dns, err := netlab.ListenDNS(netip.MustParseAddr("9.9.9.9"))
		if err != nil {
			t.Fatal(err)
		}
		defer dns.Close()
		dns.SetDefault(func(string) netlab.Answer { return netlab.Addrs("93.184.216.34") })
		key := filepath.Join(dir, "app.pem")
		put(t, key, hub.KeyPEM())
		put(t, filepath.Join(dir, "ca.pem"), ca)
		world.Appliance(t, fmt.Sprintf(caddyfile, hub.URL(), hub.AppID(), key))
		world.Ready(t)
		_, _ = io.Copy(io.Discard, os.Stdin)
		// Whatever was tried: write tokens were the gateway's alone, and are dead.
		for _, token := range hub.Tokens() {
			if token.CanWrite() && !token.Revoked() {
				t.Errorf("a write token for %v lives", token.Repositories)
			}
		}
		for _, p := range hub.Pushes() {
			if p.Header.Get("User-Agent") != "git/postern" && p.Status == http.StatusOK {
				t.Errorf("the forge took a push of %q", p.Header.Get("User-Agent"))
			}
		}
	})
}

func put(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// serveForge puts the forge at ports 80 and 443 of every address.
func serveForge(t *testing.T, hub http.Handler) (ca []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "forge"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"github.com", "www.github.com", "api.github.com"},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	plain := &http.Server{ReadHeaderTimeout: time.Minute, Handler: hub}
	secure := &http.Server{ReadHeaderTimeout: time.Minute, Handler: hub, TLSConfig: &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}}
	var serving sync.WaitGroup
	for port, serve := range map[int]func(net.Listener) error{
		80: plain.Serve, 443: func(ln net.Listener) error { return secure.ServeTLS(ln, "", "") },
	} {
		ln, err := net.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		serving.Go(func() { _ = serve(ln) })
	}
	t.Cleanup(func() {
		_ = plain.Close()
		_ = secure.Close()
		serving.Wait()
	})
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
