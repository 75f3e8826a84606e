package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// anyTerminal is a terminal over the paths of anyFacts: every root is writable, every
// denial hides.
func anyTerminal(t *rapid.T) *Facts {
	f := anyFacts(t)
	f.Terminal, f.System, f.Private = true, []SystemPath{{Path: "/"}}, []string{"/run", "/tmp", "/var/tmp"}
	for i := range f.Roots {
		f.Roots[i].Writable = true
	}
	for i := range f.Denials {
		f.Denials[i].Kind = Hide
	}
	return f
}

// SPEC 52, of every path: hidden where it is to be, writable in the two folders, else the
// host's, and read-only.
func TestTerminalPlanKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyTerminal(t)
		plan := Plan(f)
		for _, p := range append(places(), "/", "/etc/passwd", "/home/other/file", "/opt/x", "/root") {
			a := look(plan, p)
			hidden := slices.ContainsFunc(f.Denials, func(d Denial) bool { return contains(d.Path, p) })
			_, inRoot := deepest(f.Roots, p)
			switch {
			case hidden && a.host:
				t.Fatalf("%s is hidden and visible, by %s %s\n%s", p, a.by.Op, a.by.Target, planText(plan))
			case hidden && a.writable:
				t.Fatalf("%s is hidden and what is written there vanishes\n%s", p, planText(plan))
			case !hidden && (!a.host || a.writable != inRoot):
				t.Fatalf("%s: visible %t, writable %t, in a folder of the terminal %t\n%s", p, a.host, a.writable, inRoot, planText(plan))
			}
		}
		for _, p := range []string{"/run/docker.sock", "/tmp/x", "/var/tmp/x", "/dev/sda", "/proc/1/root"} {
			if a := look(plan, p); a.host {
				t.Fatalf("%s of the host is there\n%s", p, planText(plan))
			}
		}
	})
}

// No directory on the way to what is hidden can be moved out of the way.
func TestTerminalPlanPinsAncestors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plan := Plan(anyTerminal(t))
		point := map[string]bool{}
		for _, m := range plan {
			point[m.Target] = true
		}
		for _, m := range plan {
			for dir := m.Target; m.role == roleGuard && dir != "/"; dir = filepath.Dir(dir) {
				if a := look(plan, filepath.Dir(dir)); a.host && a.writable && !point[dir] {
					t.Fatalf("%s can be moved, and %s with it\n%s", dir, m.Target, planText(plan))
				}
			}
		}
	})
}

func TestGatherTerminal(t *testing.T) {
	home := tempDir(t)
	for _, name := range []string{".aws/credentials", ".config/gh/hosts.yml", ".kube/config", "vault/key", "src/main.go", "elsewhere"} {
		write(t, filepath.Join(home, name), "x")
	}
	// A secret that is a link is where it leads to.
	if err := os.Symlink("vault", filepath.Join(home, ".ssh")); err != nil {
		t.Fatal(err)
	}
	f, err := GatherTerminal(&Terminal{Home: home, Dir: filepath.Join(home, "src"), RunDir: filepath.Join(home, "elsewhere")})
	if err != nil {
		t.Fatal(err)
	}
	var hidden []string
	for _, d := range f.Denials {
		if rel, err := filepath.Rel(home, d.Path); err == nil && filepath.IsLocal(rel) {
			hidden = append(hidden, rel)
		}
		if d.Kind != Hide {
			t.Errorf("%s is protected, and only five things are less than the home", d.Path)
		}
	}
	slices.Sort(hidden)
	if want := []string{".aws", ".config/gh", "elsewhere", "vault"}; !slices.Equal(hidden, want) {
		t.Errorf("hidden are %q, want %q", hidden, want)
	}
	if len(f.Roots) != 1 || f.Roots[0].Path != home || !f.Roots[0].Writable || f.Dir != filepath.Join(home, "src") {
		t.Errorf("roots %+v, in %s", f.Roots, f.Dir)
	}
}

// SPEC 52: exactly five.
func TestTerminalSecrets(t *testing.T) {
	if want := []string{".ssh", ".aws", ".gnupg", ".config/gh", "Library/Keychains"}; !slices.Equal(terminalSecrets, want) {
		t.Errorf("got %q, want %q", terminalSecrets, want)
	}
}

func TestTerminalRefuses(t *testing.T) {
	home := tempDir(t)
	write(t, filepath.Join(home, ".ssh/id"), "x")
	write(t, filepath.Join(home, "file"), "x")
	for _, tc := range []struct {
		name, home, dir string
		want            Reason
	}{
		{"no home", "", home, ReasonBind},
		{"a home that is the host", "/", home, ReasonBind},
		{"a home that is not there", filepath.Join(home, "none"), home, ReasonBindGone},
		{"a home that is a file", filepath.Join(home, "file"), home, ReasonBindGone},
		{"the root", home, "/", ReasonBind},
		{"a relative folder", home, "src", ReasonBind},
		{"the host's sockets", home, "/tmp", ReasonBind},
		{"the kernel's files", home, "/proc/self", ReasonBind},
		{"devices", home, "/dev", ReasonBind},
		{"the system", home, "/usr", ReasonBind},
		{"its settings", home, "/etc", ReasonBind},
		{"a secret", home, filepath.Join(home, ".ssh"), ReasonDir},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := GatherTerminal(&Terminal{Home: tc.home, Dir: tc.dir})
			refusal(t, err, tc.want)
			if r, _ := errors.AsType[*Refusal](err); strings.Contains(r.Error(), "\n") {
				t.Errorf("several lines: %q", r)
			}
		})
	}
}
