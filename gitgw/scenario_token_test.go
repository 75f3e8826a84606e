package gitgw_test

import (
	"crypto/rand"
	"crypto/rsa"
	"net/http"
	"strings"
	"testing"
	"time"

	"postern/gitgw"
	"postern/gitgw/mint"
	"postern/integration/fakegithub"
)

// TestAppReasons: whatever keeps a GitHub App from making a token, before the first
// push or since the last one, git's output says which it is.
func TestAppReasons(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	app, forge := w.gateway.Minter, w.gateway.Forges[0]
	install := func(i fakegithub.Installation) {
		i.ID = w.installed
		w.hub.Install(i)
	}
	other := func(change func(*mint.GitHubApp)) gitgw.Minter {
		m := &mint.GitHubApp{AppID: w.hub.ClientID(), Forge: forge}
		change(m)
		t.Cleanup(func() { _ = m.Close() })
		return m
	}
	key, err := mint.ParseKey(w.hub.KeyPEM())
	if err != nil {
		t.Fatal(err)
	}
	whole := fakegithub.Installation{Account: "acme"}
	const no = "(Control Center: no push token: "
	for _, c := range []struct {
		name string
		set  func()
		want string // "" for a push that lands
	}{
		{"not installed", func() { install(fakegithub.Installation{Account: "someone-else"}) }, no + "the GitHub App is not installed on acme/app)"},
		{"not selected", func() { install(fakegithub.Installation{Account: "acme", Repos: []string{"acme/lib"}}) }, no + "the GitHub App is installed on acme, but acme/app is not selected)"},
		{"suspended", func() { install(fakegithub.Installation{Account: "acme", Suspended: true}) }, no + "the GitHub App's installation on acme is suspended)"},
		{"lacks a permission", func() {
			install(fakegithub.Installation{Account: "acme", Permissions: map[string]string{"contents": "read", "metadata": "read"}})
		}, no + "the GitHub App's installation on acme lacks a permission it needs)"},
		{"as it should be", func() { install(whole) }, ""},
		{"suspended since", func() { install(fakegithub.Installation{Account: "acme", Suspended: true}) }, no + "the GitHub App's installation on acme is suspended)"},
		{"deselected since", func() { install(fakegithub.Installation{Account: "acme", Repos: []string{"acme/lib"}}) }, no + "the GitHub App is installed on acme, but acme/app is not selected)"},
		{"removed since", func() { install(fakegithub.Installation{Account: "someone-else"}) }, no + "the GitHub App is not installed on acme/app)"},
		{"503", func() { install(whole); w.hub.SetFaults(fakegithub.Faults{API: 503}) }, no + "the GitHub API answered 503)"},
		{"rate limit", func() { w.hub.SetFaults(fakegithub.Faults{RateLimit: fakegithub.PrimaryRateLimit}) }, no + "the GitHub API's rate limit is reached until "},
		{"429", func() { w.hub.SetFaults(fakegithub.Faults{RateLimit: fakegithub.TooManyRequests}) }, no + "the GitHub API's rate limit is reached until "},
		{"secondary limit", func() { w.hub.SetFaults(fakegithub.Faults{RateLimit: fakegithub.SecondaryRateLimit}) }, no + "the GitHub API asks to wait 1m0s)"},
		{"another key", func() {
			w.gateway.Minter = other(func(m *mint.GitHubApp) { m.Key, _ = rsa.GenerateKey(rand.Reader, 2048) })
		}, no + "the GitHub API does not accept the app's id and key)"},
		{"nobody there", func() {
			w.gateway.Minter = other(func(m *mint.GitHubApp) {
				m.Key = key
				m.Forge, _ = gitgw.NewForge("github.com", "http://127.0.0.1:1/", forge.Git.String())
			})
		}, no + "the GitHub API cannot be reached)"},
		{"a clock of yesterday", func() { w.gateway.Minter = app; w.hub.Advance(24 * time.Hour) }, ""},
		{"a token that takes its time", func() {
			w.hub.SetFaults(fakegithub.Faults{TokenLag: 50 * time.Millisecond, LagStatus: http.StatusNotFound})
		}, ""},
	} {
		w.hub.SetFaults(fakegithub.Faults{})
		w.change(func() {
			w.gateway.Limits.Retry = []time.Duration{20 * time.Millisecond, 40 * time.Millisecond, 80 * time.Millisecond}
			c.set()
		})
		ref := "x-" + strings.ReplaceAll(c.name, " ", "-")
		r := w.git("push", "origin", "main:"+ref)
		landed := w.refs("acme/app")["refs/heads/"+ref] != ""
		switch {
		case c.want == "" && (r.code != 0 || !landed):
			t.Errorf("%s: exit %d\n%s", c.name, r.code, r.out)
		case c.want != "" && (r.code != 1 || landed || strings.Contains(r.out, "Everything up-to-date") || !strings.Contains(r.out, " ! [remote rejected] main -> "+ref+" "+c.want)):
			t.Errorf("%s: exit %d, want %q in\n%s", c.name, r.code, c.want, r.out)
		}
	}
}
