package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"postern/launcher/environ"
	"postern/launcher/sandbox"
	"postern/launcher/tty"
)

// settingsOf writes a settings file and loads it.
func settingsOf(t *testing.T, text string) (*settings, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "launcher.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return loadSettings(path)
}

func TestSettingsFile(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	s, err := settingsOf(t, `
policy: strict
repo: github.com/acme/app
agent: Ann
workspace: w1
link: [github.com/acme/lib, github.com/acme/doc]
allow:
  - a.example 443
  - "*.b.example"
network: off
mode: plan
bind: [~/.nvm:ro, /opt/tools]
protect: [/srv/keep]
hide: [~/x, "**/*.pem"]
publish: [3000, 8080:80, "[::1]:8081:81"]
host_port: 5432
nested_sandbox: yes
environment: strip
env: [ANTHROPIC_API_KEY, A=b c]
all_proxy: socks
git_name: Ann Example
git_email: ann@example.com
git_hooks: true
quiet: true
`)
	if err != nil {
		t.Fatal(err)
	}
	if s.Policy != "strict" || s.Repo != "github.com/acme/app" || s.Agent != "Ann" || s.Workspace != "w1" || s.Network || s.Mode != sandbox.ModePlan ||
		!s.Nested || s.Environment != environ.Strip || s.AllProxy != environ.AllSOCKS || s.GitName != "Ann Example" || s.GitEmail != "ann@example.com" || !s.GitHooks || !s.Quiet {
		t.Errorf("got %+v", s)
	}
	for _, tc := range []struct {
		name      string
		got, want []string
	}{
		{"publish", s.Publish, []string{"3000", "8080:80", "[::1]:8081:81"}},
		{"host_port", s.Grants, []string{"5432"}},
		{"link", s.Links, []string{"github.com/acme/lib", "github.com/acme/doc"}},
		{"allow", s.Allow, []string{"a.example 443", "*.b.example"}},
		{"protect", s.Protect, []string{"/srv/keep"}},
		{"hide", s.Hide, []string{"/home/u/x", "**/*.pem"}},
		{"env", s.Env, []string{"ANTHROPIC_API_KEY", "A=b c"}},
	} {
		if !slices.Equal(tc.got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, tc.got, tc.want)
		}
	}
	if want := []sandbox.Bind{{Path: "/home/u/.nvm", ReadOnly: true}, {Path: "/opt/tools"}}; !slices.Equal(s.Binds, want) {
		t.Errorf("binds %v, want %v", s.Binds, want)
	}
}

func TestSettingsDefaults(t *testing.T) {
	for _, path := range []string{"", filepath.Join(t.TempDir(), "none.yaml")} {
		s, err := loadSettings(path)
		if err != nil {
			t.Fatal(err)
		}
		if !s.Network || s.Mode != sandbox.ModeChat || s.Nested || s.Environment != environ.Allow || s.AllProxy != environ.AllHTTP || s.GitHooks || s.Quiet {
			t.Errorf("got %+v", s)
		}
	}
}

func TestSettingsThatAreWrong(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		says       []string
	}{
		{"an unknown key", "polcy: x", []string{`"polcy"`, "policy", "launcher.yaml"}},
		{"two of them", "polcy: x\nmod: y", []string{`"polcy"`, `"mod"`}},
		{"a key inside a key", "policy:\n  name: x", []string{"policy", "one text"}},
		{"an unknown key with keys", "proxy:\n  name: x", []string{`"proxy.name"`}},
		{"a list for a text", "policy: [a, b]", []string{"policy", "one text"}},
		{"a number in a list", "allow: [1]", []string{"allow"}},
		{"a text for on or off", "network: maybe", []string{"network", "maybe"}},
		{"a number for on or off", "quiet: 3", []string{"quiet"}},
		{"a mode", "mode: chatty", []string{"mode", "chatty"}},
		{"all_proxy", "all_proxy: socks4", []string{"all_proxy"}},
		{"environment", "environment: all", []string{"environment", "all"}},
		{"a relative folder", "bind: [x]", []string{"bind", `"x"`}},
		{"an empty folder", "bind: [':ro']", []string{"bind"}},
		{"a pattern of another language", "deny_name: ['*.{key,pem}']", []string{"deny_name", "launcher.yaml", "one pattern for each name"}},
		{"a pattern for a free folder", "free_dir: ['/w/*']", []string{"free_dir", "name the folders"}},
		{"a relative free folder", "free_dir: [w]", []string{"free_dir", `"w"`}},
		{"no YAML", "policy: [", []string{"launcher.yaml"}},
		{"a key twice", "policy: a\npolicy: b", []string{"policy"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := settingsOf(t, tc.text)
			if err == nil {
				t.Fatalf("taken: %+v", s)
			}
			for _, text := range tc.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v does not say %q", err, text)
				}
			}
		})
	}
}

func TestSettingsOfTheEnvironment(t *testing.T) {
	t.Setenv("POSTERN_POLICY", "from-env")
	t.Setenv("POSTERN_NETWORK", "off")
	t.Setenv("POSTERN_ALLOW", "a.example  b.example")
	t.Setenv("POSTERN_POLCY", "nobody asked")
	s, err := settingsOf(t, "policy: from-file\nallow: [c.example]\nagent: Ann\n")
	if err != nil {
		t.Fatal(err)
	}
	if s.Policy != "from-env" || s.Network || s.Agent != "Ann" || !slices.Equal(s.Allow, []string{"a.example", "b.example"}) {
		t.Errorf("got %+v", s)
	}
	t.Setenv("POSTERN_MODE", "chatty")
	if _, err := settingsOf(t, ""); err == nil || !strings.Contains(err.Error(), "POSTERN_MODE") {
		t.Errorf("got %v, want an error that names POSTERN_MODE", err)
	}
}

// A settings file that somebody else can write is somebody else's.
func TestSettingsOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "launcher.yaml")
	if err := os.WriteFile(path, []byte("policy: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o620, 0o602, 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := loadSettings(path); err == nil || !strings.Contains(err.Error(), "somebody else") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if _, err := loadSettings(path); err == nil {
			t.Error("a file of another user was read")
		}
	}
}

func TestWhereSettingsAre(t *testing.T) {
	for _, tc := range []struct{ xdg, home, want string }{
		{"/x", "/home/u", "/x/postern/launcher.yaml"},
		{"", "/home/u", "/home/u/.config/postern/launcher.yaml"},
		{"relative", "/home/u", "/home/u/.config/postern/launcher.yaml"},
		{"", "relative", ""},
		{"", "", ""},
	} {
		t.Setenv("XDG_CONFIG_HOME", tc.xdg)
		t.Setenv("HOME", tc.home)
		if got := settingsFile(); got != tc.want {
			t.Errorf("XDG_CONFIG_HOME=%q HOME=%q: %q, want %q", tc.xdg, tc.home, got, tc.want)
		}
	}
}

func TestParseOnOff(t *testing.T) {
	for text, want := range map[string]bool{"on": true, "ON": true, "true": true, "1": true, "off": false, "Off": false, "false": false, "no": false} {
		if got, err := parseOnOff(text); err != nil || got != want {
			t.Errorf("%q: %t, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "maybe", "onn"} {
		if got, err := parseOnOff(text); err == nil {
			t.Errorf("%q is %t", text, got)
		}
	}
}

// Of a terminal, on and off are what YAML reads as true and false.
func TestSettingTTY(t *testing.T) {
	for text, want := range map[string]tty.Mode{"": tty.Auto, "tty: auto": tty.Auto, "tty: on": tty.On, "tty: off": tty.Off, "tty: 'off'": tty.Off} {
		if s, err := settingsOf(t, text+"\n"); err != nil || s.TTY != want {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := settingsOf(t, "tty: sometimes\n"); err == nil || !strings.Contains(err.Error(), "auto, on or off") {
		t.Errorf("got %v", err)
	}
}
