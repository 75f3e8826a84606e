package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"postern/caddy-modules/session/lease"
	"postern/launcher/backend"
	"postern/launcher/environ"
	"postern/launcher/gitconfig"
	"postern/launcher/ports"
	"postern/launcher/sandbox"
)

// lendTimeout bounds the wait for the appliance's answer; it may have to mint a read
// token at a forge.
const lendTimeout = 30 * time.Second

// runMain is postern run.
func runMain(args []string, stdout, stderr io.Writer) int {
	r, err := parseRun(args, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err != nil {
		return refuse(stderr, err)
	}
	// Before anything that must not be left half done.
	signals := catchSignals()
	defer signals.stop()
	defer r.summary.close()
	l := &launch{request: r, say: &talker{w: stderr, quiet: r.Quiet}, signals: signals, options: starting}
	defer l.openTerminal()()
	code, err := l.run()
	if err != nil {
		if exec, ok := errors.AsType[*sandbox.ExecError](err); ok {
			fmt.Fprintln(stderr, "postern:", printable(explainExec(exec, r.Argv[0])))
			return exec.Code
		}
		if sig := signals.first(); sig != 0 {
			return 128 + int(sig)
		}
		return refuse(stderr, err)
	}
	return code
}

// starting is what every start begins with. Tests put a bubblewrap of their own there.
var starting sandbox.Options

// launch is one run on its way.
type launch struct {
	*request
	say     *talker
	signals *signals
	options sandbox.Options
	refused refusals
	looking *onlooker

	nameserver string // where the run can ask for names, if no file inside says so
}

// running is a command in its sandbox, with its listeners lent.
type running struct {
	*sandbox.Process
	keeper *keeper
	lent   *lease.Lease
	ports  *ports.Forward
}

// run does everything, and returns the command's status.
func (l *launch) run() (int, error) {
	r, err := l.start()
	if err != nil {
		return 0, err
	}
	defer r.ports.Close()
	return l.attend(r.Process, r.keeper, r.lent)
}

// start starts the command; or nothing of it is left.
func (l *launch) start() (_ *running, err error) {
	runDir, err := findRunDir()
	if err != nil {
		return nil, err
	}
	facts, err := sandbox.Gather(l.profile(runDir))
	if err != nil {
		return nil, err
	}
	ctx, cancel := l.signals.context()
	defer cancel()
	for _, w := range facts.Warnings {
		l.say.warn("%s", w)
	}
	// A mistake in a variable's name is better found before anything runs.
	if _, err := l.environment(facts, lease.Answer{}, nil); err != nil {
		return nil, &sandbox.Refusal{Reason: reasonUsage, Detail: err.Error()}
	}
	for _, name := range l.unset {
		l.say.warn("--env %s: it is not set here, so the command does not get it", name)
	}
	who := l.identity(facts)
	led := l.Ports
	if sandbox.SharedLoopback {
		led = led.Apart()
		l.options.Reach, l.options.Serve = l.Ports.Inside()
	}
	open, err := ports.Open(ctx, led)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			open.Close()
		}
	}()

	l.looking = l.onlook()
	l.options.Violated.Fault = func(err error) { l.say.warn("%v", err) }
	l.options.Program, l.options.Env = l.Argv[0], os.Environ()
	mode := l.lookups()
	l.askForNames(mode)
	go lease.Warm() // while bubblewrap starts
	p, err := sandbox.Start(ctx, facts, l.options)
	if err != nil {
		return nil, err
	}
	more, err := names(p, mode)
	if err != nil {
		p.Close()
		return nil, err
	}
	k := l.keeper(filepath.Join(runDir, leaseSocket), p.Pair(), p.Facts().Inside().Login)
	// What leads past the proxies ends with the session: a port that an appliance refuses
	// may be another session's by now.
	k.alone, k.more = open.Close, more
	lent, err := k.lendFirst(ctx)
	if err != nil {
		p.Close()
		return nil, err
	}
	l.served(mode, lent.Answer().DNS)
	l.nameserver = k.nameserver()
	if err = open.Start(ctx, p); err == nil {
		err = l.exec(p, facts, lent.Answer(), <-who)
	}
	if err != nil {
		p.Close()
		_ = lent.Close()
		return nil, err
	}
	return &running{Process: p, keeper: k, lent: lent, ports: open}, nil
}

// attend stays with a command that runs, until it and its lease have ended.
func (l *launch) attend(p *sandbox.Process, k *keeper, lent *lease.Lease) (int, error) {
	ctx, cancel := context.WithCancel(context.Background())
	var kept sync.WaitGroup
	k.hold(lent)
	k.report(lease.Event{Type: lease.EventReady, Fields: map[string]any{"backend": backend.Native, "cwd": p.Facts().Dir}})
	kept.Go(func() { k.keep(ctx, lent) })
	l.signals.forward(func(sig syscall.Signal, group bool) { _ = p.Signal(sig, group) }, p.Pause)
	stop := p.Facts().Watch(func(c sandbox.Change) { l.say.change(c) })

	status, err := p.Wait()
	stop()
	l.looking.close(l.say)
	changes := p.Facts().Inspect()
	if err == nil {
		k.exited(lease.Event{Type: lease.EventExit, Fields: map[string]any{"exitCode": status.ExitCode(), "signal": int(status.Signal)}})
	}
	cancel()
	kept.Wait()
	code := status.ExitCode()
	var lost *sandbox.OutputError
	switch {
	case errors.As(err, &lost):
		// The command ran; a run whose output was lost has not gone well.
		l.say.warn("%v", lost)
		code = max(code, 1)
	case err != nil:
		return 0, err
	}
	if l.summary != nil {
		if err := l.summary.write(l.refused.report(l.ID, code, changes)); err != nil {
			l.say.warn("%v", err)
			code = max(code, 1)
		}
	}
	l.say.mu.Lock()
	defer l.say.mu.Unlock()
	refused := &l.refused
	if l.Quiet {
		// What was refused is over; what was planted is still there.
		refused = new(refusals)
	}
	refused.print(l.say.w, changes)
	return code, nil
}

// keeper makes the keeper of the listeners.
func (l *launch) keeper(path string, pair lease.Pair, login *lease.Login) *keeper {
	return &keeper{
		path:  path,
		pair:  pair,
		hello: lease.Hello{Spec: l.session(), HostPorts: l.Ports.HostPorts(), Login: login},
		lend:  lease.Lend,
		event: l.refused.add,
		warn:  l.say.warn,
	}
}

// lendFirst lends, and words what can go wrong.
func (k *keeper) lendFirst(ctx context.Context) (*lease.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, lendTimeout)
	defer cancel()
	lent, err := k.first(ctx)
	var no *lease.RefusedError
	switch {
	case err == nil:
		return lent, nil
	case errors.As(err, &no):
		return nil, &sandbox.Refusal{Reason: reasonRefused, Detail: fmt.Sprintf("the appliance does not take the run (%s): %s", no.Code, no.Message)}
	case errors.Is(err, lease.ErrNotRunning):
		return nil, &sandbox.Refusal{Reason: reasonAppliance, Detail: "the appliance is not running: nobody answers at " + k.path, Cure: "start it: caddy run"}
	}
	return nil, &sandbox.Refusal{Reason: reasonLease, Detail: "cannot lend the run's listeners to the appliance", Err: err}
}

// exec starts the command.
func (l *launch) exec(p *sandbox.Process, facts *sandbox.Facts, answer lease.Answer, who person) error {
	git := gitconfig.Config{
		Gateway: answer.Git.URL, Forges: answer.Git.Forges, Proxy: proxyURL(p, facts), Helper: helperOf(facts.Inside().Exe),
		UserName: who.name, UserEmail: who.email, Empty: facts.Inside().Empty, Hooks: l.GitHooks,
	}
	for _, root := range facts.Roots {
		git.Safe = append(git.Safe, root.Path)
	}
	text, err := git.Text()
	if err != nil {
		return err
	}
	if err := p.SetGitConfig(text); err != nil {
		return err
	}
	env, err := l.environment(facts, answer, p)
	if err != nil {
		return err
	}
	return p.Exec(sandbox.Command{Argv: l.Argv, Env: env})
}

// environment composes the command's. Without a sandbox it is only tried.
func (l *launch) environment(facts *sandbox.Facts, answer lease.Answer, p *sandbox.Process) ([]string, error) {
	in := facts.Inside()
	e := environ.Run{
		Mode: l.Environment, Host: os.Environ(), Pass: l.Env,
		Session: l.ID, Home: facts.Home, Dir: facts.Dir, Runtime: in.Runtime, Temp: in.Temp,
		HTTP: proxyAddr(p, 0), SOCKS: proxyAddr(p, 1), SharedHome: in.SharedHome, Login: in.Login.Userinfo(), AllProxy: l.AllProxy,
		Nameserver: l.nameserver, NoHooks: facts.NoHooks(),
		Connect: in.Exe + " " + connectCommand, GitConfig: in.Git, ReadToken: answer.ReadToken,
	}
	return e.Build()
}

// helperOf is git's credential helper, where our binary is at exe.
func helperOf(exe string) string { return exe + " " + credentialCommand }

// proxyAddr is where a listener of the sandbox is: 0 is HTTP, 1 is SOCKS.
func proxyAddr(p *sandbox.Process, i int) string {
	if p != nil {
		pair := p.Pair()
		return []*net.TCPListener{pair.HTTP, pair.SOCKS}[i].Addr().String()
	}
	return fmt.Sprintf("127.0.0.1:%d", sandbox.DefaultPorts[i])
}

// proxyURL is the HTTP proxy for git, with what it asks for.
func proxyURL(p *sandbox.Process, facts *sandbox.Facts) string {
	u := url.URL{Scheme: "http", Host: proxyAddr(p, 0), User: facts.Inside().Login.Userinfo()}
	return u.String()
}
