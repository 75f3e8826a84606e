package integration_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// echoEnv makes this test binary an echo server and nothing else.
const echoEnv = "POSTERN_TEST_ECHO"

func init() {
	if os.Getenv(echoEnv) != "" {
		serveEcho()
		os.Exit(0)
	}
}

// tunnel is an open CONNECT.
type tunnel struct {
	mu   sync.Mutex // guards conn: one echo at a time
	conn net.Conn
}

// connect opens a tunnel through the proxy, or fails the test.
func connect(t *testing.T, proxy, target string) *tunnel {
	t.Helper()
	conn, status, err := openTunnel(proxy, target)
	if err != nil || status != http.StatusOK {
		t.Fatalf("CONNECT %s: status %d, %v", target, status, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &tunnel{conn: conn}
}

func openTunnel(proxy, target string) (net.Conn, int, error) {
	conn, err := dialProxy(proxy)
	if err != nil {
		return nil, 0, err
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target); err != nil {
		return nil, 0, errors.Join(err, conn.Close())
	}
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, 0, errors.Join(err, conn.Close())
	}
	_ = resp.Body.Close()
	if br.Buffered() > 0 {
		return nil, 0, errors.Join(errors.New("bytes before the first of the tunnel"), conn.Close())
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, resp.StatusCode, nil
}

// dialProxy opens a connection for the next 20 s to a port, or to a socket by its path.
func dialProxy(proxy string) (net.Conn, error) {
	network := "tcp"
	if strings.HasPrefix(proxy, "/") {
		network = "unix"
	}
	conn, err := net.DialTimeout(network, proxy, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(20 * time.Second))
}

// tryConnect opens a tunnel and closes it again.
func tryConnect(proxy, target string) (int, error) {
	conn, status, err := openTunnel(proxy, target)
	if err == nil {
		_ = conn.Close()
	}
	return status, err
}

func dialThrough(t *testing.T, proxy, target string) int {
	t.Helper()
	status, err := tryConnect(proxy, target)
	if err != nil {
		t.Errorf("CONNECT %s: %v", target, err)
	}
	return status
}

func (c *tunnel) tryEcho(text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c.conn, text); err != nil {
		return err
	}
	buf := make([]byte, len(text))
	if _, err := io.ReadFull(c.conn, buf); err != nil {
		return err
	}
	if string(buf) != text {
		return fmt.Errorf("sent %q, got %q", text, buf)
	}
	return nil
}

func (c *tunnel) echo(t *testing.T, text string) {
	t.Helper()
	if err := c.tryEcho(text); err != nil {
		t.Errorf("the tunnel broke: %v", err)
	}
}

// closed waits for the other side to end the tunnel.
func (c *tunnel) closed(t *testing.T) bool {
	t.Helper()
	_ = c.conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, err := c.conn.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// echoServer answers every connection with what it sends, but GET as a web server.
func echoServer(t *testing.T) string {
	t.Helper()
	ln := listenTCP(t)
	go echoOn(ln)
	return ln.Addr().String()
}

func echoOn(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			first := make([]byte, 4<<10)
			n, err := conn.Read(first)
			if err != nil {
				return
			}
			if bytes.HasPrefix(first[:n], []byte("GET ")) {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\necho")
				return
			}
			// Not by splice, which would cost two more descriptors a connection.
			if _, err := conn.Write(first[:n]); err == nil {
				_, _ = io.CopyBuffer(struct{ io.Writer }{conn}, struct{ io.Reader }{conn}, first)
			}
		}()
	}
}

// echoProcess is an echo server in a process of its own. Where Caddy runs in the
// test's process this is needed: what that process listens on is the appliance's
// own, and no rule opens a way there.
func echoProcess(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), echoEnv+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // it ends with its standard input
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the echo server says nothing: %v", err)
	}
	return strings.TrimSpace(addr)
}

func serveEcho() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(ln.Addr())
	go echoOn(ln)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// originServer is an HTTP server whose every answer is "origin".
func originServer(t *testing.T) string {
	t.Helper()
	ln := listenTCP(t)
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "origin")
	})}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	return ln.Addr().String()
}

func listenTCP(t *testing.T) *net.TCPListener {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// fetchThrough gets / of the origin over a tunnel, and returns what it said or
// the error. It may run beside the test.
func fetchThrough(t *testing.T, proxy, origin string) string {
	t.Helper()
	conn, status, err := openTunnel(proxy, origin)
	if err != nil || status != http.StatusOK {
		return fmt.Sprintf("status %d, %v", status, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", origin); err != nil {
		return err.Error()
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}
