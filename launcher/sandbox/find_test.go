package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeBwrap puts a program named bwrap into a directory of its own.
func fakeBwrap(tb testing.TB, text string) (dir string) {
	tb.Helper()
	dir = tempDir(tb)
	if err := os.WriteFile(filepath.Join(dir, "bwrap"), []byte(text), 0o755); err != nil {
		tb.Fatal(err)
	}
	return dir
}

func TestFindBwrap(t *testing.T) {
	const good = "#!/bin/sh\n"
	for _, tc := range []struct {
		name   string
		change func(path string) error
		want   Reason
	}{
		{"a program", nil, ""},
		{"nothing", os.Remove, ReasonMissing},
		{"a directory", func(path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o755))
		}, ReasonUntrusted},
		{"not executable", func(path string) error { return os.Chmod(path, 0o644) }, ReasonUntrusted},
		{"setuid", func(path string) error { return os.Chmod(path, 0o755|os.ModeSetuid) }, ReasonSetuid},
		{"setgid", func(path string) error { return os.Chmod(path, 0o755|os.ModeSetgid) }, ReasonSetuid},
		{"writable by others", func(path string) error { return os.Chmod(path, 0o777) }, ReasonUntrusted},
		{"in a directory that is", func(path string) error { return os.Chmod(filepath.Dir(path), 0o777) }, ReasonUntrusted},
		{"a link to one that is", func(path string) error {
			return errors.Join(os.Chmod(path, 0o777), os.Rename(path, path+".real"), os.Symlink("bwrap.real", path))
		}, ReasonUntrusted},
		{"a link in a circle", func(path string) error {
			return errors.Join(os.Remove(path), os.Symlink("bwrap", path))
		}, ReasonUntrusted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := fakeBwrap(t, good)
			if tc.change != nil {
				must(t, tc.change(filepath.Join(dir, "bwrap")))
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
