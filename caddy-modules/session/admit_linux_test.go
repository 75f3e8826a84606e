package session

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// askAsked is the variable that makes this test program a client which says
// what became of one request.
const askAsked = "SESSION_TEST_ASK"

// ask sends a request to a proxy and gives "answered" or "turned away": whether a
// connection that is closed unread ends with a reset or an end of file is the
// kernel's to choose.
func ask(addr string) string {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(c, "CONNECT nowhere.example:443 HTTP/1.1\r\nHost: nowhere.example\r\n\r\n")
		var n int
		if n, err = c.Read(make([]byte, 64)); n > 0 {
			return "answered"
		}
	}
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF) {
		return "turned away"
	}
	return err.Error()
}

// askAs asks as another user, which only root can become.
func askAs(t *testing.T, uid uint32, addr string) string {
	t.Helper()
	self, err := os.Open("/proc/self/exe") // another user cannot reach its folder
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	cmd := exec.CommandContext(t.Context(), "/proc/self/fd/3", "-test.run=^TestAPISessionServesItsOwner$")
	cmd.Dir, cmd.ExtraFiles = "/", []*os.File{self}
	cmd.Env = []string{askAsked + "=" + addr}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, said, _ := strings.Cut(string(out), "became: ")
	said, _, _ = strings.Cut(said, "\n")
	return said
}

// A port of 127.0.0.1 is reached by every user of the host and serves one.
func TestAPISessionServesItsOwner(t *testing.T) {
	if addr := os.Getenv(askAsked); addr != "" {
		_, _ = os.Stdout.WriteString("became: " + ask(addr) + "\n")
		return
	}
	r := newRegistry(t)
	r.Push(generation(t, r))
	own := os.Geteuid()
	const owner, other = 61234, 61235
	put := func(id string, uid int) Info {
		t.Helper()
		a, err := r.Open(t.Context(), lease.Spec{ID: id}, uid)
		if err != nil {
			t.Fatal(err)
		}
		return a.Session
	}
	mine, foreign := put("mine", own), put("foreign", owner+own) // own is 0, or somebody else
	if got := ask(mine.HTTP); got != "answered" {
		t.Errorf("my own session: %s", got)
	}
	if own != 0 {
		for _, addr := range []string{foreign.HTTP, foreign.SOCKS} {
			if got := ask(addr); got != "turned away" {
				t.Errorf("another user's session at %s: %s", addr, got)
			}
		}
		return
	}
	for uid, want := range map[uint32]string{owner: "answered", other: "turned away", 0: "answered"} {
		if got := askAs(t, uid, foreign.HTTP); got != want {
			t.Errorf("user %d at the session of user %d: %s, want %s", uid, owner, got, want)
		}
	}
	if got := askAs(t, other, foreign.SOCKS); got != "turned away" {
		t.Errorf("by SOCKS: %s", got)
	}
	// New limits make a new server behind the same listener.
	next := generation(t, r)
	next.Limits.Idle = time.Minute
	r.Push(next)
	if got := askAs(t, other, foreign.HTTP); got != "turned away" {
		t.Errorf("after a reload: %s", got)
	}
	if info, _ := r.Lookup("foreign"); info.Tunnels != 0 || info.Denied != 2 {
		t.Errorf("%+v", info)
	}
}
