package main

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// A port of the host that the appliance refuses when the run is lent again, as it may be
// another session's by then, is closed, and so are its connections.
func TestHostPortsEndWithTheSession(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	port := hostServer(t, "127.0.0.1:0")
	w.write("tree/hold.py", `import socket, sys
held = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
sys.stdin.readline()
try:
    print("held", held.recv(1), flush=True)
except ConnectionResetError: # as it may end, too
    print("held b''", flush=True)
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    print("open", flush=True)
except ConnectionRefusedError:
    print("closed", flush=True)
`, 0o644)
	cmd := w.command("run", "--host-port", port, "--", "/usr/bin/python3", "hold.py", port)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr lockedBuffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	within(t, 30*time.Second, "it is connected", func() bool { return strings.Contains(stdout.String(), "connected") })
	a.will(func(lease.Hello) lease.Answer {
		return lease.Answer{Error: &lease.Error{Code: lease.CodeOwnPort, Message: "it is the appliance's own"}}
	}, nil)
	a.crash()
	a.start()
	within(t, 30*time.Second, "it is refused", func() bool { return strings.Contains(stderr.String(), "own_port") })
	if _, err := io.WriteString(stdin, "go\n"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || stdout.String() != "connected\nheld b''\nclosed\n" {
		t.Errorf("%v, %q; stderr %s", err, stdout.String(), stderr.String())
	}
}

// lockedBuffer is a buffer that is read while it is written to.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
