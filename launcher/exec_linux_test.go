package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"postern/caddy-modules/session/lease"
	"postern/launcher/spec"
)

// SPEC 86, 88: what a host hears of a run, in order.
func TestExecEvents(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	h := w.sh(fields{"agentId": "a"}, `printf 'out \377\000 ü\n'; echo problem >&2; exit 7`)
	exit := h.last(t)
	if got := h.kinds(); got[0] != spec.Starting || got[1] != spec.Ready || h.code != 7 {
		t.Errorf("status %d, events %v\n%s", h.code, got, h.stderr)
	}
	for _, e := range h.all {
		if e.Session != "s-1" || e.Time.IsZero() {
			t.Errorf("%+v", e)
		}
	}
	if out := h.said(spec.Stdout); out != "out \xff\x00 ü\n" {
		t.Errorf("stdout %q", out)
	}
	if out := h.said(spec.Stderr); out != "problem\n" {
		t.Errorf("stderr %q", out)
	}
	if h.stdout != "" || h.stderr != "" {
		t.Errorf("said twice: %q %q", h.stdout, h.stderr)
	}
	first, ready := h.all[0].Handle, h.all[1].Handle
	if first == nil || first.State != spec.Created || first.Backend != "native" || first.SessionID != "s-1" {
		t.Errorf("first %+v", first)
	}
	if ready == nil || ready.State != spec.Active || ready.Backend != "native" || ready.Details["cwd"] != w.tree || ready.Error != "" {
		t.Errorf("ready %+v", ready)
	}
	if exit.Handle.State != spec.Destroyed || exit.Handle.Backend != "native" || exit.Handle.Error != "" {
		t.Errorf("exit %+v", exit.Handle)
	}
}

// Whoever follows the session at the appliance sees the same kinds of events.
func TestExecTellsTheAppliance(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	for _, flags := range [][]string{{"--events", "1"}, nil} {
		before := len(a.reports())
		args := append(append([]string{"exec", "--spec", w.spec(nil), "--timeout", "2s"}, flags...), "--", "/bin/sh", "-c")
		w.postern(append(args, "echo 'sh: /x: Permission denied' >&2; exit 3")...)
		<-a.ended
		w.postern(append(args, "exec sleep 100")...)
		<-a.ended
		var kinds []string
		told := a.reports()[before:]
		for _, e := range told {
			kinds = append(kinds, e.Type)
		}
		if got := strings.Join(kinds, " "); got != "ready violation exit ready killed exit" {
			t.Fatalf("with %v: %s", flags, got)
		}
		if told[0].Text("backend") != "native" || told[1].Text("target") != "/x" || told[2].Fields["exitCode"] != 3.0 ||
			told[4].Text("reason") != "timeout" || told[5].Fields["exitCode"] != 124.0 {
			t.Errorf("%+v", told)
		}
	}
}

// So it is of a run by hand.
func TestRunTellsTheAppliance(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	if got := w.script("exit 4"); got.code != 4 {
		t.Fatalf("%+v", got)
	}
	<-a.ended
	told := a.reports()
	if len(told) != 2 || told[0].Type != lease.EventReady || told[0].Text("backend") != "native" || told[0].Text("cwd") != w.tree ||
		told[1].Type != lease.EventExit || told[1].Fields["exitCode"] != 4.0 {
		t.Errorf("%+v", told)
	}
}

// A large output arrives whole and as it was.
func TestExecManyBytes(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	h := w.sh(nil, `i=0; while [ $i -lt 40000 ]; do echo "line $i of many"; i=$((i+1)); done`)
	var want strings.Builder
	for i := range 40000 {
		fmt.Fprintf(&want, "line %d of many\n", i)
	}
	if got := h.said(spec.Stdout); got != want.String() {
		t.Errorf("%d bytes, want %d", len(got), want.Len())
	}
	h.last(t)
}

func TestExecStreams(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	const script = "echo out; echo err >&2"

	h := w.sh(nil, script, "--streams", "plain")
	if h.last(t); h.stdout != "out\n" || h.stderr != "err\n" || h.said(spec.Stdout)+h.said(spec.Stderr) != "" {
		t.Errorf("plain: %q %q, events %v", h.stdout, h.stderr, h.kinds())
	}

	got := w.postern("exec", "--spec", w.spec(nil), "--", "/bin/sh", "-c", script)
	if got.stdout != "out\n" || got.stderr != "err\n" || got.code != 0 {
		t.Errorf("without events: %+v", got)
	}

	got = w.postern("exec", "--events", "1", "--spec", w.spec(nil), "--", "/bin/sh", "-c", script)
	if lines := strings.Count(got.stdout, "\n"); lines != 5 || got.stderr != "" || !strings.Contains(got.stdout, `"data":"out\n"`) {
		t.Errorf("on stdout: %+v", got)
	}
}

// The descriptor of the events is the host's: nothing else of the run has it.
func TestExecEventsAreOutOfReach(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	h := w.sh(nil, "ls /proc/self/fd; echo forged >&3")
	if out := h.said(spec.Stdout); out != "0\n1\n2\n3\n" { // 3 is ls's own
		t.Errorf("descriptors %q", out)
	}
	if h.last(t); h.code == 0 {
		t.Error("something was written to descriptor 3")
	}
}

// SPEC 76.
func TestExecWorkdir(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	w.write("tree/sub/x", "", 0o600)
	w.write("tree/other/x", "", 0o600)
	for _, tc := range []struct {
		name  string
		over  fields
		flags []string
		want  string
	}{
		{"the first mount", nil, nil, ""},
		{"guestWorkdir", fields{"guestWorkdir": filepath.Join(w.tree, "sub")}, nil, "/sub"},
		{"this exec's own", fields{"guestWorkdir": filepath.Join(w.tree, "sub")}, []string{"--workdir", filepath.Join(w.tree, "other")}, "/other"},
		{"relative to it", fields{"guestWorkdir": filepath.Join(w.tree, "sub")}, []string{"--workdir", "../other"}, "/other"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := w.host(tc.over, tc.flags, "/bin/sh", "-c", `pwd; echo "$PWD"`)
			want := w.tree + tc.want + "\n"
			if out := h.said(spec.Stdout); out != want+want {
				t.Errorf("%q, want %q\n%s", out, want, h.stderr)
			}
		})
	}
	h := w.sh(nil, "true", "--workdir", "/usr/bin")
	if exit := h.last(t); h.code != exitRefused || exit.Handle.State != spec.Failed || !strings.Contains(exit.Handle.Error, "[dir_not_visible]") {
		t.Errorf("in a folder it does not see: %d %+v", h.code, exit.Handle)
	}
}

// SPEC 50, 77, 78, 80, 127: what may be written, mode by mode.
func TestExecWhatMayBeWritten(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	state, protected := filepath.Join(w.home, "state"), filepath.Join(w.tree, "checkout")
	w.write("state/settings.json", "{}", 0o600)
	w.write("tree/checkout/f", "", 0o600)
	w.write("tree/tool", "#!/bin/sh\necho tool ran\n", 0o755)
	over := fields{
		"protectedPaths": []string{protected}, "runnerStateDirs": []string{state},
		"execGrantRoots": []string{filepath.Join(w.tree, "no-such-root")},
	}
	const script = `try() { if ( : > "$1" ) 2>/dev/null; then echo "$2 yes"; else echo "$2 no"; fi; }
		try new tree; try checkout/f protected; try "$0/log" state; try "$0/settings.json" settings; ./tool`
	for _, mode := range []spec.Mode{spec.Chat, spec.Review, spec.Plan, spec.Orchestrate} {
		t.Run(string(mode), func(t *testing.T) {
			over["mode"] = mode
			h := w.host(over, nil, "/bin/sh", "-c", script, state)
			tree := map[bool]string{true: "yes", false: "no"}[mode == spec.Chat]
			want := "tree " + tree + "\nprotected no\nstate yes\nsettings no\ntool ran\n"
			if out := h.said(spec.Stdout); out != want {
				t.Errorf("got\n%swant\n%s%s", out, want, h.stderr)
			}
		})
	}
}

// SPEC decision 5: the names are kept, and each refusal is one event that names the rule.
func TestExecKeepsGlobs(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	for _, flags := range [][]string{nil, {"--backend", "native"}, {"--default-backend", "microvm"}} {
		h := w.sh(fields{"protectedPaths": []string{"**/.env", "**/*.pem"}}, "mkdir -p sub/dir; echo x > sub/dir/.env || echo no; echo y > f; mv f a.pem || echo no; cat f", flags...)
		if got := h.said(spec.Stdout); got != "no\nno\ny\n" || h.last(t).Handle.Backend != "native" {
			t.Errorf("%v: %q, %+v, %s", flags, got, h.last(t).Handle, h.said(spec.Stderr))
		}
		var told []string
		for _, e := range h.of(spec.Violated) {
			told = append(told, e.Action+" "+e.Target+" "+e.Rule+" "+e.Comm)
		}
		if want := "file-write-create " + w.tree + "/sub/dir/.env **/.env sh\nfile-write-create " + w.tree + "/a.pem **/*.pem mv"; strings.Join(told, "\n") != want {
			t.Errorf("%v: told\n%s, want\n%s", flags, strings.Join(told, "\n"), want)
		}
	}
	if n := len(a.seen()); n != 3 {
		t.Errorf("%d sessions", n)
	}
}

// SPEC 26, 27: nothing is started, and nothing weaker is taken instead.
func TestExecRefusesGlobs(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	for name, flags := range map[string][]string{
		"without a sandbox":    {},
		"microvm is preferred": {"--default-backend", "microvm"},
	} {
		t.Run(name, func(t *testing.T) {
			env := w.env
			defer func() { w.env = env }()
			w.env = append(slices.Clone(env), fakeDir+"="+t.TempDir())
			h := w.sh(fields{"protectedPaths": []string{w.home, "**/.env", "**/*.pem"}}, "touch ran", flags...)
			exit := h.last(t)
			if h.code != exitRefused || exit.Handle.State != spec.Failed || exit.Handle.Backend != "none" {
				t.Errorf("status %d, %+v", h.code, exit.Handle)
			}
			for _, want := range []string{"**/.env", "**/*.pem", "[name_globs]"} {
				if !strings.Contains(exit.Handle.Error, want) || !strings.Contains(h.stderr, want) {
					t.Errorf("no %q in %q and %q", want, exit.Handle.Error, h.stderr)
				}
			}
			if _, err := os.Stat(filepath.Join(w.tree, "ran")); err == nil || len(a.seen()) > 0 || len(h.of(spec.Ready)) > 0 {
				t.Error("something was started")
			}
		})
	}
}

// SPEC 24: the same spec is the same sandbox, by whichever door it comes, and the one
// that postern run makes of the same wishes.
func TestOneWrapForTwoEntries(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	w.write("tree/checkout/f", "", 0o600)
	w.write("ro/f", "", 0o600)
	over := fields{
		"bindMounts":     []fields{{"hostPath": w.tree}, {"hostPath": filepath.Join(w.home, "ro"), "readOnly": true}},
		"protectedPaths": []string{filepath.Join(w.tree, "checkout")},
	}
	file := w.spec(over)
	// What is mounted where, with which rights; not the numbers that the kernel gives.
	look := []string{"--", "/bin/sh", "-c", `cut -d' ' -f4- /proc/self/mountinfo | sed 's, - .*,,; s,master:[0-9]*,,'; env | sort; id; cat /proc/self/status | grep -e Cap -e Seccomp -e NoNew`}
	views := map[string]string{}
	for name, args := range map[string][]string{
		"file":  {"exec", "--spec", file},
		"stdin": {"exec", "--spec", "-"},
		"run":   {"run", "--id", "s-1", "--bind", w.tree, "--bind", filepath.Join(w.home, "ro") + ":ro", "--protect", filepath.Join(w.tree, "checkout")},
	} {
		cmd := w.command(append(args, look...)...)
		cmd.Env = append(slices.Clone(w.env), "POSTERN_ENVIRONMENT=strip", "POSTERN_ALL_PROXY=socks")
		if name == "stdin" {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			cmd.Stdin = f
		}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// The file of git's configuration has a name of its own in each.
		views[name] = strings.Join(slices.DeleteFunc(strings.Split(string(out), "\n"), func(line string) bool {
			return strings.Contains(line, "gitconfig-")
		}), "\n")
	}
	if views["file"] != views["stdin"] || views["file"] != views["run"] {
		t.Errorf("file:\n%s\nstdin:\n%s\nrun:\n%s", views["file"], views["stdin"], views["run"])
	}
	if !strings.Contains(views["file"], filepath.Join(w.tree, "checkout")+" ro") {
		t.Errorf("the checkout is not mounted read-only:\n%s", views["file"])
	}
}

func TestExecUsage(t *testing.T) {
	w := newWorld(t)
	good := w.spec(nil)
	bad := w.write("bad.json", `{"sessionId":"s","workspaceId":"w","bindMounts":[],"protectedpaths":[]}`, 0o600)
	moved := w.write("moved.json", `{"sessionId":"s","workspaceId":"w","bindMounts":[{"hostPath":"/a","guestPath":"/b"}]}`, 0o600)
	empty := w.write("empty.json", `{"sessionId":"s","workspaceId":"w","bindMounts":[]}`, 0o600)
	for _, tc := range []struct {
		name, says string
		args       []string
	}{
		{"nothing", "no command", nil},
		{"no dashes", "is not a flag", []string{"--spec", good, "true"}},
		{"no command", "no command", []string{"--spec", good, "--"}},
		{"no spec", "no --spec", []string{"--", "true"}},
		{"spec is not there", "[spec_invalid]", []string{"--spec", "/no/such", "--", "true"}},
		{"unknown field", `unknown field "protectedpaths"`, []string{"--spec", bad, "--", "true"}},
		{"guestPath", "[guest_path]", []string{"--spec", moved, "--", "true"}},
		{"no mounts", "no folder to work in", []string{"--spec", empty, "--", "true"}},
		{"unknown backend", "want one of microvm, native, none", []string{"--spec", good, "--backend", "podman", "--", "true"}},
		{"microvm", "[backend_cannot_wrap]", []string{"--spec", good, "--backend", "microvm", "--", "true"}},
		{"a closed descriptor", "handed over", []string{"--spec", good, "--events", "77", "--", "true"}},
		{"events on stderr", "want 1, or", []string{"--spec", good, "--events", "2", "--", "true"}},
		{"events and output", "cannot be told apart", []string{"--spec", good, "--events", "1", "--streams", "plain", "--", "true"}},
		{"streams", "neither events nor plain", []string{"--spec", good, "--streams", "x", "--", "true"}},
		{"timeout", "before it begins", []string{"--spec", good, "--timeout", "-1s", "--", "true"}},
		{"variable", "LD_PRELOAD", []string{"--spec", good, "--env", "LD_PRELOAD=x", "--", "true"}},
		{"repository", "repository", []string{"--spec", good, "--repo", "x", "--", "true"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			newRunDir(t, w)
			got := w.postern(append([]string{"exec"}, tc.args...)...)
			if got.code != exitRefused || !strings.Contains(got.stderr, tc.says) || got.stdout != "" {
				t.Errorf("%+v, want 125 and %q", got, tc.says)
			}
		})
	}
	if got := w.postern("exec", "--help"); got.code != 0 || !strings.Contains(got.stdout, "--events") {
		t.Errorf("help: %+v", got)
	}
}

// newRunDir puts a socket file where an appliance would be, for tests that get no
// further than that.
func newRunDir(tb testing.TB, w *world) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(w.runs, leaseSocket), nil, 0o600); err != nil {
		tb.Fatal(err)
	}
}

// A host that told us where to write hears of a spec that it got wrong, too.
func TestExecTellsOfABadSpec(t *testing.T) {
	w := newWorld(t)
	h := w.sh(fields{"mode": "yolo"}, "true")
	exit := h.last(t)
	if h.code != exitRefused || exit.Handle.State != spec.Failed || !strings.Contains(exit.Handle.Error, "mode: ") || exit.Handle.Backend != "none" {
		t.Errorf("%d %+v", h.code, exit.Handle)
	}
}

// SPEC 74, 68: what the appliance is told, and what not.
func TestExecSession(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	w.sh(nil, "true")
	w.sh(fields{"agentId": "claude", "networkEnabled": false, "egressAllowlist": []string{"example.com 8443"}}, "true", "--policy", "p", "--repo", "github.com/a/b", "--link", "github.com/a/c")
	seen := a.seen()
	if len(seen) != 2 {
		t.Fatalf("%d sessions", len(seen))
	}
	if s := seen[0].Spec; !s.Network() || len(s.EgressAllowlist) != 0 || s.ID != "s-1" || s.Workspace != "w" || s.Agent != "" || s.Policy != "" || s.Repository != "" {
		t.Errorf("%+v", s)
	}
	if s := seen[1].Spec; s.Network() || !slices.Equal(s.EgressAllowlist, []string{"example.com 8443"}) || s.Agent != "claude" ||
		s.Policy != "p" || s.Repository != "github.com/a/b" || !slices.Equal(s.LinkedRepositories, []string{"github.com/a/c"}) {
		t.Errorf("%+v", s)
	}
}

// SPEC 60, 112, 113, decision 10.
func TestExecEnvironment(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	w.env = append(w.env, "LD_PRELOAD=/evil.so", "NODE_OPTIONS=-r /evil", "GIT_SSH_COMMAND=evil", "TICKETING_API_KEY=key", "DYLD_INSERT_LIBRARIES=/evil",
		"MY_SETTING=kept", "HTTP_PROXY=http://evil/", "BASH_ENV=/evil")
	h := w.host(nil, []string{"--env", "ADDED=1"}, "/usr/bin/env")
	vars := map[string]string{}
	for line := range strings.Lines(h.said(spec.Stdout)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		vars[name] = value
	}
	for name, want := range map[string]string{
		"ALL_PROXY": "socks5h://127.0.0.1:1080", "all_proxy": "socks5h://127.0.0.1:1080", "HTTP_PROXY": "http://127.0.0.1:3128",
		"HTTPS_PROXY": "http://127.0.0.1:3128", "MY_SETTING": "kept", "ADDED": "1", "POSTERN_SESSION": "s-1", "GH_TOKEN": readToken,
	} {
		if vars[name] != want {
			t.Errorf("%s=%q, want %q", name, vars[name], want)
		}
	}
	for _, name := range []string{"LD_PRELOAD", "NODE_OPTIONS", "TICKETING_API_KEY", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "POSTERN_RUN"} {
		if v, there := vars[name]; there {
			t.Errorf("%s=%q passed", name, v)
		}
	}
	if v := vars["GIT_SSH_COMMAND"]; v == "evil" || !strings.HasPrefix(v, "ssh ") {
		t.Errorf("GIT_SSH_COMMAND=%q", v)
	}
}
