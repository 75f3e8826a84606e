package nameguard

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inside is where the tests' sandboxes show the workspace, and home a private tree that
// holds another guarded folder.
const (
	inside = "/w"
	home   = "/home/u"
)

// box is one sandbox of the tests: a workspace, and rules about it.
type box struct {
	tb     testing.TB
	dir    string // the workspace on the host
	other  string // what is shown in the private home
	config Config
	plain  bool // no guard: what an attack does where nothing stops it

	lacks string // what the kernel is made to lack

	args  []string // further options of bubblewrap
	stdin *os.File

	options func(*Options)
	cage    func(*Cage)
	started func(*Broker, *exec.Cmd)
}

func newBox(tb testing.TB) *box {
	tb.Helper()
	return &box{tb: tb, dir: tb.TempDir(), other: tb.TempDir(), config: Config{Globs: append(Secrets(), MandatoryNew()...)}}
}

// outcome is what a run in a box came to.
type outcome struct {
	out        string // stdout and stderr
	code       int
	err        error // of Serve
	violations []Violation
}

// told is the violations, one a line.
func (o *outcome) told() string {
	var lines []string
	for _, v := range o.violations {
		lines = append(lines, v.Action+" "+v.Target+" "+v.Rule)
	}
	return strings.Join(lines, "\n")
}

// sh runs a script of the shell.
func (b *box) sh(script string) outcome {
	b.tb.Helper()
	return b.run("/bin/sh", "-c", script)
}

// do runs a hostile program.
func (b *box) do(name string, args ...string) outcome {
	b.tb.Helper()
	return b.run(append([]string{"/shim", enemyCommand, name}, args...)...)
}

func (b *box) run(argv ...string) outcome {
	b.tb.Helper()
	ctx, cancel := context.WithTimeout(b.tb.Context(), time.Minute)
	defer cancel()
	exe, err := os.Executable()
	must(b.tb, err)
	args := []string{
		"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-net", "--unshare-uts", "--disable-userns",
		"--cap-drop", "ALL", "--new-session",
		"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
		"--symlink", "usr/sbin", "/sbin", "--ro-bind", "/etc/passwd", "/etc/passwd",
		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", home,
		"--bind", b.dir, inside, "--bind", b.other, home + "/p",
		"--ro-bind", exe, "/shim", "--chdir", inside,
	}
	args = append(append(args, b.args...), "--")
	cage := Cage{Free: []string{"/tmp", "/dev", "/proc"}, Canary: Canary{Dir: inside, Name: ".env.canary"}, TrapRemove: b.config.TrapRemove}
	if b.cage != nil {
		b.cage(&cage)
	}
	if !b.plain {
		config, err := json.Marshal(struct {
			Cage
			Lacks string
		}{cage, b.lacks})
		must(b.tb, err)
		args = append(args, "/shim", shimCommand, string(config))
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(b.tb, err)
	ours, theirs := pair[0], os.NewFile(uintptr(pair[1]), "theirs")
	defer unix.Close(ours)
	cmd := exec.CommandContext(ctx, "bwrap", append(args, argv...)...)
	cmd.ExtraFiles, cmd.Stdin = []*os.File{theirs}, b.stdin
	if b.plain {
		cmd.ExtraFiles = nil
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 5 * time.Second
	must(b.tb, cmd.Start())
	_ = theirs.Close()
	var o outcome
	if !b.plain {
		b.serve(cmd, ours, cage, &o)
	} else {
		_ = cmd.Wait()
	}
	o.out, o.code = out.String(), cmd.ProcessState.ExitCode()
	if ctx.Err() != nil {
		b.tb.Errorf("%q did not end in time: %s", argv, o.out)
	}
	return o
}

// serve waits for the shim's descriptors and serves until the command has ended.
func (b *box) serve(cmd *exec.Cmd, ours int, cage Cage, o *outcome) {
	b.tb.Helper()
	rules, err := Compile(b.config)
	must(b.tb, err)
	oob := make([]byte, unix.CmsgSpace(8))
	_, oobn, _, _, err := unix.Recvmsg(ours, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	must(b.tb, err)
	if oobn == 0 {
		_ = cmd.Wait() // the shim has said why
		return
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	must(b.tb, err)
	fds, err := unix.ParseUnixRights(&messages[0])
	must(b.tb, err)
	var mu sync.Mutex
	opts := Options{
		Rules: rules, Free: cage.Free, Private: []string{home}, Canary: cage.Canary,
		Report: func(v Violation) {
			mu.Lock()
			defer mu.Unlock()
			o.violations = append(o.violations, v)
		},
		Fault: func(err error) { b.tb.Errorf("a fault of the broker: %v", err) },
		Fatal: func(err error) { b.tb.Errorf("the broker gave up: %v", err); _ = cmd.Process.Kill() },
	}
	if b.options != nil {
		b.options(&opts)
	}
	broker, err := Serve(fds[0], fds[1], opts)
	if o.err = err; err != nil {
		_ = cmd.Wait()
		return
	}
	if b.started != nil {
		b.started(broker, cmd)
	}
	_ = cmd.Wait()
	broker.Close()
	mu.Lock()
	defer mu.Unlock()
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// write makes a file of the workspace.
func (b *box) write(name, text string) {
	b.tb.Helper()
	path := filepath.Join(b.dir, name)
	must(b.tb, os.MkdirAll(filepath.Dir(path), 0o755))
	must(b.tb, os.WriteFile(path, []byte(text), 0o644))
}

// has reports whether an entry of the workspace is there, seen from outside.
func (b *box) has(name string) bool {
	_, err := os.Lstat(filepath.Join(b.dir, name))
	return err == nil
}
