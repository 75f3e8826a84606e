package seatbelt

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"postern/launcher/nameguard"
	"postern/launcher/sandbox/sbpl"
)

// nearNames are spellings that a volume of macOS tells from one another as nameguard
// does; oddNames are those that nameguard alone takes for another name.
var (
	nearNames = []string{
		".env", ".ENV", ".env.local", "x.env", "a.key", "a.Key", "a.\u212aey", "id_rsa", "id_r\u017fa", ".git", ".GIT", "hooks", "config", "modules", "worktrees", "info", "attributes",
		"commondir", ".claude", "settings.json", "node_modules", "Node_modules", ".npmrc", "é.pem", "e\u0301.pem", "É.x", "a", "b", "src", "x\ny", ".profile", "ünï", "u\u0308nï", ".vscode",
	}
	oddNames = []string{".e\u200dnv", "\uff0eenv", ".\U0001d41env", ".pro\ufb01le", "a.k\u00adey", "\u2069.git", "ho\u200coks", "\uff4e\u00fcn\u00ef"}
	anyNames = append(append([]string{}, nearNames...), oddNames...)
)

// TestNamesAreAsNameguardSays is the differential test of the two that a pattern becomes:
// the expressions of a profile, read by the evaluator, and the rules. They answer alike
// about every path of names that a volume of macOS compares as they do, and about any
// other the profile forbids nothing that the rules allow.
func TestNamesAreAsNameguardSays(t *testing.T) {
	mine := []string{"id_r?a", "src/*/b", "src/**/a", "\u00fcn\u00ef", "é*", "/w/a/*.log", "/w/src/config"}
	policy := &Policy{Writable: []string{"/w"}, Names: []string{}, NamesFree: nameguard.Packages()}
	config := nameguard.Config{Globs: nameguard.Secrets(), Names: nameguard.Mandatory(), Packages: nameguard.Packages()}
	for _, text := range mine {
		config.Globs = append(config.Globs, nameguard.Rule{Text: text})
	}
	for _, r := range config.Globs {
		policy.Secrets = append(policy.Secrets, r.Text)
	}
	for _, r := range config.Names {
		policy.Names = append(policy.Names, r.Text)
	}
	p := load(t, policy)
	rules, err := nameguard.Compile(config)
	if err != nil {
		t.Fatal(err)
	}
	both := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		names := nearNames
		odd := rapid.IntRange(0, 9).Draw(t, "odd") == 0
		if odd {
			names = anyNames
		}
		parts := rapid.SliceOfN(rapid.SampledFrom(names), 1, 6).Draw(t, "parts")
		path := "/w/" + strings.Join(parts, "/")
		at := strings.LastIndexByte(path, '/')
		if strings.Count(path, "node_modules/") > 1 {
			return // a name between two of them is forbidden in a profile alone
		}
		for _, how := range sbpl.Readings() {
			for _, q := range []struct {
				op, vnode string
				as        nameguard.Op
			}{
				{"file-write-create", "REGULAR-FILE", nameguard.OpWrite},
				{"file-write-data", "REGULAR-FILE", nameguard.OpWrite},
				{"file-write-create", "DIRECTORY", nameguard.OpMakeDir},
				{"file-write-create", "SYMLINK", nameguard.OpMakeOther},
				{"file-write-create", "SYMLINK", nameguard.OpMoveHere},
				{"file-write-create", "REGULAR-FILE", nameguard.OpMoveFileHere},
				{"file-write-unlink", "REGULAR-FILE", nameguard.OpMoveFileAway},
				{"file-write-unlink", "SYMLINK", nameguard.OpMoveAway},
				{"file-write-unlink", "DIRECTORY", nameguard.OpMoveAway},
			} {
				allowed, _ := p.Decide(sbpl.Request{Op: q.op, Path: path, Vnode: q.vnode}, how)
				rule := rules.Check([]byte(path[:at]), []byte(path[at+1:]), q.as)
				if allowed != (rule == nil) && (!odd || !allowed) {
					t.Fatalf("%s of %s %q, read %s: the profile says %v, the rules %v", q.op, q.vnode, path, how, allowed, rule)
				}
				both[allowed]++
			}
		}
	})
	if both[true] == 0 || both[false] == 0 {
		t.Errorf("allowed and refused: %v", both)
	}
}
