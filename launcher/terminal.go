package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/pflag"

	"postern/launcher/backend"
	"postern/launcher/environ"
	"postern/launcher/sandbox"
	"postern/launcher/tty"
)

const terminalUsage = `postern terminal runs your shell, for yourself: without proxies, gateway and token.

  postern terminal [FLAG]… [-- SHELL [ARG]…]

Without --backend it is $SHELL on this host, as it is. With --backend native it is in a
sandbox of a fixed profile: the host can be read, your home and the working directory can
be written, the network is open; ~/.ssh, ~/.aws, ~/.gnupg, ~/.config/gh and
~/Library/Keychains cannot be read, where they are there as it starts. /tmp and /run are its
own, and Unix sockets are refused. If that cannot be had, nothing is started.

It ends with SHELL's status, and with 125 when nothing was started.

`

// terminalRequest is a terminal, as asked for.
type terminalRequest struct {
	Backend backend.Backend
	Unix    bool
	TTY     tty.Mode
	Quiet   bool
	Argv    []string
}

// parseTerminal reads the command line of terminal. There is no setting that could put
// another backend in the place of none (SPEC 51).
func parseTerminal(args []string, stdout io.Writer) (*terminalRequest, error) {
	flags := pflag.NewFlagSet("terminal", pflag.ContinueOnError)
	flags.SetInterspersed(false)
	flags.SetOutput(io.Discard)
	flags.SortFlags = false
	r := &terminalRequest{}
	var (
		name = flags.String("backend", string(backend.None), "`NAME` of what stands between SHELL and the host: none or native")
		when = flags.String("tty", "", "`WHEN` a sandboxed SHELL gets a terminal of its own: auto (where you are at one), on or off")
	)
	flags.BoolVar(&r.Unix, "unix-sockets", false, "let a sandboxed SHELL make Unix sockets (it can then reach those of your home, and the nameless)")
	flags.BoolVarP(&r.Quiet, "quiet", "q", false, "no warnings")
	err := parseFlags(flags, args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(stdout, terminalUsage, flags.FlagUsages())
		return nil, err
	}
	if err == nil {
		r.Backend, err = backend.Parse(*name)
	}
	if err == nil {
		r.TTY, err = tty.ParseMode(*when)
	}
	if err != nil {
		return nil, misused("terminal", err)
	}
	if r.Argv = flags.Args(); len(r.Argv) == 0 {
		r.Argv = []string{"/bin/sh"}
		if shell := os.Getenv("SHELL"); shell != "" {
			r.Argv[0] = shell
		}
	}
	return r, nil
}

// terminalMain is postern terminal.
func terminalMain(args []string, stdout, stderr io.Writer) int {
	r, err := parseTerminal(args, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	var code int
	switch {
	case err != nil:
	case r.Backend == backend.None:
		code, err = r.plain()
	case r.Backend.Wraps():
		code, err = r.native(stderr)
	default:
		err = &sandbox.Refusal{
			Reason: reasonBackend, Detail: fmt.Sprintf("this build starts no terminal in the backend %s", r.Backend),
			Cure: "ask for native or none",
		}
	}
	if err == nil {
		return code
	}
	if failed, ok := errors.AsType[*sandbox.ExecError](err); ok {
		fmt.Fprintln(stderr, "postern:", printable("cannot run the shell: "+failed.Detail))
		return failed.Code
	}
	return refuse(stderr, err)
}

// plain becomes the shell, of which nobody can then say that it is in a sandbox
// (SPEC 54).
func (r *terminalRequest) plain() (int, error) {
	path, err := exec.LookPath(r.Argv[0])
	if err == nil {
		err = syscall.Exec(path, r.Argv, os.Environ()) //nolint:gosec // the user's own shell
	}
	code := 126
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = 127
	}
	return 0, &sandbox.ExecError{Code: code, Detail: err.Error()}
}

// native runs the shell in the system's own sandbox, or not at all (SPEC 54).
func (r *terminalRequest) native(stderr io.Writer) (int, error) {
	if !sandbox.Terminals {
		return 0, &sandbox.Refusal{
			Reason: sandbox.ReasonTerminal, Detail: "a sandboxed terminal needs a pseudo-terminal of its own, which this build makes on Linux only",
			Cure: "use the plain one, without --backend",
		}
	}
	signals := catchSignals()
	defer signals.stop()
	l := &launch{
		request: &request{settings: &settings{TTY: r.TTY}},
		say:     &talker{w: stderr, quiet: r.Quiet}, signals: signals, options: starting,
	}
	defer l.openTerminal()()
	p, err := l.startTerminal(r)
	if err != nil {
		if sig := signals.first(); sig != 0 {
			return 128 + int(sig), nil
		}
		return 0, err
	}
	signals.forward(func(sig syscall.Signal, group bool) { _ = p.Signal(sig, group) }, p.Pause)
	status, err := p.Wait()
	if lost, ok := errors.AsType[*sandbox.OutputError](err); ok {
		l.say.warn("%v", lost)
		return max(status.ExitCode(), 1), nil
	}
	return status.ExitCode(), err
}

// startTerminal starts the shell, and says in what.
func (l *launch) startTerminal(r *terminalRequest) (*sandbox.Process, error) {
	ctx, cancel := l.signals.context()
	defer cancel()
	cwd, err := os.Getwd()
	if err != nil {
		return nil, &sandbox.Refusal{Reason: sandbox.ReasonDir, Detail: "the working directory is gone", Err: err, Cure: "go to another"}
	}
	facts, err := sandbox.GatherTerminal(&sandbox.Terminal{Home: os.Getenv("HOME"), Dir: cwd, RunDir: runDirName(), AllowUnix: r.Unix})
	if err != nil {
		return nil, err
	}
	for _, w := range facts.Warnings {
		l.say.warn("%s", w)
	}
	p, err := sandbox.Start(ctx, facts, l.options)
	if err != nil {
		return nil, err
	}
	env := environ.Terminal(os.Environ(), facts.Home, facts.Dir, facts.Runtime)
	if err := p.Exec(sandbox.Command{Argv: r.Argv, Env: append(env, "POSTERN_BACKEND="+string(r.Backend))}); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}
