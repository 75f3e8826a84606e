package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"postern/caddy-modules/session/lease"
	"postern/launcher/nameguard"
	"postern/launcher/sandbox"
	"postern/launcher/violation"
)

func someRefusals() *refusals {
	var r refusals
	r.add(lease.Event{Type: lease.EventDenied, Fields: map[string]any{
		"target": "evil.example:443", "code": "not_allowed", "reason": "evil.example:443 is refused: no rule names it; add the rule \"evil.example\"", "rule": "", "source": "", "count": 2.0,
	}})
	r.add(lease.Event{Type: lease.EventPush, Fields: map[string]any{
		"outcome": "refused", "repository": "github.com/acme/app", "reason": "no rule allows push to main",
		"refs": []any{map[string]any{"ref": "refs/heads/main", "rule": "deny main"}, map[string]any{"ref": "refs/heads/x\x1b[2J"}, 7},
	}})
	r.violated(violation.Report{Violation: violation.Violation{Action: "touch", Target: "x\n", Raw: "touch: cannot touch 'x': Permission denied"}, Count: 3})
	r.violated(violation.Report{Violation: violation.Violation{Action: "access", Target: "x\n"}, Count: 1})
	r.violated(violation.Report{Violation: violation.Violation{Action: "touch", Target: "x\n"}, Count: 4})
	named := violation.Named(nameguard.Violation{Action: "file-write-create", Target: "/w/sub/.env", Rule: "**/.env", Source: "default", Comm: "sh\n"})
	r.violated(violation.Report{Violation: named, Count: 1})
	r.violated(violation.Report{Violation: named, Count: 5})
	return &r
}

var someChanges = []sandbox.Change{{Path: "/w/.npmrc", What: "is new", Cure: "read it"}}

// TestReport: each refusal has its rule and its cure.
func TestReport(t *testing.T) {
	data, err := json.MarshalIndent(someRefusals().report("run-1", 7, someChanges), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const cure = "where the run needs it: show the folder with --bind, and take it out of --protect and --hide; what the system denies to you it denies to a run"
	want := `{
 "session": "run-1",
 "exitCode": 7,
 "denied": [
  {
   "target": "evil.example:443",
   "reason": "evil.example:443 is refused: no rule names it; add the rule \"evil.example\"",
   "code": "not_allowed",
   "cure": "add the rule \"evil.example\"",
   "count": 2
  }
 ],
 "pushes": [
  {
   "target": "github.com/acme/app",
   "reason": "no rule allows push to main",
   "refs": [
    "refs/heads/main (deny main)",
    "refs/heads/x?[2J",
    ""
   ],
   "cure": "push to a ref that the gateway's rules allow, or have a rule added",
   "count": 1
  }
 ],
 "violations": [
  {
   "action": "touch",
   "target": "x; ",
   "raw": "touch: cannot touch 'x': Permission denied",
   "count": 7,
   "cure": "` + cure + `"
  },
  {
   "action": "access",
   "target": "x; ",
   "count": 1,
   "cure": "` + cure + `"
  },
  {
   "action": "file-write-create",
   "target": "/w/sub/.env",
   "rule": "**/.env",
   "source": "default",
   "comm": "sh?",
   "count": 6,
   "cure": "use another name, or name the folder with --free-dir; a run without patterns of names forbids such a name at the top of its folders alone"
  }
 ],
 "changes": [
  {
   "path": "/w/.npmrc",
   "what": "is new",
   "cure": "read it"
  }
 ],
 "more": 0
}`
	if string(data) != want {
		t.Errorf("got %s", data)
	}
	var none refusals
	if data, err := json.Marshal(none.report("r", 0, nil)); err != nil || string(data) != `{"session":"r","exitCode":0,"denied":[],"pushes":[],"violations":[],"changes":[],"more":0}` {
		t.Errorf("nothing: %s, %v", data, err)
	}
}

func TestSummaryOfViolations(t *testing.T) {
	var b strings.Builder
	var r refusals
	r.violated(violation.Report{Violation: violation.Violation{Action: "open", Target: "/etc/x", Raw: "told"}, Count: 3})
	r.violated(violation.Report{Violation: violation.Violation{Action: "access"}, Count: 1})
	r.violated(violation.Report{Violation: violation.Named(nameguard.Violation{Action: "file-write-create", Target: "/w/\x1b.env", Rule: "*.env", Source: "--deny-name", Comm: "mv"}), Count: 2})
	r.print(&b, nil)
	if b.String() != "postern: violation 3 times: open /etc/x\npostern: violation: access\n"+
		"postern: violation 2 times: file-write-create /w/?.env: the name is refused by *.env (--deny-name), tried by mv; use another name, take the rule back where it stands, or name the folder with --free-dir\n" {
		t.Errorf("got %q", b.String())
	}
}

// What was refused by a rule about names says which, and what would let it be: no cure is one
// that changes nothing, or speaks of rules that nobody wrote.
func TestWhatLetsANameBe(t *testing.T) {
	for _, tc := range []struct{ target, rule, source, why, cure string }{
		{"/w/a.key", "*.key", "deny_name of POSTERN_DENY_NAME", "the name is refused by *.key (deny_name of POSTERN_DENY_NAME)", "use another name, take the rule back where it stands, or name the folder with --free-dir"},
		{"/w/sub", "sub/*.key", "--deny-name", "on the way to sub/*.key (--deny-name) only folders are made, and stay where they are", "leave it where it is, take the rule back where it stands, or name the folder with --free-dir"},
		{"/w/a/.npmrc", "**/.npmrc", nameguard.SourceDefault, "the name is refused by **/.npmrc (default)", "use another name, or name the folder with --free-dir; a run without patterns of names forbids such a name at the top of its folders alone"},
		{"/w/x/.git/hooks", "**/.git/hooks", nameguard.SourceDefault, "the name is refused by **/.git/hooks (default)", "use another name, or name the folder with --free-dir; a run without patterns of names forbids such a name at the top of its folders alone"},
		{"/w/x/.git", "**/.git/hooks", nameguard.SourceDefault, "on the way to **/.git/hooks (default) only folders are made, and stay where they are", "linked worktrees and submodules need it: add them outside the run; a worktree can be added in a run without patterns of names"},
		{"/w/x/.git", ".git/hooks", "--deny-name", "on the way to .git/hooks (--deny-name) only folders are made, and stay where they are", "linked worktrees and submodules need it: add them outside the run; a worktree can be added in a run without patterns of names"},
		{"/w/.git/modules/a", "**/.git/modules/**/hooks", nameguard.SourceDefault, "on the way to **/.git/modules/**/hooks (default) only folders are made, and stay where they are", "linked worktrees and submodules need it: add them outside the run; a worktree can be added in a run without patterns of names"},
		{"/w/.git/worktrees/a/commondir", "**/.git/worktrees/*/commondir", nameguard.SourceDefault, "the name is refused by **/.git/worktrees/*/commondir (default)", "linked worktrees and submodules need it: add them outside the run; a worktree can be added in a run without patterns of names"},
		{"/w/a/.claude", "**/.claude/hooks", nameguard.SourceDefault, "on the way to **/.claude/hooks (default) only folders are made, and stay where they are", "leave it where it is, or name the folder with --free-dir"},
		{"/w/.vscode", "/w/.vscode", nameguard.SourceGuard, "the name is refused by /w/.vscode (--guard-names)", "use another name; it can be made with --guard-names off, or in a folder of --free-dir"},
		{"/w/.claude", "/w/.claude/agents", nameguard.SourceGuard, "on the way to /w/.claude/agents (--guard-names) only folders are made, and stay where they are", "leave it where it is; it can be moved with --guard-names off, or in a folder of --free-dir"},
		{"/w/.git/hooks/pre-commit", "/w/.git/hooks", nameguard.SourceKept, "it is refused by /w/.git/hooks (default, kept as it is)", "no run changes it: do that outside"},
		{"/w/sub/[a]/.git", "/w/sub/[a]/.git/config", nameguard.SourceKept, "it is refused by /w/sub/[a]/.git/config (default, kept as it is)", "no run changes it: do that outside"},
		{"/w/f", "/w/f", nameguard.SourceProtected, "it is refused by /w/f (protected path)", "where the run needs it: take it out of --protect, or of protect in the settings"},
		{"/w/f", "/w/f", nameguard.SourceHidden, "it is refused by /w/f (hidden path)", "where the run needs it: take it out of --hide, or of hide in the settings"},
		{"/w/s2", "/w/s2", nameguard.SourceFree, "/w/s2 (free directory) stays where it is", "leave it there, and what it lies in"},
		{"/w", "/w/s2", nameguard.SourceMount, "/w/s2 (mount point) stays where it is", "leave it there, and what it lies in"},
		{"/w/q", nameguard.MoveOut + "node_modules", nameguard.SourceDefault, "what was filled where names are free stays there: no move out of node_modules (default)", "copy it, for then each name in it is judged"},
		{"/w/q", nameguard.MoveOut + "/w/free", nameguard.SourceFree, "what was filled where names are free stays there: no move out of /w/free (free directory)", "copy it, for then each name in it is judged"},
	} {
		if why, cure := refusedName(tc.target, tc.rule, tc.source); why != tc.why || cure != tc.cure {
			t.Errorf("%s by %s (%s): got\n%s; %s\nwant\n%s; %s", tc.target, tc.rule, tc.source, why, cure, tc.why, tc.cure)
		}
	}
}

func readReport(t *testing.T, path string) *report {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(data, &r); err != nil || data[len(data)-1] != '\n' {
		t.Fatalf("%v: %q", err, data)
	}
	return &r
}

// TestDestination: a file is replaced as a whole, in the folder that was there at the
// start, whatever has become of the path since.
func TestDestination(t *testing.T) {
	dir := t.TempDir()
	inside, elsewhere := filepath.Join(dir, "out"), filepath.Join(dir, "elsewhere")
	for _, d := range []string{inside, elsewhere} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(inside, "s.json")
	d, err := openDestination(path)
	if err != nil {
		t.Fatal(err)
	}
	// What a run may do meanwhile: replace the folder, and the file.
	if err := errors.Join(os.Rename(inside, inside+"2"), os.Symlink(elsewhere, inside),
		os.Symlink(filepath.Join(elsewhere, "victim"), filepath.Join(inside+"2", "s.json"))); err != nil {
		t.Fatal(err)
	}
	if err := d.write(someRefusals().report("run-1", 0, nil)); err != nil {
		t.Fatal(err)
	}
	if r := readReport(t, filepath.Join(inside+"2", "s.json")); r.Session != "run-1" || len(r.Denied) != 1 {
		t.Errorf("wrote %+v", r)
	}
	for folder, want := range map[string]int{elsewhere: 0, inside + "2": 1} {
		if entries, err := os.ReadDir(folder); err != nil || len(entries) != want {
			t.Errorf("%s has %v, %v", folder, entries, err)
		}
	}
	for _, text := range []string{"", "fd:", "fd:1", "fd:2", "fd:-3", "fd:999", "fd:3x", dir, filepath.Join(dir, "none", "x"), os.DevNull} {
		if d, err := openDestination(text); err == nil {
			d.close()
			t.Errorf("%q is taken", text)
		}
	}
}

func TestDestinationDescriptor(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	d := &destination{fd: w}
	if err := d.write(someRefusals().report("run-1", 0, nil)); err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.NewDecoder(r).Decode(&got); err != nil || got.Session != "run-1" {
		t.Errorf("%+v, %v", got, err)
	}
}
