package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"postern/launcher/sandbox"
)

// bareArgs are the options of a bubblewrap that makes the same namespaces and shows
// the system: what nobody who starts a sandbox can do without.
var bareArgs = []string{
	"--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
	"--die-with-parent", "--new-session", "--cap-drop", "ALL", "--disable-userns",
	"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
	"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
}

// BenchmarkLaunch measures a whole run of true, lease and revocation included, each
// beside a bare bubblewrap that runs true with the same namespaces: the machine is
// never quiet, so only the two of one round are compared. The metrics are medians in
// milliseconds and the ratio of the medians, for which 3 is the limit.
//
// The launcher is built as it is shipped: the test binary would be slower.
func BenchmarkLaunch(b *testing.B) {
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
	timed := func(name string, args ...string) time.Duration {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = w.tree, w.env
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%s: %v\n%s", name, err, out)
		}
		return time.Since(began)
	}
	bareTrue := append(slices.Clone(bareArgs), "--", "/usr/bin/true")
	var bare, run []time.Duration
	for b.Loop() {
		bare = append(bare, timed(bwrap, bareTrue...))
		run = append(run, timed(exe, "run", "--", "true"))
	}
	report := func(name string, d []time.Duration) float64 {
		slices.Sort(d)
		ms := float64(d[len(d)/2]) / float64(time.Millisecond)
		b.ReportMetric(ms, name+"-ms")
		b.ReportMetric(float64(d[0])/float64(time.Millisecond), name+"-min-ms")
		return ms
	}
	bareMS, runMS := report("bare", bare), report("run", run)
	b.ReportMetric(runMS/bareMS, "ratio")
}
