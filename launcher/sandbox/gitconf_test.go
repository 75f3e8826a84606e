package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseConfig(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       []setting
	}{
		{"nothing", "", nil},
		{"comments", "# a\n; b\n\t# c", nil},
		{"plain", "[core]\n\tbare = false\n", []setting{{"core.bare", "false"}}},
		{"one line", "[core] bare=false ; why", []setting{{"core.bare", "false"}}},
		{"two sections on one line", "[a]b=c\n[d \"e.F\"] G = h", []setting{{"a.b", "c"}, {"d.e.F.g", "h"}}},
		{"case", "[CoRe]\nFSMonitor=X", []setting{{"core.fsmonitor", "X"}}},
		{"old subsection", "[branch.Main]\nx=1", []setting{{"branch.main.x", "1"}}},
		{"quoted subsection", `[a "b\"c\\d"]` + "\nx=1", []setting{{`a.b"c\d.x`, "1"}}},
		{"boolean", "[core]\nfsmonitor\nbare ; x", []setting{{"core.fsmonitor", ""}, {"core.bare", ""}}},
		{"quotes", `[a]` + "\n" + `b = "x # y" z  # w`, []setting{{"a.b", "x # y z"}}},
		{"escapes", `[a]` + "\n" + `b = q\"\\\n\te`, []setting{{"a.b", "q\"\\\n\te"}}},
		{"a line that goes on", "[a]\nb = c \\\n  d\nc = e", []setting{{"a.b", "c   d"}, {"a.c", "e"}}},
		{"byte order mark, CRLF", "\ufeff[a]\r\nb = c\r\n", []setting{{"a.b", "c"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseConfig(tc.text)
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
	for _, text := range []string{"x", "b = c", "[", "[]", "[a", "[a \"b]", "[a \"b\nc\"]", "[a b]", "[a]\nb = \"c", "[a]\nb = \\q", "[a]\n-b = c", "[a]\nb c", "[a]\n=c", "\x00"} {
		if got, err := parseConfig(text); err == nil {
			t.Errorf("parseConfig(%q) = %q", text, got)
		}
	}
}

func TestUnordinary(t *testing.T) {
	base := tree(t, ".git/modules/m/", "x/")
	for _, tc := range []struct{ path, text, want string }{
		{"x/config", "[core]\nbare=true\nrepositoryformatversion=0\n[remote \"o\"]\nurl=https://x\nfetch=+a:b\n[branch \"m\"]\nremote=o\nmerge=m\n", ""},
		{"x/config", "[core]\nfsmonitor=x\n", "core.fsmonitor"},
		{"x/config", "[alias]\nst=!x\n", "alias.st"},
		{"x/config", "[remote \"o\"]\nurl=ext::sh -c x\n", "remote.o.url"},
		{"x/config", "[remote \"o\"]\nuploadpack=x\n", "remote.o.uploadpack"},
		{"x/config", "[remote]\nuploadpack=x\n", "remote.uploadpack"},
		{"x/config", "[include]\npath=x\n", "include.path"},
		{"x/config", "[core]\nworktree=/\n", "core.worktree"},
		{".git/modules/m/config", "[core]\nworktree=../../../m\n", ""},
		{"x/config", "nonsense", "not a git configuration: unexpected 'n'"},
	} {
		write(t, filepath.Join(base, tc.path), tc.text)
		if got := unordinary(filepath.Join(base, tc.path)); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.text, got, tc.want)
		}
	}
}

// FuzzParseConfig holds the parser to git itself: what git takes, it reads alike or
// refuses; it never sees less.
func FuzzParseConfig(f *testing.F) {
	for _, text := range []string{"[a]\nb=c", "[a \"b\"]\nc\n", "[a]b=\"c\"d;e", "[a]\nb=c\\\nd", "\ufeff[a]b\r\n", "[a.b]\nc=\\t", "[a]\nb = c \"  \" d  ", "[a]\nb=\x01", "[a]\nb=c\r"} {
		f.Add(text)
	}
	exe, err := exec.LookPath("git")
	if err != nil {
		f.Skip("SKIPPED, NOT PASSED: no git")
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseConfig(text)
		if err != nil || strings.ContainsRune(text, 0) {
			return
		}
		path := filepath.Join(dir, "config")
		must(t, os.WriteFile(path, []byte(text), 0o600))
		cmd := exec.Command(exe, "config", "--no-includes", "--null", "--list", "--file", path)
		cmd.Env = []string{"HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1"}
		out, err := cmd.Output()
		if err != nil {
			return // git does not take it at all
		}
		var want []setting
		for entry := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			if key, value, _ := strings.Cut(entry, "\n"); key != "" {
				want = append(want, setting{key, value})
			}
		}
		// Before 2.45 git makes a blank of every white space in a value.
		blank := strings.NewReplacer("\t", " ", "\r", " ")
		same := func(a, b setting) bool { return a.key == b.key && blank.Replace(a.value) == blank.Replace(b.value) }
		if !slices.EqualFunc(got, want, same) {
			t.Errorf("%q\ngot  %q\ngit: %q", text, got, want)
		}
	})
}
