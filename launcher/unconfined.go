package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"postern/caddy-modules/session/lease"
	"postern/launcher/environ"
	"postern/launcher/gitconfig"
	"postern/launcher/sandbox"
	"postern/launcher/spec"
)

// unconfined runs the command on the bare system. What is left of the run's borders are
// the proxies its variables name, the read token and the push gateway, for those who
// keep to them (SPEC 56, 134).
//
// asked says that the host wants it so; then it may be without an appliance, too.
func (h *hostRun) unconfined(asked bool) (_ sandbox.Status, err error) {
	ctx, cancel := h.signals.context()
	defer cancel()
	h.say.warn("the command is not confined: it can read and write what you can, and use any network it likes")
	var k *keeper
	var lent *lease.Lease
	var answer lease.Answer
	runDir, err := findRunDir()
	if err == nil {
		k, lent, err = h.lend(ctx, runDir)
	}
	switch r, refusal := errors.AsType[*sandbox.Refusal](err); {
	case err == nil:
		answer = lent.Answer()
		defer func() { _ = k.pair.Close() }()
	case asked && refusal && r.Reason == reasonAppliance:
		h.say.warn("and there is no appliance: the run has no proxies, no token and no gateway")
	default:
		return sandbox.Status{}, err
	}
	p, err := h.bare(runDir, k, answer)
	if err != nil {
		if lent != nil {
			_ = lent.Close()
		}
		return sandbox.Status{}, err
	}
	defer p.tidy()
	return h.attend(p, k, lent)
}

// lend makes the run's listeners, on this system's loopback, and lends them. Everybody on
// it can connect to them, so they ask for a secret of the run.
func (h *hostRun) lend(ctx context.Context, runDir string) (*keeper, *lease.Lease, error) {
	var lns [2]*net.TCPListener
	for i := range lns {
		ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			if i > 0 {
				_ = lns[0].Close()
			}
			return nil, nil, fmt.Errorf("make the run's listeners: %w", err)
		}
		lns[i] = ln
	}
	pair := lease.Pair{HTTP: lns[0], SOCKS: lns[1]}
	k := h.launch().keeper(applianceSocket(runDir), pair, lease.NewLogin())
	lent, err := k.lendFirst(ctx)
	if err != nil {
		_ = pair.Close()
		return nil, nil, err
	}
	return k, lent, nil
}

// bare starts the command.
func (h *hostRun) bare(runDir string, k *keeper, answer lease.Answer) (_ *bareProcess, err error) {
	p := &bareProcess{streams: &h.streams}
	defer func() {
		if err != nil {
			p.tidy()
		}
	}()
	env := environ.Run{
		Mode: environ.Strip, Host: os.Environ(), Pass: h.Env, AllProxy: environ.AllSOCKS,
		Session: h.Spec.SessionID, Home: os.Getenv("HOME"), Dir: h.Dir, Runtime: os.Getenv("XDG_RUNTIME_DIR"), ReadToken: answer.ReadToken,
	}
	if k != nil {
		env.HTTP, env.SOCKS = k.pair.HTTP.Addr().String(), k.pair.SOCKS.Addr().String()
		if exe, exeErr := os.Executable(); exeErr == nil && plainPath(exe) {
			env.Connect = exe + " " + connectCommand
		}
		env.Login = k.hello.Login.Userinfo()
		proxy := url.URL{Scheme: "http", User: env.Login, Host: env.HTTP}
		if env.GitConfig, err = p.gitConfig(runDir, proxy.String(), answer); err != nil {
			return nil, err
		}
		h.handle.Details["http"], h.handle.Details["socks"] = env.HTTP, env.SOCKS
	}
	vars, err := env.Build()
	if err == nil && !h.Sanitize {
		vars, err = inherited(env)
	}
	if err != nil {
		return nil, err
	}
	exe, err := exec.LookPath(h.Argv[0])
	if err != nil {
		code := 127
		if errors.Is(err, os.ErrPermission) {
			code = 126
		}
		return nil, &sandbox.ExecError{Code: code, Detail: err.Error()}
	}
	p.cmd = &exec.Cmd{
		Path: exe, Args: h.Argv, Dir: h.Dir, Env: vars,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := h.tellAll(p.cmd); err != nil {
		return nil, err
	}
	err = p.cmd.Start()
	h.streams.handOver()
	if err != nil {
		_ = h.drain()
		return nil, &sandbox.ExecError{Code: 126, Detail: err.Error()}
	}
	h.handle.Details["cwd"], h.handle.Details["pid"] = h.Dir, p.cmd.Process.Pid
	return p, nil
}

// tellAll makes the command's output events, where somebody wants those.
func (h *hostRun) tellAll(cmd *exec.Cmd) error {
	if h.events == nil || h.Streams == streamsPlain {
		return nil
	}
	out, err := h.streams.open(tell(h.events, spec.Stdout), nil)
	if err != nil {
		return err
	}
	errs, err := h.streams.open(tell(h.events, spec.Stderr), nil)
	cmd.Stdout, cmd.Stderr = out, errs
	return err
}

// inherited is the environment of a command that is to have the host's as it is: what
// is ours is put over it, but not where the run is.
func inherited(run environ.Run) ([]string, error) {
	vars := map[string]string{}
	add := func(list []string) {
		for _, kv := range list {
			if name, value, ok := strings.Cut(kv, "="); ok && name != "" {
				vars[name] = value
			}
		}
	}
	add(run.Host)
	run.Host = nil
	ours, err := run.Build()
	if err != nil {
		return nil, err
	}
	add(slices.DeleteFunc(ours, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains([]string{"PATH", "HOME", "PWD", "TMPDIR", "TMPPREFIX", "XDG_RUNTIME_DIR"}, name)
	}))
	out := make([]string, 0, len(vars))
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		out = append(out, name+"="+vars[name])
	}
	return out, nil
}

// plainPath reports whether a path needs no quoting in a shell.
func plainPath(path string) bool {
	return !strings.ContainsFunc(path, func(r rune) bool {
		return !strings.ContainsRune("/._-+", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// leftBehind is how long the output of processes is waited for that the command left
// behind, outside of its process group.
const leftBehind = 2 * time.Second

// bareProcess is a command without a sandbox.
type bareProcess struct {
	cmd *exec.Cmd
	dir string // of git's configuration; empty: none

	streams *streams
}

// gitConfig writes what leads the run's pushes to the gateway.
func (p *bareProcess) gitConfig(runDir, proxy string, answer lease.Answer) (string, error) {
	var err error
	if p.dir, err = os.MkdirTemp(runDir, "none-"); err != nil {
		return "", fmt.Errorf("make git configuration: %w", err)
	}
	empty := filepath.Join(p.dir, "empty")
	if err := os.Mkdir(empty, 0o500); err != nil {
		return "", fmt.Errorf("make git configuration: %w", err)
	}
	git := gitconfig.Config{Gateway: answer.Git.URL, Forges: answer.Git.Forges, Proxy: proxy, Empty: empty}
	if exe, err := os.Executable(); err == nil && plainPath(exe) {
		git.Helper = helperOf(exe)
	}
	text, err := git.Text()
	if err != nil {
		return "", err
	}
	file := filepath.Join(p.dir, "gitconfig")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("make git configuration: %w", err)
	}
	return file, nil
}

// Signal implements target.
func (p *bareProcess) Signal(sig syscall.Signal, group bool) error {
	if group {
		return syscall.Kill(-p.cmd.Process.Pid, sig)
	}
	return p.cmd.Process.Signal(sig)
}

// Kill implements target.
func (p *bareProcess) Kill() { _ = p.Signal(syscall.SIGKILL, true) }

// Wait waits for the command, and ends what it left behind in its process group.
func (p *bareProcess) Wait() (sandbox.Status, error) {
	err := p.cmd.Wait()
	p.Kill()
	p.streams.cut(leftBehind)
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		return sandbox.Status{}, fmt.Errorf("wait for command: %w", err)
	}
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return sandbox.Status{Signal: ws.Signal()}, nil
	}
	return sandbox.Status{Code: p.cmd.ProcessState.ExitCode()}, nil
}

// tidy removes what was made for it.
func (p *bareProcess) tidy() {
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}
