package nameattacks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/integration/netlab"
	"postern/integration/world"
)

const caddyfile = `{
	persist_config off
	auto_https off
	egress {
		default_policy agent
		policy agent {
			allow example.com
		}
	}
}
`

// shortRace is how long races last in real runs, unless they are to last long.
const shortRace = time.Second

// TestRuns has all attacks in real runs of postern, with an appliance beside. A bare sandbox
// has shown before that they bite.
func TestRuns(t *testing.T) {
	if netlab.Inside() {
		netlab.Run(t, func(*netlab.Lab) {
			world.Appliance(t, caddyfile)
			world.Ready(t)
			_, _ = io.Copy(io.Discard, os.Stdin)
		})
		return
	}
	need(t)
	compile(t)
	w := world.Start(t, world.Binaries(t))
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tools := compiled
	if tools == "" {
		tools = folder(t)
	}
	copied(t, exe, filepath.Join(tools, "self"))
	t.Run("all", func(t *testing.T) {
		for _, alone := range []bool{true, false} {
			for i := range attacks {
				a := &attacks[i]
				if a.alone != alone || a.inside {
					continue
				}
				t.Run(a.group+"/"+a.name, func(t *testing.T) {
					if a.skip != nil {
						if why := a.skip(); why != "" {
							t.Skip(why)
						}
					}
					if !alone {
						t.Parallel()
					}
					a.inRun(t, w, tools)
				})
			}
		}
	})
	w.End(t)
}

// copied makes a copy of a program.
func copied(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

// inRun runs the attack in a run.
func (a *attack) inRun(t *testing.T, w *world.World, tools string) {
	t.Helper()
	b := a.bed(t)
	race := max(shortRace, raceTime(t)-3*time.Second+shortRace)
	r := b.postern(t, w, tools, a.name, race)
	for _, harm := range b.harm(t) {
		t.Errorf("%s; %s", harm, r)
	}
	if r.broken() {
		t.Errorf("%s", r)
	}
	if a.says != "" && r.said() != a.says {
		t.Errorf("it says %q, and not %q", r.said(), a.says)
	}
	if !a.deadly && !b.alive() {
		t.Errorf("nothing works any more: %s", r)
	}
}

// postern runs an attack with the rules of the bed, as a user does it.
func (b *bed) postern(t *testing.T, w *world.World, tools, name string, race time.Duration) result {
	t.Helper()
	argv := []string{"run", "--quiet", "--unix-sockets", "--bind", ".", "--bind", b.other, "--bind", tools + ":ro"}
	for _, rule := range b.rules.Globs {
		if !strings.HasPrefix(rule.Text, "**/.git/") { // those every run has
			argv = append(argv, "--deny-name", rule.Text)
		}
	}
	for _, rule := range b.rules.Paths {
		argv = append(argv, "--deny-name", b.ws+rule.Text[len(inside):])
	}
	env := map[string]string{"WORK": b.ws, "AGAIN": "/nowhere", "HOME": filepath.Join(w.Dir, "home"), "OTHER": b.other, "SELF": filepath.Join(tools, "self"), "PROGRAMS": tools}
	for name, value := range env {
		argv = append(argv, "--env", placeEnv+name+"="+value)
	}
	argv = append(argv, "--env", "GORACE=atexit_sleep_ms=0", "--", filepath.Join(tools, "self"), wardenPart, name, race.String())
	ctx, cancel := context.WithTimeout(t.Context(), 5*race+patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(w.Bin, "postern"), argv...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir, cmd.Env = b.ws, w.Env("/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if b.killed {
		time.AfterFunc(time.Second, func() { _ = cmd.Process.Kill() })
	}
	err := cmd.Wait()
	r := result{Code: cmd.ProcessState.ExitCode(), late: ctx.Err() != nil || errors.Is(err, exec.ErrWaitDelay)}
	r.Out = clip(out.String())
	return r
}
