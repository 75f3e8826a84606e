package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"postern/caddy-modules/session/lease"
	"postern/launcher/spec"
)

// noTool is a world in which there is no bubblewrap.
func noTool(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.env = append(w.env, fakeDir+"="+t.TempDir())
	return w
}

func variables(text string) map[string]string {
	vars := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		vars[name] = value
	}
	return vars
}

// SPEC 11, 20, 23: on is no demand. A host without a sandbox runs the command, says so,
// and does not claim another backend than it has.
func TestExecFallsBack(t *testing.T) {
	w := noTool(t)
	a := newAppliance(t, w.runs)
	h := w.sh(fields{"egressAllowlist": []string{"example.com"}}, "echo ran; exit 3", "--sandbox", "on")
	exit := h.last(t)
	if h.code != 3 || h.said(spec.Stdout) != "ran\n" || exit.Handle.Backend != "none" || exit.Handle.State != spec.Destroyed {
		t.Errorf("status %d, %+v\n%s", h.code, exit.Handle, h.stderr)
	}
	if ready := h.of(spec.Ready); len(ready) != 1 || ready[0].Handle.Backend != "none" {
		t.Errorf("ready %+v", ready)
	}
	if strings.Count(h.stderr, "no OS-native agent sandbox on this host") != 1 || !strings.Contains(h.stderr, "bubblewrap") || !strings.Contains(h.stderr, "not confined") {
		t.Errorf("said %q", h.stderr)
	}
	if seen := a.seen(); len(seen) != 1 || seen[0].Spec.ID != "s-1" || !slices.Equal(seen[0].Spec.EgressAllowlist, []string{"example.com"}) {
		t.Errorf("the appliance saw %+v", seen)
	}

	// By name it is a demand (SPEC 9); and a run by hand always is one.
	h = w.sh(nil, "touch ran", "--backend", "native")
	if exit := h.last(t); h.code != exitRefused || exit.Handle.State != spec.Failed || !strings.Contains(exit.Handle.Error, "[bwrap_missing]") || exit.Handle.Backend != "none" {
		t.Errorf("native by name: %d %+v", h.code, exit.Handle)
	}
	if h := w.sh(nil, "touch ran", "--backend", "microvm"); h.code != exitRefused || !strings.Contains(h.last(t).Handle.Error, "[backend_cannot_wrap]") {
		t.Errorf("microvm by name: %d %s", h.code, h.stderr)
	}
	if _, err := os.Stat(filepath.Join(w.tree, "ran")); err == nil {
		t.Error("a refused run ran")
	}
}

// A tool that is there and does not work is no host without a sandbox, where the reason
// is not one that such hosts have.
func TestExecDoesNotFallBack(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bwrap"), []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.env = append(w.env, fakeDir+"="+dir)
	h := w.sh(nil, "touch ran")
	if exit := h.last(t); h.code != exitRefused || exit.Handle.State != spec.Failed {
		t.Errorf("%d %+v", h.code, exit.Handle)
	}
	if _, err := os.Stat(filepath.Join(w.tree, "ran")); err == nil {
		t.Error("it ran without a sandbox")
	}
}

// SPEC 27: a run that uses up this user's processes, memory or namespaces does not have
// the next one without a sandbox.
func TestExecDoesNotFallBackForAShortage(t *testing.T) {
	const denied = "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user namespaces."
	passing := []string{
		"bwrap: Creating new namespace failed: Resource temporarily unavailable",
		"bwrap: Creating new namespace failed: Cannot allocate memory",
		"bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
		"bwrap: unshare user ns: No space left on device",
	}
	scripts := map[string]string{"only the probe lacks something": `[ -e "$0.ran" ] && { ` + says(passing[0]) + `; }; touch "$0.ran"; ` + says(denied)}
	for _, line := range passing {
		scripts[line] = says(line)
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := newAppliance(t, w.runs)
			(&fake{script: script}).install(t, w)
			h := w.sh(nil, "touch ran")
			if exit := h.last(t); h.code != exitRefused || exit.Handle.State != spec.Failed || len(h.of(spec.Ready)) > 0 {
				t.Errorf("%d %+v", h.code, exit.Handle)
			}
			if _, err := os.Stat(filepath.Join(w.tree, "ran")); err == nil || len(a.seen()) > 0 {
				t.Error("it ran without a sandbox")
			}
		})
	}
}

// SPEC 10: the preference steps down, and a line says so.
func TestExecStepsDownFromAVirtualMachine(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	h := w.sh(nil, "exit 0", "--default-backend", "microvm")
	if exit := h.last(t); h.code != 0 || exit.Handle.Backend != "native" || !strings.Contains(h.stderr, "microvm steps down to native") {
		t.Errorf("%d %+v %q", h.code, exit.Handle, h.stderr)
	}
}

// SPEC 25, 27, 56: off is the host's own choice. What is left are the variables.
func TestExecOff(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	a.will(nil, func(rw http.ResponseWriter, r *http.Request) { _, _ = rw.Write([]byte("by proxy " + r.URL.Host)) })
	w.env = append(w.env, "LD_AUDIT=/evil.so", "NODE_OPTIONS=-r /evil", "TICKETING_API_KEY=key", "MINE=1")
	out := filepath.Join(w.home, "outside") // not in any mount
	script := `env; echo here > ` + out
	for name, flags := range map[string][]string{
		"off":       {"--sandbox", "off"},
		"none":      {"--backend", "none"},
		"inherited": {"--sandbox", "off", "--sanitize=false"},
	} {
		t.Run(name, func(t *testing.T) {
			h := w.sh(fields{"protectedPaths": []string{"**/.env"}}, script, flags...)
			exit := h.last(t)
			if h.code != 0 || exit.Handle.Backend != "none" || !strings.Contains(h.stderr, "not confined") {
				t.Fatalf("%d %+v %q", h.code, exit.Handle, h.stderr)
			}
			if said := strings.Contains(h.stderr, "agent sandbox DISABLED by --sandbox off"); said != (name != "none") {
				t.Errorf("%q", h.stderr)
			}
			if err := os.Remove(out); err != nil {
				t.Errorf("it is confined: %v", err)
			}
			vars := variables(h.said(spec.Stdout))
			for _, evil := range []string{"LD_AUDIT", "NODE_OPTIONS", "TICKETING_API_KEY"} {
				if _, there := vars[evil]; there != (name == "inherited") {
					t.Errorf("%s is there: %t", evil, there)
				}
			}
			ready := h.of(spec.Ready)[0].Handle.Details
			// Who else is on this loopback has not the run's secret.
			hellos := a.seen()
			login := hellos[len(hellos)-1].Login
			if login == nil || strings.Contains(fmt.Sprint(ready), login.Password) {
				t.Fatalf("login %v, details %v", login, ready)
			}
			user := login.Userinfo().String() + "@"
			if vars["MINE"] != "1" || vars["HOME"] != w.home || vars["PWD"] != w.tree || vars["HTTPS_PROXY"] != "http://"+user+ready["http"].(string) ||
				vars["ALL_PROXY"] != "socks5h://"+user+ready["socks"].(string) || vars["GH_TOKEN"] != readToken || vars["GIT_CONFIG_SYSTEM"] == "" {
				t.Errorf("%v", vars)
			}
			if _, err := os.Stat(vars["GIT_CONFIG_SYSTEM"]); err == nil {
				t.Error("git's configuration was left behind")
			}
		})
	}
	h := w.sh(nil, "curl -sS http://example.com/; git config --system --get-regexp url", "--sandbox", "off")
	if got := h.said(spec.Stdout); !strings.HasPrefix(got, "by proxy example.com") || !strings.Contains(got, "http://git.internal/github.com/.pushinsteadof") {
		t.Errorf("%q %q", got, h.said(spec.Stderr))
	}
}

// SPEC 97: without a sandbox there is nothing that could deny a call.
func TestExecOffHasNoViolations(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	w.write("tree/checkout/f", "", 0o600)
	over := fields{"protectedPaths": []string{filepath.Join(w.tree, "checkout")}}
	const script = `echo "sh: /x: Permission denied" >&2; echo x > checkout/f`
	h := w.sh(over, script)
	if v := h.of(spec.Violated); !slices.ContainsFunc(v, func(e spec.Event) bool {
		return e.Violation != nil && e.Target == "/x" && strings.Contains(e.Raw, "Permission denied")
	}) {
		t.Errorf("native: %+v\n%s", v, h.said(spec.Stderr))
	}
	if h := w.sh(over, script, "--sandbox", "off"); len(h.of(spec.Violated)) > 0 || h.code != 0 {
		t.Errorf("none: %+v", h.all)
	}
	// What looks on changes nothing of a plain stream either.
	if h := w.sh(over, script, "--streams", "plain"); len(h.of(spec.Violated)) == 0 || !strings.HasPrefix(h.stderr, "sh: /x: Permission denied\n") {
		t.Errorf("plain: %+v %q", h.all, h.stderr)
	}
}

// Whoever chose to have no sandbox may have no appliance either; who has to fall back
// may not.
func TestExecOffWithoutAnAppliance(t *testing.T) {
	w := noTool(t)
	h := w.sh(nil, "env", "--sandbox", "off")
	vars := variables(h.said(spec.Stdout))
	if h.code != 0 || vars["HTTP_PROXY"] != "" || vars["GH_TOKEN"] != "" || vars["GIT_CONFIG_SYSTEM"] != "" || !strings.Contains(h.stderr, "no appliance") {
		t.Errorf("%d %v %q", h.code, vars, h.stderr)
	}
	if h := w.sh(nil, "true"); h.code != exitRefused || !strings.Contains(h.last(t).Handle.Error, "[appliance_not_running]") {
		t.Errorf("fallback: %d %q", h.code, h.stderr)
	}
	a := newAppliance(t, w.runs)
	a.will(func(lease.Hello) lease.Answer {
		return lease.Answer{Error: &lease.Error{Code: lease.CodeUnknownPolicy, Message: "no such policy"}}
	}, nil)
	if h := w.sh(nil, "true", "--sandbox", "off"); h.code != exitRefused || !strings.Contains(h.stderr, "no such policy") {
		t.Errorf("a refusal of the appliance: %d %q", h.code, h.stderr)
	}
}

// Statuses, signals, stops and timeouts are what they are with a sandbox.
func TestExecOffEnds(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	off := []string{"--sandbox", "off"}
	if h := w.host(nil, off, "/no/such/program"); h.code != 127 || h.last(t).Handle.State != spec.Failed {
		t.Errorf("not found: %d", h.code)
	}
	if h := w.host(nil, off, "/etc/passwd"); h.code != 126 {
		t.Errorf("not executable: %d", h.code)
	}
	if h := w.sh(nil, "kill -TERM $$", off...); h.code != 128+15 || h.last(t).Signal != 15 {
		t.Errorf("killed: %d", h.code)
	}
	h := w.sh(nil, "trap '' TERM; echo on; while :; do sleep 0.05; done", "--sandbox", "off", "--timeout", "500ms")
	if killed := h.of(spec.Killed); h.code != 124 || len(killed) != 1 || killed[0].Reason != spec.Timeout {
		t.Errorf("timeout: %d %v", h.code, h.kinds())
	}
	e := w.begin(nil, off, "/bin/sh", "-c", "echo on; exec sleep 100")
	h = e.end(t, onFirst(func() { _ = e.cmd.Process.Signal(syscall.SIGTERM) }))
	if killed := h.of(spec.Killed); h.code != 128+15 || len(killed) != 1 || killed[0].Reason != spec.Stopped {
		t.Errorf("stop: %d %v", h.code, h.kinds())
	}
	// A process that leaves the group and keeps the output does not keep the host.
	if h := w.sh(nil, "echo on; setsid sleep 6 & exit 0", off...); h.code != 0 || h.said(spec.Stdout) != "on\n" {
		t.Errorf("left behind: %d %q", h.code, h.said(spec.Stdout))
	}
}
