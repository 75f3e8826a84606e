package nameguard

import (
	"cmp"
	"slices"
	"strings"
	"testing"
)

func compile(tb testing.TB, c Config) *Rules {
	tb.Helper()
	r, err := Compile(c)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func from(source string, texts ...string) (out []Rule) {
	for _, text := range texts {
		out = append(out, Rule{Text: text, Source: source})
	}
	return out
}

// standard is what a dispatched run has, and a repository of its own.
func standard() Config {
	return Config{
		Globs: slices.Concat(Secrets(), Everywhere(), from("--deny-name", "secret?.txt", "/w/plans/*.md", "two*??xy")), Names: MandatoryNew(), Packages: Packages(),
		Paths: from("spec", "/w/app/.git/config", "/w/app/.git/objects/info/alternates", "/w/original"),
		Free:  []string{"/w/free"}, Aliases: [][]string{{"/w/app", "/mnt/app"}},
	}
}

// question is an operation on a path.
type question struct {
	op   Op
	path string
}

func (q question) ask(r *Rules) *Rule {
	dir, name := cut(q.path)
	return r.Check([]byte(dir), []byte(name), q.op)
}

// cut parts a path into its directory and its last name.
func cut(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	return cmp.Or(path[:i], "/"), path[i+1:]
}

var everyOp = []Op{OpWrite, OpMakeDir, OpMakeOther, OpMoveAway, OpMoveHere, OpMoveDirHere, OpRemove, OpMoveFileAway, OpMoveFileHere}

func TestCheck(t *testing.T) {
	r := compile(t, standard())
	all := slices.DeleteFunc(slices.Clone(everyOp), func(op Op) bool { return op == OpRemove })
	for _, tc := range []struct {
		path string
		rule string // by which the operations in not are refused; "" if none is
		not  []Op
	}{
		{"/w/.env", "**/.env", all},
		{"/w/a/b/.env", "**/.env", all},
		{"/w/a/.env/bin/python", "**/.env", all}, // below
		{"/.env", "**/.env", all},
		{"/w/.ENV", "**/.env", all},
		{"/w/\uff0eenv", "**/.env", all},
		{"/w/.e\u200dnv", "**/.env", all},
		{"/w/server.Key", "**/*.key", all},
		{"/w/server.\u212aey", "**/*.key", all},
		{"/w/a.key/b", "**/*.key", all},
		{"/w/.env.local", "**/.env.*", all},
		{"/w/.env.", "**/.env.*", all},
		{"/w/.environment", "", nil},
		{"/w/env", "", nil},
		{"/w/a.keys", "", nil},
		{"/w/key", "", nil},
		{"/w/.key", "**/*.key", all},
		{"/w/\nx.pem", "**/*.pem", all},
		{"/w/\xff.pem", "**/*.pem", all},
		{"/w/\xff.p\u200dem", "**/*.pem", all},
		{"/w/x.pe\xffm", "", nil},
		{"/w/" + strings.Repeat("x", 251) + ".pem", "**/*.pem", all},
		{"/w/" + strings.Repeat("é", 126) + ".pem", "**/*.pem", all},
		{"/w/secret1.txt", "secret?.txt", all},
		{"/w/secretß.txt", "secret?.txt", all}, // one character, though two when folded
		{"/w/secret①.txt", "secret?.txt", all},
		{"/w/two日xy", "two*??xy", nil},
		{"/w/secret.txt", "", nil},
		{"/w/secret12.txt", "", nil},
		{"/w/.pro\ufb01le", "**/.profile", all},
		{"/w/.bashrc", "**/.bashrc", all},
		{"/w/sub/.vscode/settings.json", "**/.vscode", all},
		{"/w/.claude", "**/.claude/commands", []Op{OpWrite, OpMakeOther, OpMoveAway, OpMoveHere, OpMoveDirHere, OpMoveFileAway, OpMoveFileHere}},
		{"/w/.claude/todo", "", nil},
		{"/w/.claude/settings.json", "**/.claude/settings.json", all},
		{"/w/node_modules/p/.vscode/x", "", nil},
		{"/w/node_modules/p/.env", "**/.env", all},
		{"/w/node_modules", "", nil},
		{"/w/Node_modules/.npmrc", "**/.npmrc", all}, // what frees is to the letter
		{"/w/.vscode/node_modules/x", "**/.vscode", all},
		// Of a new repository git makes the configuration.
		{"/w/new/.git", "**/.git/hooks", []Op{OpWrite, OpMakeOther, OpMoveAway, OpMoveHere, OpMoveDirHere, OpMoveFileAway, OpMoveFileHere}},
		{"/w/new/.git/hooks/pre-commit", "**/.git/hooks", all},
		{"/w/new/.GIT/HooKs", "**/.git/hooks", all},
		{"/w/new/.git/config", "", nil},
		{"/w/new/.git/commondir", "**/.git/commondir", all},
		{"/w/new/.git/info", "**/.git/info/attributes", []Op{OpWrite, OpMakeOther, OpMoveAway, OpMoveHere, OpMoveDirHere, OpMoveFileAway, OpMoveFileHere}},
		{"/w/new/.git/objects", "", nil},
		{"/w/new/.git/HEAD", "", nil},
		{"/w/new/.git/hooks2", "", nil},
		{"/w/new/.git/modules/a/b/config", "**/.git/modules/**/config", all},
		{"/w/new/.git/modules/config", "**/.git/modules/**/config", all},
		{"/w/new/.git/modules/a/commondir", "**/.git/modules/**/commondir", all}, // redirects git to other hooks
		{"/w/new/.git/worktrees/a/commondir", "**/.git/worktrees/*/commondir", all},
		{"/w/new/.git/modules/node_modules/a/hooks", "**/.git/modules/**/hooks", all}, // of a submodule among packages
		{"/w/node_modules/a/.git/hooks", "", nil},
		{"/w/new/.git/modules/a", "**/.git/modules/**/hooks", []Op{OpMakeOther, OpMoveAway, OpMoveHere, OpMoveDirHere}},
		{"/w/new/.git/modules/a/HEAD", "**/.git/modules/**/hooks", []Op{OpMakeOther, OpMoveAway, OpMoveHere, OpMoveDirHere}},
		{"/w/new/.git/worktrees/x/config.worktree", "**/.git/worktrees/*/config.worktree", all},
		{"/w/new/.git/worktrees/x/y/config.worktree", "", nil},
		// Of the run's own they are forbidden by their paths.
		{"/w/app/.git/config", "/w/app/.git/config", all},
		{"/w/app/.git/config/x", "/w/app/.git/config", all},
		{"/mnt/app/.git/config", "/w/app/.git/config", all},
		{"/mnt/app/.git/objects", "/w/app/.git/objects/info/alternates", []Op{OpWrite, OpMakeOther, OpMoveAway, OpMoveHere, OpMoveDirHere, OpMoveFileAway, OpMoveFileHere}},
		{"/mnt/app/x", "", nil},
		{"/mnt", "/mnt/app", []Op{OpWrite, OpMakeOther, OpMoveAway, OpMoveHere, OpMoveDirHere, OpMoveFileAway, OpMoveFileHere}},
		{"/w/original/a/b", "/w/original", all},
		{"/w/original2", "", nil},
		{"/w/plans/a.md", "/w/plans/*.md", all},
		{"/w/plans/a.txt", "", nil},
		{"/w/sub/plans/a.md", "", nil},
		// An operator's own.
		{"/w/free/.env", "", nil},
		{"/w/free/a/.git/hooks/x", "", nil},
		{"/w/free", "/w/free", []Op{OpWrite, OpMakeOther, OpMoveAway, OpMoveHere, OpMoveDirHere, OpMoveFileAway, OpMoveFileHere}},
		{"/w/Free/.env", "**/.env", all}, // what frees is to the letter
		{"/w/freedom/.env", "**/.env", all},
	} {
		for _, op := range everyOp {
			got := question{op, tc.path}.ask(r)
			switch {
			case !slices.Contains(tc.not, op):
				if got != nil {
					t.Errorf("%d %q: refused by %s", op, tc.path, got.Text)
				}
			case got == nil:
				t.Errorf("%d %q: not refused", op, tc.path)
			case got.Text != tc.rule:
				t.Errorf("%d %q: refused by %s, want %s", op, tc.path, got.Text, tc.rule)
			}
		}
	}
}

// TestRuleSaysWhereItStands: what a violation shows is what somebody wrote.
func TestRuleSaysWhereItStands(t *testing.T) {
	r := compile(t, standard())
	for path, want := range map[string]Rule{
		"/w/.env":            {"**/.env", "default"},
		"/w/secret1.txt":     {"secret?.txt", "--deny-name"},
		"/w/app/.git/config": {"/w/app/.git/config", "spec"},
	} {
		if got := (question{OpWrite, path}).ask(r); got == nil || *got != want {
			t.Errorf("%s: got %v", path, got)
		}
	}
}

func TestRemoval(t *testing.T) {
	c := standard()
	c.TrapRemove = true
	r := compile(t, c)
	for path, want := range map[string]bool{
		"/w/.env": true, "/w/app/.git/config": true, "/w/a": false,
		"/w/new/.git": false, // nothing is lost but what may be removed anyway
	} {
		if got := (question{OpRemove, path}).ask(r); (got != nil) != want {
			t.Errorf("remove %s: got %v", path, got)
		}
	}
}

// TestMovesOutOfWhereRulesDoNotHold: a directory that was filled there is not moved to
// where they do.
func TestMovesOutOfWhereRulesDoNotHold(t *testing.T) {
	c := standard()
	c.Aliases = append(c.Aliases, []string{"/w/node_modules/linked", "/w/linked"})
	r := compile(t, c)
	for _, tc := range []struct {
		from, to string
		refused  string // by which rule
	}{
		{"/w/a", "/w/b", ""},
		{"/w/node_modules/.a-123", "/w/node_modules/a", ""},
		{"/w/node_modules/a", "/w/x/node_modules/a", ""},
		{"/w/a", "/w/node_modules/a", ""},
		{"/w/node_modules/a", "/w/a", "move out of node_modules (default)"},
		{"/w/node_modules", "/w/old", "move out of node_modules (default)"},
		{"/w/node_modules", "/w/x/node_modules", ""},
		{"/w/a/node_modules/b/c", "/w/a/c", "move out of node_modules (default)"},
		{"/w/node_modules/linked/x", "/w/x", ""}, // the names held there all the time
		{"/w/free/x", "/w/x", "move out of /w/free (free directory)"},
		{"/w/x", "/w/free/x", ""},
		{"/w/free/x", "/w/free/y", ""},
		{"/w/free/x", "/w/node_modules/x", "move out of /w/free (free directory)"}, // there secrets are forbidden
	} {
		fromDir, fromName := cut(tc.from)
		toDir, toName := cut(tc.to)
		var got string
		if rule := r.CheckMove([]byte(fromDir), []byte(fromName), []byte(toDir), []byte(toName)); rule != nil {
			got = rule.Text + " (" + rule.Source + ")"
		}
		if got != tc.refused {
			t.Errorf("move %s to %s: got %q, want %q", tc.from, tc.to, got, tc.refused)
		}
	}
}

// TestAliases: under each path of a directory the rules of all of them hold, also of
// those above it, and of directories in it that have further paths.
func TestAliases(t *testing.T) {
	r := compile(t, Config{
		Globs:   from("spec", ".git/modules/**/config"),
		Paths:   from("spec", "/a/deny", "/y/also", "/gone/in"),
		Aliases: [][]string{{"/a", "/b"}, {"/a/s", "/y"}, {"/r/.git/modules", "/m"}, {"/gone/in/dir", "/out"}, {"/a/deny/file", "/f/ile"}},
	})
	for path, want := range map[string]bool{
		"/a/deny/x": true, "/b/deny/x": true, "/b/deny": true, "/b/x": false,
		"/a/s/also": true, "/b/s/also": true, "/y/also": true, "/y/x": false,
		"/m/lib/config": true, "/m/lib/x": false, "/r/.git/modules/x/config": true,
		"/f/ile": true, "/f/x": false, "/out": true, "/out/x": true, "/outer/x": false,
	} {
		if got := (question{OpMoveFileHere, path}).ask(r); (got != nil) != want {
			t.Errorf("%s: got %v", path, got)
		}
	}
}

// TestBelow: what holds below one folder holds at any depth there and nowhere else, whatever the
// folder is called.
func TestBelow(t *testing.T) {
	for _, dir := range []string{"/w/state", "/w/a*b", "/w/a?b", "/w/a[b]", "/w/{a}", `/w/a\b`, "/w/a\nb", "/w/**"} {
		r := compile(t, Config{Below: []Below{{Dir: dir, Rule: Rule{Text: "settings*.json", Source: SourceDefault}}, {Dir: dir, Rule: Rule{Text: "hooks/pre", Source: "x"}}}})
		for path, want := range map[string]string{
			dir + "/settings.json": dir + "/**/settings*.json", dir + "/x/y/settings.local.json": dir + "/**/settings*.json", dir + "/x/hooks/pre/z": dir + "/**/hooks/pre",
			dir + "/x": "", dir + "/pre": "", "/w/axb/settings.json": "", "/w/settings.json": "", "/settings.json": "",
		} {
			rule := (question{OpMoveFileHere, path}).ask(r)
			if got := text(rule); got != want {
				t.Errorf("%q: got %q, want %q", path, got, want)
			}
		}
		if rule := (question{OpMoveAway, dir}).ask(r); rule == nil {
			t.Errorf("%q can be moved away with its rules", dir)
		}
	}
	for _, b := range []Below{{"w", Rule{Text: "x"}}, {"/", Rule{Text: "x"}}, {"/w", Rule{Text: "/x"}}, {"/w", Rule{Text: "[x]"}}, {"/w/../x", Rule{Text: "x"}}} {
		if _, err := Compile(Config{Below: []Below{b}}); err == nil {
			t.Errorf("%+v is taken", b)
		}
	}
}

func text(r *Rule) string {
	if r == nil {
		return ""
	}
	return r.Text
}
