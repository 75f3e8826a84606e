//go:build linux

package clients

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"postern/integration/netlab"
)

// Files of the world's folder by which the lab tells that it stands.
const (
	ready         = "ready"
	authorityFile = "ca.pem" // in the worktree
)

// config allows one host and the forge's API, and SSH to the former.
const config = `{
	persist_config off
	auto_https off
	egress {
		default_policy agent
		policy agent {
			allow allowed.example 80 443 22
			allow api.github.com
		}
		dns 9.9.9.9
	}
}
`

// serveWorld is the far side: it serves until stdin ends.
func serveWorld(t *testing.T, dir string) {
	t.Helper()
	netlab.Run(t, func(*netlab.Lab) {
		repository := filepath.Join(dir, "tiny.git")
		o := startOrigin(t, registries(t, repository))
		startSSH(t, repository)
		dns, err := netlab.ListenDNS(netip.MustParseAddr("9.9.9.9"))
		if err != nil {
			t.Fatal(err)
		}
		defer dns.Close()
		dns.SetDefault(func(string) netlab.Answer { return netlab.Addrs("93.184.216.34") })
		startAppliance(t, dir)
		for name, data := range map[string][]byte{filepath.Join("home", "tree", authorityFile): o.ca.pem, ready: nil} {
			if err := os.WriteFile(filepath.Join(dir, name+".new"), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{filepath.Join("home", "tree", authorityFile), ready} {
			if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = io.Copy(io.Discard, os.Stdin)
		if o.asked(deniedHost) {
			t.Errorf("%s was asked", deniedHost)
		}
		for _, q := range dns.Queries() {
			if q.Name == deniedHost+"." {
				t.Errorf("the name of %s was looked up", deniedHost)
			}
		}
		if !o.asked(allowedHost) {
			t.Errorf("%s was not asked", allowedHost)
		}
	})
}

func startAppliance(t *testing.T, dir string) {
	t.Helper()
	file := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(filepath.Join(os.Getenv(binEnv), "caddy"), "run", "--adapter", "caddyfile", "--config", file)
	cmd.Env = append(os.Environ(), "POSTERN_RUN="+filepath.Join(dir, "r"), "HOME="+dir)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-done
	})
	for range 600 {
		c, err := net.Dial("unix", filepath.Join(dir, "r", "lease.sock"))
		if err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-done:
			t.Fatalf("the appliance ended:\n%s", log.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatal("the appliance does not answer")
}
