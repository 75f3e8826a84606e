package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

func TestRun(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	for _, tc := range []struct {
		name           string
		script         string
		stdout, stderr string
		code           int
	}{
		{"output and status", "echo out; echo err >&2; exit 7", "out\n", "err\n", 7},
		{"success", "true", "", "", 0},
		{"a signal", "kill -KILL $$", "", "", 137},
		{"the folder", "pwd", w.tree + "\n", "", 0},
		{"its own failure is not ours", "exit 125", "", "", 125},
		{"through the HTTP proxy", "curl -sS http://some.example/x", "GET http://some.example/x\n", "", 0},
		{"through the HTTP proxy by the other name", "env -u http_proxy -u https_proxy curl -sS -x $HTTP_PROXY http://some.example/y", "GET http://some.example/y\n", "", 0},
		{"the gateway by its name", "curl -sS http://git.internal/github.com/a/b/info/refs", "GET http://git.internal/github.com/a/b/info/refs\n", "", 0},
		{"the gateway without proxy variables", "env -i PATH=$PATH HOME=$HOME git ls-remote http://git.internal/github.com/a/b 2>&1 | head -1 | cut -c1-40", "fatal: http://git.internal/github.com/a/\n", "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := w.script(tc.script)
			if got.stdout != tc.stdout || got.stderr != tc.stderr || got.code != tc.code {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestStandardStreams(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	cmd := w.command("run", "--", "/bin/sh", "-c", "cat; head -c 3000000 /dev/zero >&2")
	in := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	cmd.Stdin = bytes.NewReader(in)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stdout.Bytes(), in) || stderr.Len() != 3_000_000 {
		t.Errorf("%d bytes of %d, and %d on stderr", stdout.Len(), len(in), stderr.Len())
	}
}

func TestSpecOfTheSession(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	got := w.postern("run", "--id", "x-1", "--policy", "strict", "--repo", "github.com/acme/app", "--link", "github.com/acme/lib", "--link", "github.com/acme/doc",
		"--allow", "a.example 443", "--allow", "b.example", "--network", "off", "--agent", "Ann", "--workspace", "W 1", "--", "true")
	if got.code != 0 {
		t.Fatalf("%+v", got)
	}
	off := false
	want := lease.Spec{
		ID: "x-1", Policy: "strict", Repository: "github.com/acme/app", LinkedRepositories: []string{"github.com/acme/lib", "github.com/acme/doc"},
		EgressAllowlist: []string{"a.example 443", "b.example"}, NetworkEnabled: &off, Agent: "Ann", Workspace: "W 1",
	}
	h := a.seen()[0]
	if fmt.Sprintf("%+v", h.Spec.Repository+h.Spec.Policy+h.Spec.ID+h.Spec.Agent+h.Spec.Workspace) != fmt.Sprintf("%+v", want.Repository+want.Policy+want.ID+want.Agent+want.Workspace) ||
		!slices.Equal(h.Spec.LinkedRepositories, want.LinkedRepositories) || !slices.Equal(h.Spec.EgressAllowlist, want.EgressAllowlist) || h.Spec.Network() {
		t.Errorf("got %+v, want %+v", h.Spec, want)
	}
	if h.Resume != nil || h.PID == 0 {
		t.Errorf("hello %+v", h)
	}
	select {
	case <-a.ended:
	case <-time.After(5 * time.Second):
		t.Error("the lease outlives the run")
	}
}

// What the command finds in its environment.
func TestEnvironmentOfTheRun(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	w.env = append(w.env, "LD_LIBRARY_PATH=/evil", "FOO_TOKEN=host-secret", "GH_TOKEN=users-own", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.pager", "GIT_CONFIG_VALUE_0=evil",
		"NODE_OPTIONS=--require=/evil.js", "SSH_AUTH_SOCK=/run/agent", "PASSED=yes", "TICKETING_API_KEY=key", "PYTHONPATH=/evil", "BASH_ENV=/evil")
	got := w.script("env", "--env", "PASSED", "--env", "GIVEN=too")
	vars := strings.Split(got.stdout, "\n")
	for _, want := range []string{
		"HTTP_PROXY=http://127.0.0.1:3128", "https_proxy=http://127.0.0.1:3128", "ALL_PROXY=http://127.0.0.1:3128", "POSTERN_SOCKS=socks5h://127.0.0.1:1080",
		"NO_PROXY=localhost,127.0.0.1,::1", "NODE_USE_ENV_PROXY=1", "GH_TOKEN=" + readToken, "GITHUB_TOKEN=" + readToken, "HOME=" + w.home,
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=/bin/false", "PASSED=yes", "GIVEN=too", "TERM=dumb", "PWD=" + w.tree,
	} {
		if !slices.Contains(vars, want) {
			t.Errorf("no %s", want)
		}
	}
	for _, unwanted := range []string{"evil", "host-secret", "users-own", "TICKETING", "GIT_CONFIG_COUNT", "SSH_AUTH_SOCK", "POSTERN_RUN"} {
		if strings.Contains(got.stdout, unwanted) {
			t.Errorf("%s is in\n%s", unwanted, got.stdout)
		}
	}
}

func TestGitInside(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	w.write(".gitconfig", "[user]\n\tname = Ann Example\n\temail = ann@example.com\n[core]\n\tpager = evil\n", 0o644)
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = w.tree, slices.Concat(w.env, []string{"GIT_CONFIG_NOSYSTEM=1"})
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	git("init", "-q", "-b", "main")
	git("commit", "-q", "--allow-empty", "-m", "one")
	git("remote", "add", "origin", "git@github.com:acme/app.git")
	for _, tc := range []struct{ name, script, want string }{
		{"who commits", "echo x > f && git add f && git commit -q -m two && git log -1 --format='%an <%ae>'", "Ann Example <ann@example.com>\n"},
		{"where a push goes", "git remote get-url --push origin", "http://git.internal/github.com/acme/app.git\n"},
		{"where a fetch goes", "git remote get-url origin", "https://github.com/acme/app.git\n"},
		{"the user's other settings stay out", "git config core.pager || echo none", "none\n"},
		{"the token, asked for by git", "printf 'protocol=https\\nhost=github.com\\n\\n' | git credential fill | grep password", "password=" + readToken + "\n"},
		{"nobody is asked for a password", "printf 'protocol=https\\nhost=other.example\\n\\n' | git credential fill 2>&1 | tail -1 | cut -c1-25", "fatal: could not read Use\n"},
		{"hooks that init brings", "git init -q sub && ls -A sub/.git | grep -c hooks; rm -rf sub", "0\n"},
		{"a commit on a new repository", "git init -q n && cd n && git commit -q --allow-empty -m x && git log --format=%s; cd .. && rm -rf n", "x\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := w.script(tc.script); got.stdout != tc.want {
				t.Errorf("got %+v, want %q", got, tc.want)
			}
		})
	}
	git("status")
	out, err := exec.Command("git", "-C", w.tree, "-c", "safe.directory=*", "status", "--porcelain").Output()
	if err != nil || len(out) > 0 {
		t.Errorf("git status on the host: %v\n%s", err, out)
	}
}

// ssh inside a run goes through the SOCKS listener, by our own helper.
func TestSSHCommand(t *testing.T) {
	if _, err := os.Stat("/usr/bin/ssh"); err != nil {
		t.Skip("SKIPPED, NOT PASSED: there is no ssh here")
	}
	w := newWorld(t)
	newAppliance(t, w.runs)
	got := w.script("git ls-remote ssh://git@host.example/x 2>&1", "-q")
	if want := "postern: connect to host.example port 22: denied by the policy of this run; do not retry another way\n"; !strings.HasPrefix(got.stdout, want) {
		t.Errorf("got %+v", got)
	}
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		prep func(w *world, a *appliance)
		says []string
	}{
		{"nobody listens", nil, func(_ *world, a *appliance) { a.crash() }, []string{"[appliance_not_running]", "caddy run"}},
		{"no socket", nil, func(_ *world, a *appliance) { a.crash(); _ = os.Remove(a.path) }, []string{"[appliance_not_running]", leaseSocket}},
		{"no run directory", nil, func(w *world, _ *appliance) { w.env = append(w.env, "POSTERN_RUN="+w.runs+"/none") }, []string{"[appliance_not_running]"}},
		{"a run directory for all", nil, func(w *world, _ *appliance) { _ = os.Chmod(w.runs, 0o755) }, []string{"[run_dir_untrusted]", "0700"}},
		{"a relative run directory", nil, func(w *world, _ *appliance) { w.env = append(w.env, "POSTERN_RUN=r") }, []string{"[run_dir_untrusted]"}},
		{"the appliance says no", nil, func(_ *world, a *appliance) {
			a.will(func(lease.Hello) lease.Answer {
				return lease.Answer{Error: &lease.Error{Code: lease.CodeUnknownPolicy, Message: "no policy strict"}}
			}, nil)
		}, []string{"[appliance_refused]", "unknown_policy", "no policy strict"}},
		{"a bad id", []string{"--id", "a/b"}, nil, []string{"session id", "a/b"}},
		{"a bad repository", []string{"--repo", "acme/app"}, nil, []string{"host/owner/name"}},
		{"an unknown mode", []string{"--mode", "chatty"}, nil, []string{"[usage]", "chatty"}},
		{"a dangerous variable", []string{"--env", "LD_PRELOAD=/x"}, nil, []string{"[usage]", "LD_PRELOAD"}},
		{"an unknown flag", []string{"--polcy", "x"}, nil, []string{"[usage]", "polcy"}},
		{"neither on nor off", []string{"--network", "maybe"}, nil, []string{"[usage]", "maybe"}},
		{"the home", []string{"--bind", ".."}, nil, []string{"[bind_refused]", "whole home"}},
		{"a folder that is not there", []string{"--bind", "none"}, nil, []string{"[bind_missing]", "none"}},
		{"nothing to protect", []string{"--protect", "none"}, nil, []string{"[usage]", "none", "must be there"}},
		{"nothing to hide", []string{"--hide", "none"}, nil, []string{"[usage]", "none", "must be there"}},
		{"the run directory", []string{"--bind", "../../r"}, nil, []string{"[bind_refused]"}},
		{"bad settings", nil, func(w *world, _ *appliance) { w.write(".config/postern/launcher.yaml", "polcy: x\n", 0o600) }, []string{"[settings_invalid]", `"polcy"`, "launcher.yaml"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			a := newAppliance(t, w.runs)
			if tc.prep != nil {
				tc.prep(w, a)
			}
			got := w.script("touch ran", tc.args...)
			if got.code != 125 || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 || !strings.HasPrefix(got.stderr, "postern: refused: ") {
				t.Errorf("got %+v", got)
			}
			for _, text := range tc.says {
				if !strings.Contains(got.stderr, text) {
					t.Errorf("%q does not say %q", got.stderr, text)
				}
			}
			if _, err := os.Stat(filepath.Join(w.tree, "ran")); err == nil {
				t.Error("the command ran")
			}
			if left, _ := filepath.Glob(w.runs + "/.*"); len(left) > 0 {
				t.Errorf("left in the run directory: %q", left)
			}
		})
	}
}

func TestCommandNotFound(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	w.write("bin/tool", "#!/bin/sh\necho tool\n", 0o755)
	w.env = append(w.env, "PATH="+w.home+"/bin:/usr/bin:/bin")
	got := w.postern("run", "--", "tool")
	if got.code != 127 || !strings.Contains(got.stderr, "--bind DIR:ro") {
		t.Errorf("got %+v", got)
	}
	if got := w.postern("run", "--bind", ".", "--bind", w.home+"/bin:ro", "--", "tool"); got.code != 0 || got.stdout != "tool\n" {
		t.Errorf("with the folder shown: %+v", got)
	}
}

func TestUsage(t *testing.T) {
	w := newWorld(t)
	for _, tc := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"frobnicate"}, 125, "", "frobnicate"},
		{[]string{"--help"}, 0, "postern doctor", ""},
		{[]string{"run", "--help"}, 0, "--policy NAME", ""},
		{[]string{"run"}, 125, "", "no command"},
		{[]string{"run", "--"}, 125, "", "no command"},
		{[]string{"version"}, 0, "postern", ""},
		{[]string{"doctor", "--help"}, 0, "--json", ""},
		{[]string{"doctor", "x"}, 125, "", "doctor"},
		{[]string{"connect", "--help"}, 0, "POSTERN_SOCKS", ""},
		{[]string{"connect", "host"}, 125, "", "HOST PORT"},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			got := w.postern(tc.args...)
			if got.code != tc.code || !strings.Contains(got.stdout, tc.stdout) || !strings.Contains(got.stderr, tc.stderr) || tc.stdout == "" && got.stdout != "" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestNoArguments(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := dispatch(nil, &stdout, &stderr); code != 125 || stdout.Len() > 0 || !strings.Contains(stderr.String(), "postern run") {
		t.Errorf("%d, %q, %q", code, &stdout, &stderr)
	}
}

// Everything of the command line behind the first word is the command's.
func TestFlagsOfTheCommand(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	for _, args := range [][]string{{"run", "--", "echo", "--policy", "x", "--"}, {"run", "echo", "--policy", "x", "--"}} {
		if got := w.postern(args...); got.stdout != "--policy x --\n" {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// The settings come from the user's configuration and never from the folder of the
// run.
func TestSettingsOfTheFolderAreNotRead(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	for _, name := range []string{"tree/launcher.yaml", "tree/postern/launcher.yaml", "tree/.config/postern/launcher.yaml", "tree/.postern.yaml", "tree/.env"} {
		w.write(name, "policy: evil\nPOSTERN_POLICY=evil\n", 0o644)
	}
	w.write(".config/postern/launcher.yaml", "agent: from-file\nallow: [a.example]\n", 0o600)
	w.env = append(w.env, "POSTERN_WORKSPACE=from-env", "POSTERN_ALLOW=b.example c.example")
	if got := w.postern("run", "--allow", "d.example", "--", "true"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	spec := a.seen()[0].Spec
	if spec.Policy != "" || spec.Agent != "from-file" || spec.Workspace != "from-env" {
		t.Errorf("spec %+v", spec)
	}
	if want := []string{"b.example", "c.example", "d.example"}; !slices.Equal(spec.EgressAllowlist, want) {
		t.Errorf("allowlist %q, want %q", spec.EgressAllowlist, want)
	}
}

// The launcher's own settings, where a folder of the run holds them.
func TestOwnSettingsCannotBeChanged(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	file := w.write(".config/postern/launcher.yaml", "quiet: off\n", 0o600)
	w.script("echo 'policy: evil' > "+file+"; mv "+w.home+"/.config/postern "+w.home+"/.config/p", "--bind", w.home+"/.config")
	if text, err := os.ReadFile(file); err != nil || string(text) != "quiet: off\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestSummary(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	a.will(nil, func(rw http.ResponseWriter, r *http.Request) {
		a.send(lease.Event{Type: lease.EventDenied, Session: "s", Fields: map[string]any{"target": r.URL.Host + ":80", "reason": "no rule allows it; add one", "code": "not_allowed", "count": 1}})
		rw.WriteHeader(http.StatusForbidden)
	})
	const script = "curl -s -o /dev/null http://evil.example/; curl -s -o /dev/null http://evil.example/; mkdir -p sub/.vscode; echo x > sub/.vscode/tasks.json; sleep 0.1"
	got := w.script(script)
	for _, want := range []string{"denied 2 times: evil.example:80: no rule allows it; add one", ".vscode is new"} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("no %q in %q", want, got.stderr)
		}
	}
	if got := w.script("curl -s -o /dev/null http://evil.example/", "--quiet"); got.stderr != "" {
		t.Errorf("quiet: %q", got.stderr)
	}
	// What was refused is over; what was planted is there, and is told of.
	if got := w.script("touch sub/.npmrc", "--quiet"); !strings.Contains(got.stderr, ".npmrc is new") {
		t.Errorf("quiet about a new sub/.npmrc: %q", got.stderr)
	}
}

func TestDoctor(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	if got := w.postern("doctor"); got.code != 0 || strings.Contains(got.stdout, "FAILS") {
		t.Errorf("%+v", got)
	}
	got := w.postern("doctor", "--json")
	for _, want := range []string{`"available": true`, `"backend": "native"`, `"bridge": "builtin"`, `"ok": true`} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %s in %s", want, got.stdout)
		}
	}
	if h := a.seen(); len(h) != 2 || !strings.HasPrefix(h[0].Spec.ID, "doctor-") {
		t.Errorf("hellos %v", h)
	}
	// How names would be looked up is what both do, and a failure where more was asked for.
	for _, tc := range []struct {
		setting, answer string
		code            int
		says            string
	}{
		{"auto", lease.DNSFake, 0, "names      fake "},
		{"auto", "", 0, "names      off    the appliance"},
		{"auto", lease.DNSAnswer, 0, "names      answer "},
		{"off", lease.DNSFake, 0, "names      off    the settings"},
		{"fake", lease.DNSAnswer, 1, "names      FAILS "},
		{"answer", lease.DNSAnswer, 0, "names      answer "},
	} {
		a.will(answersNames(tc.answer), nil)
		w.env = append(w.env, "POSTERN_DNS="+tc.setting)
		if got := w.postern("doctor"); got.code != tc.code || !strings.Contains(got.stdout, "\n"+tc.says) {
			t.Errorf("dns %s, answered %q: %+v", tc.setting, tc.answer, got)
		}
	}
	w.env = append(w.env, "POSTERN_DNS=")
	a.crash()
	if got := w.postern("doctor"); got.code != 1 || !strings.Contains(got.stdout, "FAILS") || !strings.Contains(got.stdout, "appliance_not_running") {
		t.Errorf("without an appliance: %+v", got)
	}
	if got := w.postern("doctor", "--json"); got.code != 1 || !strings.Contains(got.stdout, `"reason": "appliance_not_running"`) || !strings.Contains(got.stdout, `"available": true`) {
		t.Errorf("without an appliance: %+v", got)
	}
}
