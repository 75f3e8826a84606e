package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/launcher/sandbox"
)

// What the launcher of these tests reads of its environment, and no other does.
const (
	fakeDir     = "FAKE_BWRAP_DIR"
	fakeRelease = "FAKE_RELEASE"
	fakeTimeout = "FAKE_TIMEOUT"
)

// fakeStart puts another bubblewrap, or another kernel, before the launcher.
func fakeStart() {
	if dir := os.Getenv(fakeDir); dir != "" {
		starting.Dirs = []string{dir}
	}
	starting.Release = os.Getenv(fakeRelease)
	starting.Timeout, _ = time.ParseDuration(os.Getenv(fakeTimeout))
}

// fake is a bubblewrap that does not do its work, and what must be said of it.
type fake struct {
	name    string
	script  string      // of the shell; empty: there is no program at all
	raw     bool        // script is the whole file
	mode    os.FileMode // 0755 by default
	release string
	want    sandbox.Reason
	detail  string
	cure    string
	note    string // "kernel boundary" by default
}

// says is a program that fails with one line, as bubblewrap does.
func says(line string) string {
	return "echo '" + strings.ReplaceAll(line, "'", `'\''`) + "' >&2; exit 1"
}

func fakes() []fake {
	const (
		userns   = "sysctl kernel.unprivileged_userns_clone=1"
		apparmor = "sysctl kernel.apparmor_restrict_unprivileged_userns=0"
		itself   = "bwrap --unshare-all --ro-bind / / true"
	)
	return []fake{
		{
			name: "no permission for namespaces", script: says("bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user namespaces."),
			want: sandbox.ReasonNamespaces, detail: "forbids user namespaces", cure: userns,
		},
		{name: "a container's filter", script: says("bwrap: Creating new namespace failed: Operation not permitted"), want: sandbox.ReasonNamespaces, detail: "container", cure: "seccomp profile"},
		{
			name: "limits", script: says("bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)"),
			want: sandbox.ReasonExhausted, detail: "limit on namespaces", cure: "user.max_user_namespaces",
		},
		{name: "AppArmor and loopback", script: says("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted"), want: sandbox.ReasonAppArmor, detail: "RTM_NEWADDR", cure: apparmor},
		{name: "AppArmor and the uid map", script: says("bwrap: setting up uid map: Permission denied"), want: sandbox.ReasonAppArmor, detail: "AppArmor", cure: apparmor},
		{name: "a container's proc", script: says("bwrap: Can't mount proc on /newroot/proc: Operation not permitted"), want: sandbox.ReasonProc, detail: "/proc", cure: "systempaths=unconfined"},
		{name: "an unknown option", script: says("bwrap: Unknown option --disable-userns"), want: sandbox.ReasonTooOld, detail: "--disable-userns", cure: "0.8 or later"},
		{name: "an unknown capability", script: says("bwrap: unknown cap: NET_ADMIN"), want: sandbox.ReasonTooOld, detail: "NET_ADMIN", cure: "0.8 or later"},
		{name: "it ends well and does nothing", script: "exit 0", want: sandbox.ReasonStart, detail: "it ended with 0", cure: itself},
		{name: "it is killed", script: "kill -KILL $$", want: sandbox.ReasonStart, detail: "it ended with 137", cure: itself},
		{name: "it hangs", script: "exec sleep 100", want: sandbox.ReasonTimeout, detail: "in time", cure: itself},
		{name: "it never stops talking", script: "exec yes garbage >&2", want: sandbox.ReasonTimeout, detail: "garbage", cure: itself},
		{name: "it prints garbage", script: `printf 'one\n\033[31m\377\001two\n' >&2; exit 1`, want: sandbox.ReasonStart, detail: "two", cure: itself},
		{name: "it talks garbage to the launcher", script: `printf 'hello, world' >&3; exec sleep 100`, want: sandbox.ReasonTimeout, detail: "in time", cure: itself},
		{name: "it is a broken program", script: "\x7fELF nothing more", raw: true, want: sandbox.ReasonStart, detail: "exec format error"},
		{name: "it is not executable", script: "exit 1", mode: 0o644, want: sandbox.ReasonUntrusted, detail: "not an executable file", cure: "reinstall bubblewrap"},
		{name: "others may write it", script: "exit 1", mode: 0o757, want: sandbox.ReasonUntrusted, detail: "writable by others", cure: "writable by root alone"},
		{name: "it is missing", want: sandbox.ReasonMissing, detail: "none of the system's directories", cure: "apt-get install bubblewrap"},
		{name: "WSL 1", script: says("bwrap: Creating new namespace failed: Invalid argument"), release: "4.4.0-19041-Microsoft", want: sandbox.ReasonWSL1, detail: "WSL 1", cure: "wsl --set-version", note: "no native sandbox"},
		{name: "WSL 1 without it", release: "4.4.0-22621-MICROSOFT", want: sandbox.ReasonWSL1, detail: "WSL 1", cure: "wsl --set-version", note: "no native sandbox"},
		{name: "WSL 2", script: says("bwrap: out of cheese"), release: "5.15.90.1-microsoft-standard-WSL2", want: sandbox.ReasonStart, detail: "out of cheese", cure: itself},
	}
}

// install makes the program in a folder of its own, where it notes that it ran.
func (f *fake) install(t *testing.T, w *world) (seen string) {
	t.Helper()
	dir := t.TempDir()
	seen = filepath.Join(dir, "seen")
	if f.script != "" {
		text := f.script
		if !f.raw {
			text = "#!/bin/sh\n[ \"$1\" = --version ] && { echo bubblewrap 0.8.0; exit; }\n{ echo $$; env; } > " + seen + "\n" + f.script + "\n"
		}
		mode := f.mode
		if mode == 0 {
			mode = 0o755
		}
		path := filepath.Join(dir, "bwrap")
		if err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	timeout := "20s" // for a busy machine
	if f.want == sandbox.ReasonTimeout {
		timeout = "1500ms"
	}
	w.env = append(w.env, fakeDir+"="+dir, fakeRelease+"="+f.release, fakeTimeout+"="+timeout, "SECRET=of-the-caller", "LD_PRELOAD=")
	return seen
}

// A bubblewrap that does not work: nothing runs, the reason and the cure are said, and
// nothing stays. The doctor says the same to programs.
func TestFakeBwrap(t *testing.T) {
	for _, f := range fakes() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := newAppliance(t, w.runs)
			seen := f.install(t, w)

			got := w.script("touch ran")
			f.checkRun(t, got)
			if _, err := os.Stat(filepath.Join(w.tree, "ran")); err == nil {
				t.Error("the command ran")
			}
			if hellos := a.seen(); len(hellos) > 0 {
				t.Errorf("the appliance was asked for a session: %+v", hellos)
			}
			if left, _ := filepath.Glob(w.runs + "/.*"); len(left) > 0 {
				t.Errorf("left in the run directory: %q", left)
			}
			checkSeen(t, seen)

			f.checkDoctor(t, w.postern("doctor", "--json"))
			if text := w.postern("doctor"); text.code != 1 || !strings.Contains(text.stdout, string(f.want)) || !strings.Contains(text.stdout, f.cure) {
				t.Errorf("doctor says %+v", text)
			}
		})
	}
}

func (f *fake) checkRun(t *testing.T, got result) {
	t.Helper()
	if got.code != 125 || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 || !strings.HasPrefix(got.stderr, "postern: refused: ") {
		t.Errorf("run: %+v", got)
	}
	for _, text := range []string{"[" + string(f.want) + "]", f.detail, f.cure} {
		if !strings.Contains(got.stderr, text) {
			t.Errorf("run: %q does not say %q", got.stderr, text)
		}
	}
	if strings.ContainsFunc(strings.TrimSuffix(got.stderr, "\n"), func(r rune) bool { return r < ' ' || r == 0x7f }) {
		t.Errorf("run: control characters in %q", got.stderr)
	}
}

func (f *fake) checkDoctor(t *testing.T, got result) {
	t.Helper()
	var d diagnosis
	if err := json.Unmarshal([]byte(got.stdout), &d); err != nil || got.code != 1 {
		t.Fatalf("doctor: %v in %+v", err, got)
	}
	s := d.Sandbox
	if s.Available || s.RequiresInstall != (f.want == sandbox.ReasonMissing) || s.Reason != f.want || s.Backend != "none" || s.LowPorts {
		t.Errorf("doctor: %+v", s)
	}
	note := f.note
	if note == "" {
		note = "kernel boundary"
	}
	if !strings.Contains(s.Hint, f.cure) || !strings.Contains(s.Detail, f.detail) || !strings.Contains(s.Note, note) {
		t.Errorf("doctor: hint %q, detail %q, note %q", s.Hint, s.Detail, s.Note)
	}
	if d.Appliance.OK || !strings.Contains(d.Appliance.Detail, "not tried") {
		t.Errorf("doctor: appliance %+v", d.Appliance)
	}
}

// checkSeen looks at what the program noted when it ran, if it did: it had nothing of
// the caller's environment, and it is gone.
func checkSeen(t *testing.T, seen string) {
	t.Helper()
	text, err := os.ReadFile(seen)
	if err != nil {
		return
	}
	vars := strings.Split(strings.TrimSpace(string(text)), "\n")
	pid, err := strconv.Atoi(vars[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vars[1:] {
		// The shell adds the last ones itself.
		if name, _, _ := strings.Cut(v, "="); !slices.Contains([]string{"GOMAXPROCS", "PWD", "OLDPWD", "SHLVL", "_"}, name) {
			t.Errorf("it was given %s", v)
		}
	}
	within(t, 20*time.Second, "the program is gone", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
}

// The caller's PATH is not asked, whatever is in it.
func TestBwrapInPath(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	f := fake{script: "exit 0"}
	seen := f.install(t, w)
	w.env = append(w.env, "PATH="+filepath.Dir(seen)+":/usr/bin:/bin", fakeDir+"=")
	if got := w.script("touch ran"); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	if got := w.postern("doctor"); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	if _, err := os.Stat(seen); err == nil {
		t.Error("the one in PATH was run")
	}
	if _, err := os.Stat(filepath.Join(w.tree, "ran")); err != nil {
		t.Error(err)
	}
}

// The same in the very place where the system has it.
func TestFakeInTheSystem(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can put another program in the system's place, in a mount namespace")
	}
	for _, as := range []string{"", "setpriv --reuid 65534 --regid 65534 --clear-groups "} {
		w := newWorld(t)
		newAppliance(t, w.runs)
		f := fake{script: says("bwrap: setting up uid map: Permission denied"), want: sandbox.ReasonAppArmor, detail: "uid map", cure: "apparmor"}
		seen := f.install(t, w)
		base := filepath.Dir(w.home)
		if as != "" {
			if out, err := exec.Command("chown", "-R", "65534", base, filepath.Dir(seen)).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		exe := w.program(t)
		program := filepath.Join(base, "bwrap") // the program itself stays root's
		if out, err := exec.Command("install", "-m", "755", filepath.Join(filepath.Dir(seen), "bwrap"), program).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		cmd := exec.Command("unshare", "-m", "sh", "-c", "mount --bind "+program+" \"$(readlink -f /usr/bin/bwrap)\" && exec "+as+exe+" run -- touch ran")
		cmd.Dir, cmd.Env = w.tree, append(slices.Clone(w.env), fakeDir+"=")
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run()
		f.checkRun(t, result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()})
	}
}

// program is a copy of the launcher that every user can run.
func (w *world) program(t *testing.T) string {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	exe := filepath.Join(filepath.Dir(w.home), "postern")
	if err = errors.Join(err, os.WriteFile(exe, self, 0o755), os.Chmod(filepath.Dir(w.home), 0o755)); err != nil {
		t.Fatal(err)
	}
	return exe
}
