package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"postern/launcher/sandbox"
)

// Patterns as an operator would give them.
var fivePatterns = []string{"--hide", "**/*.pem", "--hide", "**/*.key", "--hide", "**/*.p12", "--hide", "**/id_*", "--hide", "**/.env.*"}

// bareArgs are the options of a bubblewrap with the same namespaces, that shows the system.
var bareArgs = []string{
	"--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
	"--die-with-parent", "--new-session", "--cap-drop", "ALL", "--disable-userns",
	"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
	"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--", "/usr/bin/true",
}

// BenchmarkLaunchLargeTree measures a run of true in a folder of 300,000 files (10,000
// folders) with five patterns, beside what it must cost at least: a bare bubblewrap, the
// same run in an empty folder, and a find of one processor over the same tree. Medians in
// milliseconds, each round one of every kind.
func BenchmarkLaunchLargeTree(b *testing.B) {
	w := newWorld(b)
	newAppliance(b, w.runs)
	bwrap, err := sandbox.FindBwrap(nil)
	if err != nil {
		b.Fatal(err)
	}
	exe := filepath.Join(b.TempDir(), "postern")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", exe, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	empty := filepath.Join(w.home, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		b.Fatal(err)
	}
	for i := range 10_000 {
		dir := fmt.Sprintf("%s/m%02d/p%02d/s%d", w.tree, i%20, i/20%25, i/500)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			b.Fatal(err)
		}
		for j := range 30 {
			f, err := os.Create(fmt.Sprintf("%s/file_%02d.go", dir, j))
			if err != nil {
				b.Fatal(err)
			}
			_ = f.Close()
		}
	}
	timed := func(dir, name string, args ...string) time.Duration {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = dir, w.env
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%s: %v\n%s", name, err, out)
		}
		return time.Since(began)
	}
	run := append(append([]string{"run"}, fivePatterns...), "--", "true")
	taken := map[string][]time.Duration{}
	for b.Loop() {
		for kind, d := range map[string]time.Duration{
			"bare":  timed(empty, bwrap, bareArgs...),
			"empty": timed(empty, exe, run...),
			"find":  timed(w.tree, "find", ".", "-name", "*.pem"),
			"large": timed(w.tree, exe, run...),
		} {
			taken[kind] = append(taken[kind], d)
		}
	}
	for kind, d := range taken {
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2])/float64(time.Millisecond), kind+"-ms")
		b.ReportMetric(float64(d[0])/float64(time.Millisecond), kind+"-min-ms")
	}
}
