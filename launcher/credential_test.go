package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"postern/caddy-modules/session/lease"
)

// The helper asks for HTTPS alone, keeps nothing, and believes no answer that is not
// one.
func TestCredential(t *testing.T) {
	var asked []string
	var status int
	var kind, body string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, fmt.Sprintf("%s %s %s", r.Method, r.URL, r.Header.Get("Proxy-Authorization")))
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	defer proxy.Close()
	at, _ := url.Parse(proxy.URL)
	at.User = url.UserPassword("postern", "letmein")
	const question = "protocol=https\nhost=github.com\nwwwauth[]=Basic realm=\"GitHub\"\n\n"
	const token = `{"token":"ghs_abcdefghijklmnop","expires":"2030-01-01T00:00:00Z"}`
	for _, c := range []struct {
		name, args, in, kind, body string
		status                     int
		code                       int
		out, stderr                string
		asks                       bool
	}{
		{"a token", "get", question, "application/json", token, 200, 0, "username=x-access-token\npassword=ghs_abcdefghijklmnop\npassword_expiry_utc=1893456000\n", "", true},
		{"one without an end", "get", question, "application/json", `{"token":"t"}`, 200, 0, "username=x-access-token\npassword=t\n", "", true},
		{"store", "store", question, "application/json", token, 200, 0, "", "", false},
		{"erase", "erase", question, "application/json", token, 200, 0, "", "", false},
		{"in the open", "get", "protocol=http\nhost=github.com\n\n", "application/json", token, 200, 0, "", "", false},
		{"no host", "get", "protocol=https\n\n", "application/json", token, 200, 0, "", "", false},
		{"what comes after the question", "get", "protocol=https\n\nhost=github.com\n", "application/json", token, 200, 0, "", "", false},
		{"none for that forge", "get", question, "text/plain", "none", 404, 0, "", "", true},
		{"a forge that fails", "get", question, "text/plain; charset=utf-8", "mint: suspended\nmore", 503, 1, "", "postern: ask for the read token: the appliance answered 503: mint: suspended\n", true},
		{"a page", "get", question, "text/html", "<html>", 200, 1, "", "postern: ask for the read token: the appliance answered 200: <html>\n", true},
		{"two lines", "get", question, "application/json", `{"token":"a\nhost=evil"}`, 200, 1, "", "postern: read the read token: it is more than one word of ASCII\n", true},
		{"too long a question", "get", "x=" + strings.Repeat("y", maxCredentialInput), "application/json", token, 200, 1, "", "postern: read what git asks for: bufio.Scanner: token too long\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("HTTP_PROXY", at.String())
			asked, status, kind, body = nil, c.status, c.kind, c.body
			var out, stderr strings.Builder
			code := credentialCase(t, []string{"http://git.internal/", c.args}, c.in, &out, &stderr)
			if code != c.code || out.String() != c.out || stderr.String() != c.stderr {
				t.Errorf("%d\n%s\n%s", code, out.String(), stderr.String())
			}
			want := "[GET http://git.internal" + lease.ReadTokenPath + "?host=github.com Basic cG9zdGVybjpsZXRtZWlu]"
			if !c.asks {
				want = "[]"
			}
			if got := fmt.Sprint(asked); got != want {
				t.Errorf("asked %s, want %s", got, want)
			}
		})
	}
	for name, proxy := range map[string]string{"no run": "", "nobody there": "http://127.0.0.1:1", "no proxy": "socks5://user:letmein@x"} {
		t.Setenv("HTTP_PROXY", proxy)
		var out, stderr strings.Builder
		code := credentialCase(t, []string{"http://git.internal/", "get"}, question, &out, &stderr)
		if (code == 0) != (proxy == "") || out.Len() > 0 || strings.Contains(stderr.String(), "letmein") {
			t.Errorf("%s: %d %s", name, code, stderr.String())
		}
	}
	for _, args := range [][]string{nil, {"get"}, {"http://git.internal/", "get", "more"}, {"--help"}} {
		var out, stderr strings.Builder
		code := credentialCase(t, args, "", &out, &stderr)
		if help := len(args) == 1 && args[0] == "--help"; help != (code == 0) || !strings.Contains(out.String()+stderr.String(), "git-credential(1)") {
			t.Errorf("%v: %d", args, code)
		}
	}
}

func credentialCase(t *testing.T, args []string, in string, out, stderr *strings.Builder) int {
	t.Helper()
	return credentialMain(args, strings.NewReader(in), out, stderr)
}
