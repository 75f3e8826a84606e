package nameattacks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"postern/launcher/nameguard"
)

// order is what the launcher is asked for.
type order struct {
	Args    []string // of bubblewrap, all
	Guarded bool
	Cage    nameguard.Cage
	Rules   nameguard.Config
	Private []string
	Inherit []string // opened for reading, and passed on
	Report  string   // the file for what the guard said
}

// patience is how long a run may take beside its races, which count five times: what is done
// more often where they last long takes its time, too.
const patience = 2 * time.Minute

// start runs an attack in a sandbox that has the bed's folders, guarded by its rules or
// bare, and waits for its end.
func start(t *testing.T, b *bed, guarded bool, name string, race time.Duration) result {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := order{
		Args: append([]string{
			"--die-with-parent", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-net", "--unshare-uts", "--disable-userns",
			"--cap-drop", "ALL", "--new-session",
			"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
			"--symlink", "usr/sbin", "/sbin", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", home,
			"--bind", b.ws, inside, "--bind", b.ws, again, "--bind", b.other, project,
			"--ro-bind", exe, self, "--chdir", inside,
		}, b.args...),
		Guarded: guarded, Rules: b.rules, Private: []string{home},
		Cage:    nameguard.Cage{Free: []string{"/tmp", "/dev", "/proc"}, Canary: nameguard.Canary{Dir: inside, Name: ".env.canary"}, TrapRemove: b.rules.TrapRemove},
		Inherit: b.inherit, Report: filepath.Join(b.dir, "report-"+strconv.FormatBool(guarded)),
	}
	if compiled != "" {
		o.Args = append(o.Args, "--ro-bind", compiled, programs)
	}
	argv := []string{self, wardenPart, name, race.String()}
	if guarded {
		config, err := json.Marshal(o.Cage)
		if err != nil {
			t.Fatal(err)
		}
		argv = append([]string{self, shimPart, string(config)}, argv...)
	}
	o.Args = slices.Concat(o.Args, []string{"--"}, argv)
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*race+patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, launchPart, string(text))
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME="+home, "LC_ALL=C")
	cmd.WaitDelay = 10 * time.Second
	if b.stdin != "" {
		f, err := os.Open(b.stdin)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		cmd.Stdin = f
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if b.killed {
		time.AfterFunc(500*time.Millisecond, func() { _ = cmd.Process.Kill() })
	}
	err = cmd.Wait()
	r := result{Code: cmd.ProcessState.ExitCode(), late: ctx.Err() != nil || errors.Is(err, exec.ErrWaitDelay)}
	if data, err := os.ReadFile(o.Report); err == nil {
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatal(err)
		}
		r.Code = cmd.ProcessState.ExitCode()
	}
	r.Out = clip(out.String())
	return r
}

// clip keeps what a test says readable.
func clip(text string) string {
	const limit = 4000
	if len(text) <= limit {
		return text
	}
	return text[:limit/2] + " … " + text[len(text)-limit/2:]
}

// need skips where there is no bubblewrap.
func need(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("bwrap"); err != nil {
		t.Skip("there is no bubblewrap")
	}
}
