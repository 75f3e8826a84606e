package main

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"

	"postern/launcher/environ"
	"postern/launcher/gitconfig"
)

const (
	someone  = "postern"
	password = "AAAABBBBCCCCDDDDEEEEFFFFGG"
)

// TestConnectLogsIn speaks RFC 1929 with a proxy that wants it, and says why it could
// not where the proxy does not take it.
func TestConnectLogsIn(t *testing.T) {
	for name, tc := range map[string]struct{ verdict, says string }{
		"taken":     {"\x01\x00", ""},
		"not taken": {"\x01\x01", "does not take the credentials"},
		"hung up":   {"\x01", "log in"},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer ours.Close()
			said := make(chan string, 1)
			go func() {
				defer theirs.Close()
				b := make([]byte, 3+3+len(someone)+len(password))
				_, _ = io.ReadFull(theirs, b[:3])
				_, _ = io.WriteString(theirs, "\x05\x02")
				_, _ = io.ReadFull(theirs, b[3:])
				said <- string(b)
				_, _ = io.WriteString(theirs, tc.verdict)
				if tc.says != "" {
					return
				}
				_, _ = io.ReadFull(theirs, make([]byte, 1))
				_, _ = io.WriteString(theirs, "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
			}()
			err := socksConnect(ours, url.UserPassword(someone, password), []byte{5})
			if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), password)) {
				t.Errorf("got %v", err)
			}
			if got := <-said; got != "\x05\x01\x02\x01\x07"+someone+"\x1a"+password {
				t.Errorf("said %q", got)
			}
		})
	}
	for _, user := range []*url.Userinfo{url.User(""), url.UserPassword(strings.Repeat("x", 256), "y"), url.UserPassword("x", strings.Repeat("y", 256))} {
		if err := socksLogin(&bytes.Buffer{}, user); err == nil {
			t.Error("logged in as nobody")
		}
	}
}

// TestLoginReachesClients: the variables and git's configuration carry what the proxies
// ask for, and nothing else does.
func TestLoginReachesClients(t *testing.T) {
	r := environ.Run{Session: "s", Home: "/h", Dir: "/h", HTTP: "127.0.0.1:20001", SOCKS: "127.0.0.1:20002", Login: url.UserPassword(someone, password), Connect: "/c", Temp: "/t/emp", AllProxy: environ.AllSOCKS}
	env, err := r.Build()
	if err != nil {
		t.Fatal(err)
	}
	text := "\n" + strings.Join(env, "\n") + "\n"
	for _, want := range []string{
		"\nHTTP_PROXY=http://postern:" + password + "@127.0.0.1:20001\n", "\nhttps_proxy=http://postern:" + password + "@127.0.0.1:20001\n",
		"\nPOSTERN_SOCKS=socks5h://postern:" + password + "@127.0.0.1:20002\n", "\nALL_PROXY=socks5h://postern:" + password + "@127.0.0.1:20002\n",
		"\nTMPDIR=/t/emp\n", "\nTMPPREFIX=/t/emp/zsh\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for _, kv := range env {
		if name, value, _ := strings.Cut(kv, "="); strings.Contains(value, password) && !strings.HasSuffix(strings.ToUpper(name), "_PROXY") && name != "POSTERN_SOCKS" {
			t.Errorf("%s has the password", name)
		}
	}
	git := gitconfig.Config{Gateway: "http://git.internal/", Forges: []string{"github.com"}, Proxy: "http://postern:" + password + "@127.0.0.1:20001", Empty: "/e"}
	config, err := git.Text()
	if err != nil || !strings.Contains(config, "proxy = \"http://postern:"+password+"@127.0.0.1:20001\"") {
		t.Errorf("%v:\n%s", err, config)
	}
	git.Gateway = "http://a:" + password + "@git.internal/"
	if _, err := git.Text(); err == nil || strings.Contains(err.Error(), password) {
		t.Errorf("a gateway with a password: %v", err)
	}
}
