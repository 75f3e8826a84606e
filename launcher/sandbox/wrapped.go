package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"postern/caddy-modules/session/lease"
)

// wrapper is what a wrapped process is started with: the real thing on macOS, a stand-in
// in the tests of other systems.
type wrapper struct {
	Tool  string   // sandbox-exec (SPEC 28)
	True  string   // what a profile is tried with
	Base  string   // where private directories are made; empty: the system's place
	Enter []string // arguments that make our binary call enter
	Guard []string // and keepWatch
}

// wrapped is a command under sandbox-exec. It is in a session of its own, which is its
// process group too: nothing can be typed into the caller's terminal (D15).
type wrapped struct {
	wrapper
	facts *Facts
	dir   *privateDir
	loop  *hostPair

	cmd     *exec.Cmd
	orders  *os.File // to enter
	answers *os.File // from enter
	guard   *exec.Cmd
	leash   *os.File // to the guard, which ends the command when it breaks

	life  sync.Mutex
	ended bool // the command was reaped: its number is nobody's, or another's
	wait  sync.Once
	free  sync.Once
	state Status
	lost  error
}

// start puts up the sandbox: enter runs in it, and waits for the command.
func (w *wrapped) start(ctx context.Context, f *Facts, o Options) (err error) {
	w.facts = f
	if err := checkElevated(); err != nil {
		return err
	}
	if f.wanted == nil {
		return errors.New("start sandbox: nothing was gathered")
	}
	exe := o.Exe
	if exe == "" {
		if exe, err = os.Executable(); err != nil {
			return fmt.Errorf("find own binary: %w", err)
		}
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return fmt.Errorf("find own binary: %w", err)
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	if w.loop, err = listenLoopback(); err != nil {
		return err
	}
	if f.wanted.Mac.DNS == MacGuard {
		if w.loop.resolver, err = listenResolver(); err != nil {
			return err
		}
	}
	if w.dir, err = makePrivateDir(w.Base, exe); err != nil {
		return err
	}
	f.inside = w.dir.inside(lease.NewLogin())
	if err := w.writeProfile(exe, o); err != nil {
		return err
	}
	if err := w.try(ctx); err != nil {
		return err
	}
	if err := w.launch(exe, o); err != nil {
		return err
	}
	m, err := w.answer(ctx)
	if err != nil {
		return w.died(ctx, err)
	}
	if m.Type != msgReady {
		return &Refusal{Reason: cmpReason(m.Reason, ReasonProtocol), Detail: m.Detail, Cure: cureSeatbelt}
	}
	// In force: nobody reads it again (D18).
	if err := os.Remove(w.dir.in(ownProfile)); err != nil {
		return fmt.Errorf("remove the profile: %w", err)
	}
	return nil
}

const cureSeatbelt = "run postern outside of any other sandbox: Seatbelt does not nest"

func cmpReason(r, otherwise Reason) Reason {
	if r == "" {
		return otherwise
	}
	return r
}

// writeProfile generates this run's profile, and no other's (SPEC 41).
func (w *wrapped) writeProfile(exe string, o Options) error {
	env := o.Env
	if env == nil {
		env = os.Environ()
	}
	policy, err := seatbeltPolicy(w.facts, macRun{Program: o.Program, Exe: exe, Dir: w.dir.path, Temp: w.dir.tempName(), Ports: append(w.loop.ports(), numbers(o.Reach)...), Serve: numbers(o.Serve), Guard: w.loop.resolver.port(), Tag: o.Tag}, thisMac(env))
	if err != nil {
		return err
	}
	text, err := policy.Profile()
	if err != nil {
		return &Refusal{Reason: ReasonProfile, Detail: "the run cannot be described to Seatbelt", Err: err}
	}
	if err := w.dir.write(ownProfile, text); err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	return nil
}

// Exit statuses of sandbox-exec itself (sysexits(3)).
const (
	exitProfile = 65 // it does not take the profile
	exitApply   = 71 // it could not apply it, or execute the command
)

// try has the profile applied to a program that does nothing.
func (w *wrapped) try(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, w.Tool, "-f", w.dir.in(ownProfile), w.True)
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{}, "/", time.Second
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return w.late(ctx)
	}
	if cmd.ProcessState == nil {
		return &Refusal{Reason: ReasonSeatbelt, Detail: "cannot start " + w.Tool, Err: err}
	}
	return refuseStatus(cmd.ProcessState.ExitCode(), string(out))
}

// refuseStatus words what sandbox-exec's exit status says.
func refuseStatus(code int, said string) error {
	r := &Refusal{Reason: ReasonSeatbelt, Cure: cureSeatbelt}
	switch code {
	case exitProfile:
		r.Reason, r.Cure = ReasonProfile, "this version of macOS does not know all that the profile says: report it with the output of sw_vers"
		r.Detail = "sandbox-exec does not take the profile"
	case exitApply:
		r.Detail = "sandbox-exec cannot apply the profile"
	default:
		r.Detail = fmt.Sprintf("sandbox-exec ended with %d", code)
	}
	if line := lastLine(said); line != "" {
		r.Detail += ": " + line
	}
	return r
}

// launch starts enter in the sandbox, and the guard beside it.
func (w *wrapped) launch(exe string, o Options) error {
	var theirs [2]*os.File
	var err error
	if theirs[0], w.orders, err = os.Pipe(); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer theirs[0].Close()
	if w.answers, theirs[1], err = os.Pipe(); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer theirs[1].Close()
	argv := append([]string{"-f", w.dir.in(ownProfile), exe}, w.Enter...)
	cmd := exec.Command(w.Tool, append(argv, w.dir.path)...) //nolint:noctx // it ends with the run
	// Nothing of the caller's environment loads into sandbox-exec, nor into enter.
	cmd.Env, cmd.Dir = []string{"GOMAXPROCS=1"}, "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.stdio()
	cmd.ExtraFiles = []*os.File{theirs[0], theirs[1]}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return &Refusal{Reason: ReasonSeatbelt, Detail: "cannot start " + w.Tool, Err: err}
	}
	w.cmd = cmd
	return w.startGuard(exe)
}

// stdio are the command's standard descriptors.
func (o Options) stdio() (stdin io.Reader, stdout, stderr io.Writer) {
	files := [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	for i, f := range []*os.File{o.Stdin, o.Stdout, o.Stderr} {
		if f != nil {
			files[i] = f
		}
	}
	return files[0], files[1], files[2]
}

// startGuard starts what outlives this process if need be.
func (w *wrapped) startGuard(exe string) error {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer theirs.Close()
	w.leash = ours
	w.guard = exec.Command(exe, append(w.Guard, fmt.Sprint(w.cmd.Process.Pid))...) //nolint:noctx // it is to outlive us
	w.guard.Env, w.guard.Dir, w.guard.Stdin = []string{"GOMAXPROCS=1"}, "/", theirs
	// In a session of its own: no signal of a terminal is for it.
	w.guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := w.guard.Start(); err != nil {
		w.guard = nil
		return &Refusal{Reason: ReasonStart, Detail: "cannot start the run's guard", Err: err}
	}
	return nil
}

// answer reads what enter says next. The error is io.EOF when it has become the command,
// or is gone.
func (w *wrapped) answer(ctx context.Context) (*message, error) {
	stop := context.AfterFunc(ctx, func() { _ = w.answers.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	return decode(w.answers, maxInside)
}

func (w *wrapped) late(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("start sandbox: %w", context.Cause(ctx))
	}
	return &Refusal{Reason: ReasonTimeout, Detail: "the sandbox did not stand in time"}
}

// died says why enter never spoke.
func (w *wrapped) died(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return w.late(ctx)
	}
	if !errors.Is(err, io.EOF) {
		return &Refusal{Reason: ReasonProtocol, Detail: "the inside of the sandbox spoke nonsense", Err: err}
	}
	status, werr := w.Wait()
	if werr != nil {
		return werr
	}
	return refuseStatus(status.ExitCode(), "")
}
