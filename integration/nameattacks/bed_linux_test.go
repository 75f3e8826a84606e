package nameattacks

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"postern/launcher/nameguard"
)

// bed is what one run of an attack finds, and what the test knows of it.
type bed struct {
	dir     string // holds all of it
	ws      string // the workspace
	other   string // a second guarded folder, which is shown in a private tree
	outside string // a folder that is not shown

	args    []string // further options of bubblewrap
	rules   nameguard.Config
	inherit []string // files and folders that the sandbox inherits, opened for reading, from firstInherited on
	stdin   string   // the same, as standard input

	forbid  func(rel string) bool // names that are forbidden beside the usual ones
	killed  bool                  // the launcher is killed in the middle
	trapped bool                  // nothing forbidden may be removed either

	before map[string]entries
}

// firstInherited is the number of the first descriptor that is inherited: the third is the
// shim's.
const firstInherited = 4

// newBed makes the usual: plain files, a repository, and forbidden names that are there.
func newBed(t *testing.T) *bed {
	t.Helper()
	dir := folder(t)
	b := &bed{
		dir: dir, ws: filepath.Join(dir, "ws"), other: filepath.Join(dir, "other"), outside: filepath.Join(dir, "outside"),
		rules: nameguard.Config{
			Globs: slices.Concat(nameguard.Secrets(), nameguard.Everywhere()), Names: nameguard.MandatoryNew(), Packages: nameguard.Packages(),
			Aliases: [][]string{{inside, again}}, Paths: []nameguard.Rule{{Text: inside + "/.git/config", Source: nameguard.SourceDefault}},
		},
	}
	b.fill(t)
	return b
}

// folder makes a folder of this test's, with a short path, since sockets have bounds, and
// not below /tmp, which sandboxes have as their own.
func folder(t *testing.T) string {
	t.Helper()
	at, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(at, ".a") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill makes what attacks find.
func (b *bed) fill(t *testing.T) {
	t.Helper()
	for path, text := range map[string]string{
		"ws/plain": "plain\n", "ws/second": "second\n", "ws/folder/inner": "inner\n",
		"ws/.git/HEAD": "ref: refs/heads/main\n", "ws/.git/config": "[core]\n", "ws/.git/hooks/sample": "#!/bin/sh\n",
		"ws/old.pem": "secret\n", "ws/sub/.env": "secret\n", "ws/deep/er/x.key": "secret\n",
		"ws/node_modules/m/index.js": "0\n",
		"other/plain":                "plain\n", "other/.env": "secret\n",
		"outside/plain": "plain\n", "outside/host.pem": "secret\n",
	} {
		b.write(t, path, text)
	}
	b.mkdir(t, "ws/.git/objects")
	b.mkdir(t, "ws/.git/refs")
}

// write makes a file below the bed's folder.
func (b *bed) write(t *testing.T, path, text string) {
	t.Helper()
	path = filepath.Join(b.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// mkdir makes a folder below the bed's.
func (b *bed) mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(b.dir, path), 0o755); err != nil {
		t.Fatal(err)
	}
}

// alive reports whether the warden could work after the attack.
func (b *bed) alive() bool {
	data, err := os.ReadFile(filepath.Join(b.ws, aliveName))
	return err == nil && string(data) == aliveName
}

// look reads all folders of the bed.
func (b *bed) look(t *testing.T) map[string]entries {
	t.Helper()
	out := map[string]entries{}
	for _, dir := range []string{b.ws, b.other, b.outside} {
		seen, err := look(dir)
		if err != nil {
			t.Fatalf("look at %s: %v", dir, err)
		}
		out[dir] = seen
	}
	return out
}

// harm says what is on the disk now that must not be.
func (b *bed) harm(t *testing.T) []string {
	t.Helper()
	after := b.look(t)
	bad := func(rel string) bool { return forbidden(rel) || b.forbid != nil && b.forbid(rel) }
	out := slices.Concat(harm(b.before[b.ws], after[b.ws], bad, b.trapped), harm(b.before[b.other], after[b.other], bad, b.trapped))
	for path, now := range after[b.outside] {
		if was, ok := b.before[b.outside][path]; !ok || was != now {
			out = append(out, "outside/"+path+" was made or changed")
		}
	}
	if len(after[b.outside]) < len(b.before[b.outside]) {
		out = append(out, "something outside is gone")
	}
	return out
}
