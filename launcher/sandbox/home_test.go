package sandbox

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The home is known from the accounts too: a variable that is missing, or leads astray,
// opens nothing.
func TestHomes(t *testing.T) {
	base := tree(t, "home/u/", "link -> home/u")
	account := func(home string) func() string { return func() string { return home } }
	for _, tc := range []struct {
		name, given, account string
		want                 []string
	}{
		{"both say the same", base + "/home/u", base + "/home/u", []string{base + "/home/u"}},
		{"no variable", "", base + "/home/u", []string{base + "/home/u"}},
		{"a relative one", "home", base + "/home/u", []string{base + "/home/u"}},
		{"one that leads astray", "/nonexistent", base + "/home/u", []string{"/nonexistent", base + "/home/u"}},
		{"no account", base + "/home/u/", "", []string{base + "/home/u"}},
		{"a link", base + "/link", "", []string{base + "/home/u", base + "/link"}},
		{"none", "", "", nil},
		{"the root of the host", "/", "/", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := homes(tc.given, account(tc.account))
			slices.Sort(tc.want)
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if home := accountHome(); home != "" && home != "/" && os.Getenv("HOME") == home {
		if _, err := Gather(&Profile{Binds: []Bind{{Path: home}}, Home: ""}); err == nil {
			t.Error("the home of the account can be shown when there is no variable")
		}
	}
}

func TestSecretsOfTheHome(t *testing.T) {
	base := tree(t, "u/.ssh/id", "u/.config/gh/hosts.yml", "u/.config/app/x", "u/.netrc", "u/.cargo/credentials.toml", "u/w/f")
	home := base + "/u"
	for _, path := range []string{"/.ssh", "/.ssh/id", "/.config/gh", "/.config/gh/hosts.yml", "/.netrc"} {
		for _, readOnly := range []bool{false, true} {
			_, err := Gather(&Profile{Binds: []Bind{{Path: home + path, ReadOnly: readOnly}}, Home: home})
			refusal(t, err, ReasonBind)
			if !strings.Contains(err.Error(), "secrets") || !strings.Contains(err.Error(), "--bind") {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	for _, mode := range []Mode{ModeChat, ModeReview} {
		f := gather(t, &Profile{Binds: []Bind{{Path: home + "/.config"}, {Path: home + "/.cargo"}}, Home: home, Mode: mode})
		if got, want := deniedIn(f, home, Hide), []string{".cargo/credentials.toml", ".config/gh"}; !slices.Equal(got, want) {
			t.Errorf("mode %s: hidden %q, want %q", mode, got, want)
		}
	}
}

// A folder that is protected inside every other one is so when it is the root.
func TestRootsThatAreProtectedNames(t *testing.T) {
	base := tree(t, "w/.vscode/sub/x", "w/.git/HEAD", "w/.git/objects/", "w/.git/refs/", "w/.git/hooks/x", "w/.git/info/attributes", "w/.git/config", "w/.npmrc", "w/.claude/hooks/x", "w/.claude/notes/x", "w/.env/lib/x")
	for _, tc := range []struct {
		root     string
		writable bool
	}{
		{"w/.vscode", false},
		{"w/.vscode/sub", false},
		{"w/.git/hooks", false},
		{"w/.npmrc", false},
		{"w/.git/config", false},
		{"w/.git/info/attributes", false},
		{"w/.claude/hooks", false},
		{"w/.claude/notes", true},
		{"w/.env/lib", true},
		{"w/.git/refs", true},
	} {
		f := gather(t, &Profile{Binds: []Bind{{Path: base + "/" + tc.root}, {Path: base + "/w", ReadOnly: true}}, Home: "/home/u", Dir: base + "/w"})
		for _, r := range granted(f) {
			if r.Path == base+"/"+tc.root && r.Writable != tc.writable {
				t.Errorf("%s: writable %t", tc.root, r.Writable)
			}
		}
	}
}
