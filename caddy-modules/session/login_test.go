package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// connectWith sends a CONNECT to target with the given login.
func connectWith(tb testing.TB, proxy, target string, l *lease.Login) *tunnel {
	tb.Helper()
	c, err := net.DialTimeout("tcp", proxy, patience)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	req := http.Request{Header: http.Header{}}
	if l != nil {
		req.SetBasicAuth(l.User, l.Password)
	}
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", target, target)
	if l != nil {
		fmt.Fprintf(c, "Proxy-Authorization: %s\r\n", req.Header.Get("Authorization"))
	}
	fmt.Fprint(c, "\r\n")
	return readAnswer(tb, c)
}

// TestLoginOfAPISession asks for credentials over the control API and uses them.
func TestLoginOfAPISession(t *testing.T) {
	upstream := echo(t)
	var log bytes.Buffer
	r := New(Options{RunDir: runDir(t), Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	t.Cleanup(func() {
		if err := r.Destruct(); err != nil {
			t.Error(err)
		}
	})
	r.Push(generation(t, r, rule(upstream)))
	openDoors(t, r)
	c := control(t, r.options.RunDir)
	put := func(id, body string) (int, lease.Answer) {
		t.Helper()
		status, text := call(t, c, "PUT", "/v1/sessions/"+id, body)
		var a lease.Answer
		if status < 300 {
			if err := json.Unmarshal([]byte(text), &a); err != nil {
				t.Fatal(err)
			}
		}
		return status, a
	}
	const want = `{"listen":{"network":"tcp","credentials":true}}`
	status, a := put("a", want)
	if status != http.StatusCreated || a.Login == nil || a.Login.User != lease.LoginUser || len(a.Login.Password) < 22 || !a.Session.Credentials {
		t.Fatalf("%d %+v", status, a)
	}
	_, b := put("b", want)
	if b.Login == nil || b.Login.Password == a.Login.Password {
		t.Fatal("two sessions with one password")
	}
	if tun := connectWith(t, a.Session.HTTP, upstream, a.Login); tun.status != http.StatusOK || !tun.alive() {
		t.Errorf("with its login: %d", tun.status)
	}
	for what, l := range map[string]*lease.Login{"none": nil, "another session's": b.Login} {
		if tun := connectWith(t, a.Session.HTTP, upstream, l); tun.status != http.StatusProxyAuthRequired {
			t.Errorf("%s: %d", what, tun.status)
		}
	}
	if tun := connectWith(t, a.Session.HTTP, "127.0.0.2:443", a.Login); tun.status != http.StatusForbidden {
		t.Errorf("denied, with its login: %d", tun.status)
	}
	// The same again is the same session with the same login.
	if status, again := put("a", want); status != http.StatusOK || !again.Login.Equal(a.Login) {
		t.Errorf("again: %d", status)
	}
	given := fmt.Sprintf(`{"listen":{"network":"tcp","http":%q,"credentials":true,"login":{"user":"postern","password":%q}}}`, a.Session.HTTP, a.Login.Password)
	if status, again := put("a", given); status != http.StatusOK || !again.Login.Equal(a.Login) {
		t.Errorf("again, given back: %d", status)
	}
	for what, body := range map[string]string{
		"without":  `{"listen":{"network":"tcp"}}`,
		"at all":   `{}`,
		"another":  strings.Replace(given, a.Login.Password, b.Login.Password, 1),
		"too weak": strings.Replace(given, a.Login.Password, "short", 1),
		"unasked":  strings.Replace(given, `"credentials":true,`, "", 1),
	} {
		if status, _ := put("a", body); status != http.StatusConflict && status != http.StatusBadRequest {
			t.Errorf("%s: %d", what, status)
		}
	}
	// After a restart a host puts its session again, and the run has not to know.
	if status, _ := call(t, c, "DELETE", "/v1/sessions/a", ""); status != http.StatusNoContent {
		t.Fatal(status)
	}
	if status, again := put("a", given); status != http.StatusCreated || !again.Login.Equal(a.Login) || again.Session.HTTP != a.Session.HTTP {
		t.Errorf("after a restart: %d %+v", status, again.Session)
	}
	for _, path := range []string{"/v1/sessions/a", "/v1/sessions", "/v1/state"} {
		if _, body := call(t, c, "GET", path, ""); strings.Contains(body, a.Login.Password) {
			t.Errorf("GET %s shows the password", path)
		}
	}
	if err := r.Destruct(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), a.Login.Password) || strings.Contains(log.String(), b.Login.Password) || log.Len() == 0 {
		t.Error("a password is in the log")
	}
}

// TestLoginOfLease: a launcher brings the secret, and brings it again after a restart.
func TestLoginOfLease(t *testing.T) {
	upstream := echo(t)
	r, _, _, path := leased(t, rule(upstream))
	p, login := pair(t), lease.NewLogin()
	l, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "run-1"}, Login: login}, p)
	if err != nil {
		t.Fatal(err)
	}
	if l.Answer().Login != nil || !l.Answer().Session.Credentials {
		t.Errorf("answer %+v", l.Answer().Session)
	}
	at := p.HTTP.Addr().String()
	if tun := connectWith(t, at, upstream, nil); tun.status != http.StatusProxyAuthRequired {
		t.Errorf("without: %d", tun.status)
	}
	if tun := connectWith(t, at, upstream, login); tun.status != http.StatusOK {
		t.Errorf("with: %d", tun.status)
	}
	_ = l.Close()
	eventually(t, "the session to end", func() bool { _, ok := r.Lookup("run-1"); return !ok })
	if _, err = lend(t, path, lease.Hello{Spec: lease.Spec{ID: "run-1"}, Login: login, Resume: &lease.Resume{}}, p); err != nil {
		t.Fatal(err)
	}
	if tun := connectWith(t, at, upstream, login); tun.status != http.StatusOK {
		t.Errorf("after a restart: %d", tun.status)
	}
	bad := lease.Hello{Spec: lease.Spec{ID: "run-2"}, Login: &lease.Login{User: "postern", Password: "1234"}}
	if _, err := lend(t, path, bad, pair(t)); err == nil || strings.Contains(err.Error(), "1234") {
		t.Errorf("a weak password: %v", err)
	}
}

// TestLoginWhereNobodyTells: a system that does not tell whose a connection is takes no
// lease without a login.
func TestLoginWhereNobodyTells(t *testing.T) {
	if _, err := loginOf(order{kind: kindLease}, false); codeOf(err) != lease.CodeBadRequest {
		t.Errorf("got %v", err)
	}
	if l, err := loginOf(order{kind: kindLease}, true); l != nil || err != nil {
		t.Errorf("got %v, %v", l, err)
	}
	login := lease.NewLogin()
	if l, err := loginOf(order{kind: kindLease, login: login}, false); l != login || err != nil {
		t.Errorf("got %v, %v", l, err)
	}
}
