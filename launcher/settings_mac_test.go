package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"postern/launcher/sandbox"
)

// TestMacSettings reads what only macOS can give, and refuses what it cannot mean.
func TestMacSettings(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	for _, tc := range []struct{ text, says string }{
		{"mac_home: narrow\nmac_dns: system\nmac_open: [keychain, pasteboard]\nexec_grant: [~/tree/build]\nexec_deny: /usr/bin/osascript\n", ""},
		{"mac_home: none", "neither wide nor narrow"},
		{"mac_dns: open", "want off, guard or system"},
		{"mac_open: [everything]", `"everything" is none of`},
		{"exec_grant: [tree]", "not an absolute path"},
		{"exec_grant: [/x/*]", "patterns"},
	} {
		path := filepath.Join(t.TempDir(), "launcher.yaml")
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := loadSettings(path)
		if tc.says != "" {
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%q: %v", tc.text, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		want := sandbox.Mac{Narrow: true, DNS: "system", Open: []string{"keychain", "pasteboard"}, ExecGrants: []string{"/home/u/tree/build"}, Dangerous: []string{"/usr/bin/osascript"}}
		if s.Mac.Narrow != want.Narrow || s.Mac.DNS != want.DNS || !slices.Equal(s.Mac.Open, want.Open) || !slices.Equal(s.Mac.ExecGrants, want.ExecGrants) || !slices.Equal(s.Mac.Dangerous, want.Dangerous) {
			t.Errorf("got %+v", s.Mac)
		}
	}
}

// A resolver for a run without a network would be one more way to ask, so there is none.
func TestMacGuardEndsWithTheNetwork(t *testing.T) {
	for network, want := range map[bool]string{true: sandbox.MacGuard, false: "off"} {
		r := &request{settings: &settings{Network: network, Mac: sandbox.Mac{DNS: sandbox.MacGuard}}}
		if got := r.asked().Mac.DNS; got != want {
			t.Errorf("network %v: %s", network, got)
		}
	}
}
