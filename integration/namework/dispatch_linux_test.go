package namework

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"postern/launcher/nameguard"
	"postern/launcher/spec"
)

// dispatch runs a script as an agent's host does: by a spec whose denied names are the
// standard ones, with what the host hears of it.
func (p *place) dispatch(t *testing.T, script string) (events []spec.Event, code int) {
	t.Helper()
	var globs []string
	for _, rule := range nameguard.Secrets() {
		globs = append(globs, rule.Text)
	}
	text, err := json.Marshal(map[string]any{
		"sessionId": "s", "workspaceId": "w", "bindMounts": []map[string]any{{"hostPath": p.tree}}, "protectedPaths": globs,
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := p.launcher(t, "exec", "--events", "1", "--spec", "-", "--", "/bin/sh", "-c", script)
	cmd.Stdin = bytes.NewReader(text)
	got := end(t, cmd)
	for line := range strings.Lines(got.out) {
		var e spec.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v\n%s", line, err, got.err)
		}
		events = append(events, e)
	}
	if len(events) == 0 {
		t.Fatalf("status %d, no events\n%s", got.code, got.err)
	}
	return events, got.code
}

// The standard policy of a host starts on Linux, works, and refuses each of these once, with
// EACCES, by a rule that it names.
func TestDispatch(t *testing.T) {
	postern(t)
	for _, tc := range []struct{ before, try, action, target, rule, source string }{
		{"mkdir -p sub/dir", "echo x > sub/dir/.env", "file-write-create", "sub/dir/.env", "**/.env", "spec"},
		{"echo x > a", "mv a b.key", "file-write-create", "b.key", "**/*.key", "spec"},
		{"", "ln -s x .git", "file-write-create", ".git", "**/.git/hooks", "default"},
		{"", "git init -q n && echo x > n/.git/hooks/pre-commit", "file-write-create", "n/.git/hooks", "**/.git/hooks", "default"},
	} {
		t.Run(tc.try, func(t *testing.T) {
			p := newPlace(t)
			appliance(t, p.runs)
			events, code := p.dispatch(t, tc.before+"\n"+tc.try+" && exit 9\necho worked > after; cat after")
			var out, said []byte
			var refused []string
			for _, e := range events {
				switch e.Type { //nolint:exhaustive // the others say how it went
				case spec.Stdout:
					out = append(out, e.Bytes()...)
				case spec.Stderr:
					said = append(said, e.Bytes()...)
				case spec.Violated:
					refused = append(refused, strings.Join([]string{e.Action, strings.TrimPrefix(e.Target, p.tree+"/"), e.Rule, e.Source}, " "))
				}
			}
			if code != 0 || string(out) != "worked\n" {
				t.Errorf("status %d, %q", code, out)
			}
			if !strings.Contains(string(said), "Permission denied") {
				t.Errorf("it does not fail with EACCES: %q", said)
			}
			if want := strings.Join([]string{tc.action, tc.target, tc.rule, tc.source}, " "); len(refused) != 1 || refused[0] != want {
				t.Errorf("violations %q, want %q once; %q", refused, want, said)
			}
			for path := range read(t, p.tree, nil) {
				if strings.HasSuffix(path, ".env") || strings.HasSuffix(path, ".key") || filepath.Base(path) == "pre-commit" || path == "/.git" {
					t.Errorf("%s is there", path)
				}
			}
		})
	}
}
