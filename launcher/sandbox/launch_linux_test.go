package sandbox

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// BenchmarkLaunch measures a whole run of true, lease included, each beside the bare
// bubblewrap command that such a run starts, with true in the place of our PID 1: the
// machine is never quiet, so only the two of one round are compared. The metrics are
// medians in milliseconds and the ratio of the medians, for which 3 is the limit.
//
// The launcher is built as it is shipped: the test binary would be slower.
func BenchmarkLaunch(b *testing.B) {
	needBwrap(b)
	exe := filepath.Join(b.TempDir(), "postern")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", exe, "postern/launcher")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	b.Run("folder", func(b *testing.B) { benchmarkLaunch(b, exe, newWorld(b)) })
	b.Run("names", func(b *testing.B) { benchmarkLaunch(b, exe, newWorld(b), "--deny-name", "*.key") })
	b.Run("repository", func(b *testing.B) {
		w := newWorld(b)
		repository(b, w.tree)
		benchmarkLaunch(b, exe, w)
	})
}

func benchmarkLaunch(b *testing.B, exe string, w *world, flags ...string) {
	b.Helper()
	takeLeases(b, filepath.Join(w.run, "lease.sock"))
	profile := w.profile()
	profile.Protected = []string{exe}
	f, err := Gather(profile)
	must(b, err)
	must(b, f.setExe(exe))
	git, err := f.makeGitFile()
	must(b, err)
	defer git.Close()
	placed, err := f.place()
	must(b, err)
	defer placed.remove()
	bwrap, err := FindBwrap(nil)
	must(b, err)

	timed := func(cmd *exec.Cmd) time.Duration {
		began := time.Now()
		if err := cmd.Run(); err != nil {
			b.Fatalf("%s: %v", cmd, err)
		}
		return time.Since(began)
	}
	null := devNull(b)
	var bare, run []time.Duration
	for b.Loop() {
		cmd, fds, err := command(bwrap, f, Plan(f), nil, null, null)
		must(b, err)
		end := slices.Index(cmd.Args, "--")
		cmd.Args = append(cmd.Args[:end+1:end+1], "/usr/bin/true")
		bare = append(bare, timed(cmd))
		(&files{list: fds.list[2:]}).close()

		cmd = exec.Command(exe, append(append([]string{"run"}, flags...), "--", "true")...)
		cmd.Dir, cmd.Env = w.tree, []string{"PATH=/usr/bin:/bin", "HOME=" + w.home, "POSTERN_RUN=" + w.run}
		run = append(run, timed(cmd))
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

// takeLeases is an appliance that takes every lease and does nothing with it.
func takeLeases(b *testing.B, path string) {
	b.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(b, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			wg.Go(func() {
				r, err := lease.Accept(c)
				if err != nil {
					return
				}
				if r.Reply(lease.Answer{OK: true, Session: lease.Info{ID: r.Hello.Spec.ID}, Born: "b"}) == nil {
					for e := range r.Reports() {
						if e.Type == lease.EventExit {
							_ = r.Send(e) // as the appliance does
						}
					}
					r.Wait()
				}
				_ = r.Close()
			})
		}
	})
	b.Cleanup(func() {
		_ = ln.Close()
		wg.Wait()
	})
}
