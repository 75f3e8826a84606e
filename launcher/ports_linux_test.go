package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// hostServer is a service of the host's loopback, and its port.
func hostServer(t *testing.T, addr string) string {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "the host at %s\n", r.URL.Path)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

// freePort is a port of the host that nobody listens on: none of those that the kernel
// gives to whoever asks for any, so that nobody takes it in the meantime.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(10000 + rand.IntN(9000))
		ln, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		_ = ln.Close()
		return port
	}
	t.Fatal("no port is free")
	return ""
}

// Every client finds a port of the host under every name of the loopback, although
// proxies are set: NO_PROXY says so. A port that was not granted is not there.
func TestHostPorts(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	v4, v6, secret := hostServer(t, "127.0.0.1:0"), hostServer(t, "[::1]:0"), hostServer(t, "127.0.0.1:0")
	run := func(script string) result {
		return w.script(script, "--host-port", v4, "--host-port", "80:"+v6)
	}
	const python = `/usr/bin/python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode(), end="")' `
	const node = `node -e 'fetch(process.argv[1]).then(async r => process.stdout.write(await r.text()))' `
	const java = `java Fetch.java `
	w.write("tree/Fetch.java", `public class Fetch { public static void main(String[] a) throws Exception {
		try (var in = new java.net.URL(a[0]).openStream()) { System.out.write(in.readAllBytes()); System.out.flush(); } } }`, 0o644)
	for _, client := range []struct{ name, program, command string }{
		{"curl", "/usr/bin/curl", "curl -sS "},
		{"python", "/usr/bin/python3", python},
		{"node", "/usr/bin/node", node},
		{"java", "/usr/bin/javac", java},
	} {
		t.Run(client.name, func(t *testing.T) {
			if _, err := exec.LookPath(client.program); err != nil {
				t.Skipf("SKIPPED, NOT PASSED: %v", err)
			}
			var script, want strings.Builder
			hosts := []string{"localhost", "127.0.0.1", "[::1]"}
			switch client.name {
			case "python":
				hosts = hosts[:2] // urllib compares "[::1]", brackets and all; of brackets in NO_PROXY newer httpx dies
			case "java":
				hosts = hosts[2:] // one, for it takes a second each
			}
			for i, host := range hosts {
				fmt.Fprintf(&script, "%s http://%s:%s/%d; %[1]s http://%[2]s/%[4]d; ", client.command, host, v4, i)
				fmt.Fprintf(&want, "the host at /%d\nthe host at /%[1]d\n", i)
			}
			if got := run(script.String()); got.stdout != want.String() || got.code != 0 {
				t.Errorf("got %+v, want %q", got, want.String())
			}
		})
	}
	t.Run("no other", func(t *testing.T) {
		if got := run("curl -sS http://127.0.0.1:" + secret); got.code != 7 {
			t.Errorf("got %+v, want connection refused", got)
		}
	})
	t.Run("the appliance knows", func(t *testing.T) {
		h := a.seen()[0]
		var want []string
		for _, p := range h.HostPorts {
			want = append(want, strconv.Itoa(int(p)))
		}
		if got := strings.Join(want, " "); got != v4+" "+v6 && got != v6+" "+v4 {
			t.Errorf("it was told %s, want %s and %s", got, v4, v6)
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		if got := w.script("curl -sS http://localhost:5432", "--host-port", "5432:"+freePort(t)); !slices.Contains([]int{7, 52, 56}, got.code) {
			t.Errorf("got %+v, want a connection that is refused or reset", got)
		}
	})
}

// A server inside is reached from the host at both loopbacks, and ends with the run.
func TestPublish(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	w.write("tree/index.html", "inside\n", 0o644)
	port := freePort(t)
	cmd := w.command("run", "-p", port+":8000", "--", "/usr/bin/python3", "-m", "http.server", "--bind", "127.0.0.1", "8000")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(host string) (string, error) {
		resp, err := client.Get("http://" + net.JoinHostPort(host, port) + "/index.html")
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return string(text), err
	}
	within(t, 30*time.Second, "the server answers", func() bool {
		text, err := get("127.0.0.1")
		return err == nil && text == "inside\n"
	})
	if text, err := get("::1"); err != nil || text != "inside\n" {
		t.Errorf("at ::1: %q, %v", text, err)
	}
	// Not at any other address of the host, although all of 127/8 is loopback.
	if c, err := net.DialTimeout("tcp", "127.0.0.2:"+port, time.Second); err == nil {
		_ = c.Close()
		t.Error("it is there at 127.0.0.2 as well")
	}
	if got := w.postern("run", "-p", port+":80", "--", "true"); got.code != exitRefused || !strings.Contains(got.stderr, "[port_in_use]") {
		t.Errorf("the same port again: %+v", got)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 128+15 {
		t.Errorf("it ended with %v; stderr %s", err, stderr.String())
	}
	if c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second); err == nil {
		_ = c.Close()
		t.Error("the port outlives the run")
	}
}

// What a command answers with its last breath arrives.
func TestPublishLastWords(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	port := freePort(t)
	cmd := w.command("run", "-p", port+":8000", "--", "/usr/bin/python3", "-c", `import socket
s = socket.create_server(("127.0.0.1", 8000))
c, _ = s.accept()
c.recv(1)
c.sendall(b"x" * 1000000)`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	var n int
	within(t, 30*time.Second, "it answers", func() bool {
		c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second)
		if err != nil {
			return false
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = c.Write([]byte("x"))
		text, _ := io.ReadAll(c)
		n = len(text)
		return n > 0
	})
	if err := cmd.Wait(); err != nil || n != 1000000 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// Ports that cannot be had start nothing, and say why.
func TestPortsThatAreRefused(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	marker := w.home + "/tree/ran"
	a.will(func(h lease.Hello) lease.Answer {
		return lease.Answer{Error: &lease.Error{Code: lease.CodeOwnPort, Message: "port 20000 of this host is the appliance's own"}}
	}, nil)
	type refused struct {
		name string
		args []string
		want string
	}
	cases := []refused{
		{"the run's own proxy", []string{"-p", "3128"}, "[port_reserved]"},
		{"over the run's own proxy", []string{"--host-port", "1080"}, "[port_reserved]"},
		{"no port", []string{"-p", "http"}, "[usage]"},
		{"both ways", []string{"-p", "3000", "--host-port", "3000"}, "[usage]"},
		{"an address of nobody", []string{"-p", "192.0.2.1:3000:3000"}, "[port_address]"},
		{"the appliance's own", []string{"--host-port", "20000"}, "own_port"},
	}
	// Containers let everybody have any port.
	if first, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); os.Geteuid() != 0 && err == nil && string(first) == "1024\n" {
		cases = append(cases, refused{"a port that is root's", []string{"-p", "81:3000"}, "[port_denied]"})
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got := w.postern(append(append([]string{"run"}, tc.args...), "--", "touch", marker)...)
			if got.code != exitRefused || !strings.Contains(got.stderr, tc.want) || got.stdout != "" {
				t.Errorf("got %+v, want %s", got, tc.want)
			}
		})
	}
}
