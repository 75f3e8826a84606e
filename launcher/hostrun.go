package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"postern/caddy-modules/session/lease"
	"postern/launcher/backend"
	"postern/launcher/environ"
	"postern/launcher/sandbox"
	"postern/launcher/spec"
	"postern/launcher/violation"
)

// execMain is postern exec.
func execMain(args []string, stdout, stderr io.Writer) int {
	r, err := parseExec(args, os.Stdin, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	h := &hostRun{hostRequest: r, say: &talker{w: stderr}}
	if r != nil {
		h.say.quiet = r.Quiet
		if h.events, err = r.openEvents(err); err == nil {
			return h.run(stderr)
		}
		h.handle = spec.NewHandle(r.Spec.SessionID, string(backend.None))
		h.over(exitRefused, 0, err)
	}
	return refuse(stderr, err)
}

// openEvents finds the descriptor that the events go to. An error that is known already
// is handed back, so that it is told there as well.
func (r *hostRequest) openEvents(known error) (*spec.Writer, error) {
	if r.Events == 0 {
		return nil, known
	}
	if err := handedOver(r.Events); err != nil {
		return nil, errors.Join(known, execUsageError(fmt.Errorf("--events %d: %w", r.Events, err)))
	}
	if r.Events == 1 {
		return spec.NewWriter(os.Stdout, r.Spec.SessionID), known
	}
	unix.CloseOnExec(r.Events) // nobody else's
	return spec.NewWriter(os.NewFile(uintptr(r.Events), "events"), r.Spec.SessionID), known
}

// hostRun is one run of a host, on its way.
type hostRun struct {
	*hostRequest
	say     *talker
	signals *signals
	events  *spec.Writer // nil: nobody wants any
	handle  *spec.Handle
	streams streams
	looking []func() // ends what looks for violations
	keeper  *keeper  // nil: there is no appliance

	mu      sync.Mutex // guards what follows
	ready   bool
	early   []func() // waits for that
	oom     uint64   // kills before the command ran
	oomSeen bool
}

// process is a command that runs, in a sandbox or without.
type process interface {
	target
	Wait() (sandbox.Status, error)
}

// run does everything and returns the status to exit with.
func (h *hostRun) run(stderr io.Writer) int {
	h.signals = catchSignals()
	defer h.signals.stop()
	c, err := choose(h.Off, h.Backend, h.Default)
	h.handle = spec.NewHandle(h.Spec.SessionID, string(c.Backend))
	_ = h.events.Write(spec.Event{Type: spec.Starting, Handle: h.handle})
	h.oom, h.oomSeen = oomKills("/")
	var status sandbox.Status
	if err == nil {
		status, err = h.dispatch(c)
	}
	code := status.ExitCode()
	if err != nil {
		code = h.explain(err, stderr)
	}
	h.over(code, status.Signal, err)
	return code
}

// explain prints why nothing was started, and returns the status that says so.
func (h *hostRun) explain(err error, stderr io.Writer) int {
	if exec, ok := errors.AsType[*sandbox.ExecError](err); ok {
		fmt.Fprintln(stderr, "postern:", printable("cannot run the command: "+exec.Detail))
		return exec.Code
	}
	if sig := h.signals.first(); sig != 0 {
		return 128 + int(sig)
	}
	return refuse(stderr, err)
}

// over is the last word.
func (h *hostRun) over(code int, signal syscall.Signal, err error) {
	if err != nil {
		if h.handle.State == spec.Created {
			h.handle.Backend = string(backend.None) // nothing stood
		}
		h.handle.Fail(err)
	} else {
		_ = h.handle.To(spec.Destroyed) // from wherever it was
	}
	_ = h.events.Write(spec.Event{Type: spec.Exit, ExitCode: &code, Signal: int(signal), Handle: h.handle})
}

// dispatch runs the command with the backend that was chosen, or with none where there
// is no sandbox on this system, nobody asked for one by name, and a probe says so too.
func (h *hostRun) dispatch(c choice) (sandbox.Status, error) {
	if c.Line != "" {
		h.say.warn("%s", c.Line)
	}
	if c.Backend == backend.None {
		return h.unconfined(true)
	}
	status, err := h.native()
	if c.Strict || !mayStepDown(err) {
		return status, err
	}
	if globs := h.Profile.NameGlobs; len(globs) > 0 {
		// Without a sandbox they would not be kept (SPEC 26, 27).
		return status, &sandbox.Refusal{Reason: sandbox.ReasonNameGlobs, Detail: "the run needs files to be unwritable by name: " + sandbox.Texts(globs) + ", and there is no sandbox", Err: err}
	}
	ctx, cancel := h.signals.context()
	defer cancel()
	probe := sandbox.Check(ctx, starting, nil)
	if probe.Available || !mayStepDown(&sandbox.Refusal{Reason: probe.Reason}) {
		return status, err
	}
	h.say.warn("%s", backend.StartLine(false, false, probe.Note, probe.Hint))
	h.handle.Backend = string(backend.None)
	return h.unconfined(false)
}

// native runs the command in the system's own sandbox.
func (h *hostRun) native() (sandbox.Status, error) {
	l := h.launch()
	if err := h.connect(&l.options); err != nil {
		return sandbox.Status{}, err
	}
	r, err := l.start()
	h.streams.handOver()
	if err != nil {
		_ = h.drain() // of nothing: the pipes end
		return sandbox.Status{}, err
	}
	defer r.ports.Close()
	h.handle.Details["cwd"] = r.Facts().Dir
	if p, ok := any(r.Process).(interface{ PID() int }); ok {
		h.handle.Details["pid"] = p.PID()
	}
	h.handle.Details["http"], h.handle.Details["socks"] = proxyAddr(r.Process, 0), proxyAddr(r.Process, 1)
	watched := r.Facts().Watch(h.say.change)
	status, err := h.attend(r.Process, r.keeper, r.lent)
	watched()
	h.changed(r.Facts().Inspect())
	return status, err
}

// maxTold bounds how many changes the last event has: whoever reads lines has a bound.
const maxTold = 100

// changed tells what the run made or replaced, and tools outside act on: people on stderr,
// the host with the last event.
func (h *hostRun) changed(changes []sandbox.Change) {
	if len(changes) == 0 {
		return
	}
	h.say.mu.Lock()
	defer h.say.mu.Unlock()
	printChanges(h.say.w, changes)
	told := make([]changeLine, 0, min(len(changes), maxTold))
	for _, c := range changes[:cap(told)] {
		told = append(told, changeLine{clipped(c.Path), clipped(c.What), c.Cure})
	}
	h.handle.Details["changes"] = told
}

// launch is the run as postern run would make it.
func (h *hostRun) launch() *launch {
	return &launch{
		request: &request{
			// Quiet: a host reads events, and no summary.
			settings: &settings{Quiet: true, Environment: environ.Strip, AllProxy: environ.AllSOCKS, Env: h.Env, DNS: h.DNS},
			ID:       h.Spec.SessionID, Argv: h.Argv, given: h.Profile, open: &h.Session,
		},
		say: h.say, signals: h.signals, options: starting,
	}
}

// connect puts pipes between the command and whoever reads it, where somebody wants to
// know what it says. What looks for violations does so only here: without a sandbox no
// call is denied by one (SPEC 97).
func (h *hostRun) connect(o *sandbox.Options) error {
	sink := violation.NewSink(h.violated)
	observe, end := lookFor(o, sink)
	h.looking = append(h.looking, end, sink.Close)
	if h.events == nil || h.Streams == streamsPlain {
		o.Observe = observe
		return nil
	}
	var err error
	if o.Stdout, err = h.streams.open(tell(h.events, spec.Stdout), nil); err != nil {
		return err
	}
	o.Stderr, err = h.streams.open(tell(h.events, spec.Stderr), observe)
	return err
}

func (h *hostRun) violated(r violation.Report) {
	v := r.Violation
	fields := map[string]any{"action": clipped(v.Action), "target": clipped(v.Target), "raw": clipped(v.Raw), "count": r.Count}
	for name, text := range map[string]string{"rule": v.Rule, "source": v.Source, "comm": v.Comm} {
		if text != "" {
			fields[name] = clipped(text)
		}
	}
	h.whenReady(func() {
		_ = h.events.Write(spec.Event{Type: spec.Violated, Violation: &v, Count: r.Count})
		h.report(lease.EventViolation, fields)
	})
}

// maxEarly is how many words of a command that runs already wait for the word that it
// does.
const maxEarly = 64

// whenReady says something behind the word that the command runs.
func (h *hostRun) whenReady(say func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ready:
		say()
	case len(h.early) < maxEarly:
		h.early = append(h.early, say)
	}
}

// nowReady says that the command runs, and what has waited for that.
func (h *hostRun) nowReady() {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.events.Write(spec.Event{Type: spec.Ready, Handle: h.handle})
	h.report(lease.EventReady, map[string]any{"backend": h.handle.Backend, "cwd": h.handle.Details["cwd"]})
	for _, say := range h.early {
		say()
	}
	h.ready, h.early = true, nil
	h.streams.release()
}

// report tells the appliance, and by it those who follow the session there.
func (h *hostRun) report(kind string, fields map[string]any) {
	if h.keeper != nil {
		h.keeper.report(lease.Event{Time: time.Now(), Type: kind, Fields: fields})
	}
}

// exited reports how the command ended, and hears what the appliance has still to say.
func (h *hostRun) exited(status sandbox.Status) {
	if h.keeper != nil {
		h.keeper.exited(lease.Event{
			Time: time.Now(), Type: lease.EventExit,
			Fields: map[string]any{"exitCode": status.ExitCode(), "signal": int(status.Signal)},
		})
	}
}

// clipped keeps a report small: what the command says may be long.
func clipped(text string) string {
	const limit = 1 << 10
	if len(text) > limit {
		text = text[:limit] + "…"
	}
	return strings.ToValidUTF8(text, "?")
}

// applianceSocket is where listeners are lent.
func applianceSocket(runDir string) string { return filepath.Join(runDir, leaseSocket) }
