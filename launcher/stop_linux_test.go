package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
	"postern/launcher/spec"
)

// The timeout: TERM, and KILL to what does not take it; 124 either way.
func TestExecTimeout(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	for name, script := range map[string]string{
		"takes TERM":   "echo on; exec sleep 100",
		"cleans up":    `trap 'echo cleaned; exit 9' TERM; echo on; while :; do sleep 0.05; done`,
		"ignores TERM": `trap '' TERM; echo on; while :; do sleep 0.05; done`,
		"forks away":   "echo on; setsid sleep 100 & sleep 100",
	} {
		t.Run(name, func(t *testing.T) {
			h := w.sh(nil, script, "--timeout", "1500ms")
			killed := h.of(spec.Killed)
			if exit := h.last(t); h.code != 124 || exit.Handle.State != spec.Destroyed || len(killed) != 1 || killed[0].Reason != spec.Timeout {
				t.Errorf("status %d, %+v\n%s", h.code, h.all, h.stderr)
			}
			if cleaned := strings.Contains(h.said(spec.Stdout), "cleaned"); cleaned != (name == "cleans up") {
				t.Errorf("said %q", h.said(spec.Stdout))
			}
			<-a.ended
		})
	}
	if h := w.sh(nil, "exit 3", "--timeout", "1m"); h.code != 3 || len(h.of(spec.Killed)) > 0 {
		t.Errorf("in time: %d %v", h.code, h.kinds())
	}
	got := w.postern("exec", "--spec", w.spec(nil), "--timeout", "300ms", "--", "sleep", "100")
	if got.code != 124 {
		t.Errorf("without events: %+v", got)
	}
}

// onFirst calls f when the command has said something.
func onFirst(f func()) func(spec.Event) {
	var done atomic.Bool
	return func(e spec.Event) {
		if e.Type == spec.Stdout && done.CompareAndSwap(false, true) {
			f()
		}
	}
}

const stubborn = `trap '' TERM; echo on; while :; do sleep 0.05; done`

// SIGTERM of the launcher is the host's stop, as is the end of the session.
func TestExecStop(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	term := func(e *execution) { _ = e.cmd.Process.Signal(syscall.SIGTERM) }
	end := func(*execution) {
		a.send(lease.Event{Time: time.Now(), Type: lease.EventSessionClose, Session: "s-1", Fields: map[string]any{"code": lease.EndRequested}})
		a.crash()
		a.start()
	}
	for _, tc := range []struct {
		name, script string
		stop         func(*execution)
		want         int
	}{
		{"TERM", "echo on; exec sleep 100", term, 128 + 15},
		{"TERM, trapped", `trap 'exit 9' TERM; echo on; while :; do sleep 0.05; done`, term, 9},
		{"TERM, ignored", stubborn, term, 128 + 9},
		{"TERM, twice", stubborn, func(e *execution) { term(e); time.Sleep(50 * time.Millisecond); term(e) }, 128 + 9},
		{"the session is ended", "echo on; exec sleep 100", end, 128 + 15},
		{"the session is ended, ignored", stubborn, end, 128 + 9},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := w.begin(nil, nil, "/bin/sh", "-c", tc.script)
			h := e.end(t, onFirst(func() { tc.stop(e) }))
			killed := h.of(spec.Killed)
			if exit := h.last(t); h.code != tc.want || len(killed) != 1 || killed[0].Reason != spec.Stopped || exit.Handle.State != spec.Destroyed {
				t.Errorf("status %d, want %d; %+v\n%s", h.code, tc.want, h.all, h.stderr)
			}
		})
	}
}

// Other signals are the command's business, and a KILL from elsewhere is what it is: not
// ours, and not for want of memory.
func TestExecOtherSignals(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	e := w.begin(nil, nil, "/bin/sh", "-c", `trap 'exit 5' USR1; echo on; while :; do sleep 0.05; done`)
	h := e.end(t, onFirst(func() { _ = e.cmd.Process.Signal(syscall.SIGUSR1) }))
	if h.code != 5 || len(h.of(spec.Killed)) > 0 {
		t.Errorf("USR1: %d %v", h.code, h.kinds())
	}
	h = w.sh(nil, "kill -KILL $$")
	if exit := h.last(t); h.code != 128+9 || exit.Signal != 9 || len(h.of(spec.Killed)) > 0 {
		t.Errorf("KILL: %d, %+v", h.code, h.all)
	}
}

// A command that the kernel kills for want of memory is told from one that somebody
// killed, and from one that was killed beside it.
func TestExecOutOfMemory(t *testing.T) {
	procs := limitedGroup(t, 256<<20)
	w := newWorld(t)
	newAppliance(t, w.runs)
	const hog = `x=0123456789abcdef; while :; do x=$x$x; done`
	for _, tc := range []struct {
		name, script string
		want         int
		oom          bool
	}{
		{"the command", hog, 128 + 9, true},
		{"what its shell ran", "/bin/sh -c '" + hog + "'; exit $?", 128 + 9, true},
		{"a child that it gets over", "/bin/sh -c '" + hog + "'; exit 4", 4, false},
		{"a KILL from elsewhere", "kill -KILL $$", 128 + 9, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := w.execution(nil, nil, "/bin/sh", "-c", tc.script)
			e.cmd.Args = append([]string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, procs, e.cmd.Path}, e.cmd.Args[1:]...)
			e.cmd.Path = "/bin/sh"
			h := e.start(t).end(t, nil)
			killed := h.of(spec.Killed)
			if h.last(t); h.code != tc.want || len(killed) != map[bool]int{true: 1}[tc.oom] || tc.oom && killed[0].Reason != spec.OOM {
				t.Errorf("status %d, want %d; %+v\n%s", h.code, tc.want, h.all, h.stderr)
			}
		})
	}
}

// limitedGroup makes a memory group of this test's own and returns the file by which
// processes join it. Only root can.
func limitedGroup(t *testing.T, limit int) string {
	t.Helper()
	for _, group := range []struct{ parent, file string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, // v1
		{"/sys/fs/cgroup", "memory.max"},                   // v2
	} {
		dir := filepath.Join(group.parent, fmt.Sprintf("postern-test-%d", os.Getpid()))
		if os.Mkdir(dir, 0o700) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if os.WriteFile(filepath.Join(dir, group.file), []byte(strconv.Itoa(limit)), 0o600) == nil {
			return filepath.Join(dir, "cgroup.procs")
		}
	}
	t.Skip("SKIPPED, NOT PASSED: this user cannot limit a group's memory here")
	return ""
}

// oomKills in both kinds of groups, and where there are none.
func TestOOMKills(t *testing.T) {
	for _, tc := range []struct {
		name, groups, file, text string
		want                     uint64
		ok                       bool
	}{
		{"v2", "0::/user.slice/a\n", "user.slice/a/memory.events", "low 0\noom 4\noom_kill 3\noom_group_kill 1\n", 3, true},
		{"v2, root", "0::/\n", "memory.events", "oom_kill 0\n", 0, true},
		{"v1", "9:name=systemd:/\n4:cpu,memory:/x\n0::/\n", "memory/x/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 12\n", 12, true},
		{"an old kernel", "4:memory:/x\n", "memory/x/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n", 0, false},
		{"no number", "0::/a\n", "a/memory.events", "oom_kill many\n", 0, false},
		{"nothing mounted", "0::/a\n", "b", "", 0, false},
		{"nonsense", "a\n:\n::\n", "b", "", 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range map[string]string{
				"proc/self/cgroup":                      tc.groups,
				filepath.Join("sys/fs/cgroup", tc.file): tc.text,
			} {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if n, ok := oomKills(root); n != tc.want || ok != tc.ok {
				t.Errorf("%d %t, want %d %t", n, ok, tc.want, tc.ok)
			}
		})
	}
	if _, ok := oomKills(t.TempDir()); ok {
		t.Error("known without a /proc")
	}
}

// recorder is a target that notes what it is told.
type recorder struct{ said chan string }

func (r *recorder) Signal(sig syscall.Signal, group bool) error {
	r.said <- fmt.Sprint(int(sig), group)
	return nil
}
func (r *recorder) Kill() { r.said <- "kill" }

func TestStopper(t *testing.T) {
	for name, tc := range map[string]struct {
		do    func(*stopper)
		want  []string
		cause spec.Cause
	}{
		"nothing":                  {func(*stopper) {}, nil, ""},
		"stopped":                  {func(s *stopper) { s.stop(spec.Stopped, time.Hour) }, []string{"15 true"}, spec.Stopped},
		"twice":                    {func(s *stopper) { s.stop(spec.Stopped, time.Hour); s.stop(spec.Stopped, time.Hour) }, []string{"15 true", "kill"}, spec.Stopped},
		"stopped after a timeout":  {func(s *stopper) { s.stop(spec.Timeout, time.Hour); s.stop(spec.Stopped, time.Hour) }, []string{"15 true", "kill"}, spec.Timeout},
		"timeout after a stop":     {func(s *stopper) { s.stop(spec.Stopped, time.Hour); s.stop(spec.Timeout, time.Hour) }, []string{"15 true"}, spec.Stopped},
		"too late":                 {func(s *stopper) { s.ended(); s.stop(spec.Stopped, 0); s.watch(time.Nanosecond) }, nil, ""},
		"a limit that is not used": {func(s *stopper) { s.watch(time.Hour) }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{make(chan string, 10)}
			s := &stopper{to: r}
			tc.do(s)
			cause := s.ended()
			close(r.said)
			var got []string
			for text := range r.said {
				got = append(got, text)
			}
			if cause != tc.cause || !slices.Equal(got, tc.want) {
				t.Errorf("%q %q, want %q %q", cause, got, tc.cause, tc.want)
			}
		})
	}
	// With the clock: the limit asks, the grace ends it.
	r := &recorder{make(chan string, 10)}
	s := &stopper{to: r}
	s.watch(time.Millisecond)
	if first := <-r.said; first != "15 true" {
		t.Errorf("%q", first)
	}
	if s.ended() != spec.Timeout {
		t.Error("not for the time")
	}
	s = &stopper{to: r}
	s.stop(spec.Stopped, time.Millisecond)
	if got := strconv.Quote(<-r.said) + strconv.Quote(<-r.said); got != `"15 true""kill"` {
		t.Error(got)
	}
	s.ended()
}

// A host that goes away is a reader that went away: the command hears of it when it
// writes, and nothing is left.
func TestExecHostGoesAway(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	e := w.begin(nil, nil, "/bin/sh", "-c", "while echo on; do :; done")
	buf := make([]byte, 100)
	if _, err := e.events.Read(buf); err != nil {
		t.Fatal(err)
	}
	_ = e.events.Close()
	_ = e.cmd.Wait()
	if code := e.cmd.ProcessState.ExitCode(); code == 0 || code == exitRefused {
		t.Errorf("status %d", code)
	}
	<-a.ended
}
