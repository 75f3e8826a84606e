package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeBwrap puts a program named bwrap into a directory of its own.
func fakeBwrap(t testing.TB, text string) (dir string) {
	t.Helper()
	dir = tempDir(t)
	if err := os.WriteFile(filepath.Join(dir, "bwrap"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFindBwrap(t *testing.T) {
	const good = "#!/bin/sh\n"
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, path string)
		want   Reason
	}{
		{"a program", nil, ""},
		{"nothing", func(t *testing.T, path string) { must(t, os.Remove(path)) }, ReasonMissing},
		{"a directory", func(t *testing.T, path string) { must(t, os.Remove(path)); must(t, os.Mkdir(path, 0o755)) }, ReasonUntrusted},
		{"not executable", func(t *testing.T, path string) { must(t, os.Chmod(path, 0o644)) }, ReasonUntrusted},
		{"setuid", func(t *testing.T, path string) { must(t, os.Chmod(path, 0o755|os.ModeSetuid)) }, ReasonSetuid},
		{"setgid", func(t *testing.T, path string) { must(t, os.Chmod(path, 0o755|os.ModeSetgid)) }, ReasonSetuid},
		{"writable by others", func(t *testing.T, path string) { must(t, os.Chmod(path, 0o777)) }, ReasonUntrusted},
		{"in a directory that is", func(t *testing.T, path string) { must(t, os.Chmod(filepath.Dir(path), 0o777)) }, ReasonUntrusted},
		{"a link to one that is", func(t *testing.T, path string) {
			must(t, os.Chmod(path, 0o777))
			must(t, os.Rename(path, path+".real"))
			must(t, os.Symlink("bwrap.real", path))
		}, ReasonUntrusted},
		{"a link in a circle", func(t *testing.T, path string) { must(t, os.Remove(path)); must(t, os.Symlink("bwrap", path)) }, ReasonUntrusted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := fakeBwrap(t, good)
			if tc.change != nil {
				tc.change(t, filepath.Join(dir, "bwrap"))
			}
			path, err := FindBwrap([]string{"/nonexistent", dir})
			if tc.want == "" {
				if err != nil || path != filepath.Join(dir, "bwrap") {
					t.Fatalf("got %q, %v", path, err)
				}
				return
			}
			refusal(t, err, tc.want)
		})
	}
}

func TestPathIsNotAsked(t *testing.T) {
	dir := fakeBwrap(t, "#!/bin/sh\ntouch "+filepath.Join(t.TempDir(), "ran"))
	t.Setenv("PATH", dir)
	if path, err := FindBwrap(nil); err == nil && strings.HasPrefix(path, dir) {
		t.Errorf("found %s through PATH", path)
	}
	_, err := FindBwrap([]string{t.TempDir()})
	refusal(t, err, ReasonMissing)
	if !strings.Contains(err.Error(), "apt-get install bubblewrap") {
		t.Errorf("%v does not say how to install it", err)
	}
}

func TestOwnedByAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	dir := fakeBwrap(t, "#!/bin/sh\n")
	must(t, os.Chown(filepath.Join(dir, "bwrap"), 65534, 65534))
	_, err := FindBwrap([]string{dir})
	refusal(t, err, ReasonUntrusted)
}
