package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tempDir is t.TempDir with symlinks resolved.
func tempDir(tb testing.TB) string {
	tb.Helper()
	dir, err := filepath.EvalSymlinks(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

func write(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
}

func read(tb testing.TB, path string) string {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

func git(tb testing.TB, dir string, args ...string) string {
	tb.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// repository makes a git repository with one commit.
func repository(tb testing.TB, dir string) {
	tb.Helper()
	git(tb, filepath.Dir(dir), "init", "-q", "-b", "main", dir)
	write(tb, filepath.Join(dir, "file"), "one\n")
	git(tb, dir, "add", "file")
	git(tb, dir, "commit", "-q", "-m", "one")
}

// refusal demands that err is a refusal for that reason.
func refusal(tb testing.TB, err error, want Reason) {
	tb.Helper()
	var r *Refusal
	if !errors.As(err, &r) || r.Reason != want {
		tb.Fatalf("got %v, want a refusal %s", err, want)
	}
}

func lines(format string, args ...any) []string {
	return strings.Split(strings.TrimSpace(fmt.Sprintf(format, args...)), "\n")
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
