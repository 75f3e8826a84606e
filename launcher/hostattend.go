package main

import (
	"context"
	"errors"
	"sync"
	"syscall"

	"postern/caddy-modules/session/lease"
	"postern/launcher/sandbox"
	"postern/launcher/spec"
)

// drain ends when everything the command said has been passed on and looked at.
func (h *hostRun) drain() error {
	lost := h.streams.wait()
	for _, end := range h.looking {
		end()
	}
	h.looking = nil
	return lost
}

// attend stays with the command until it and everything of it has ended.
func (h *hostRun) attend(p process, k *keeper, lent *lease.Lease) (sandbox.Status, error) {
	stop := &stopper{to: p}
	stop.watch(h.Timeout)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var kept sync.WaitGroup
	if k != nil {
		k.event = h.appliance
		k.ended = func() { stop.stop(spec.Stopped, stopGrace) }
		k.hold(lent)
		h.keeper = k
	}
	_ = h.handle.To(spec.Warm)
	_ = h.handle.To(spec.Active)
	h.nowReady()
	if k != nil {
		kept.Go(func() { k.keep(ctx, lent) })
	}
	h.signals.forward(func(sig syscall.Signal, group bool) {
		if sig == syscall.SIGTERM {
			stop.stop(spec.Stopped, stopGrace)
			return
		}
		_ = p.Signal(sig, group)
	}, nil)

	status, err := p.Wait()
	status, err = h.verdict(status, stop.ended(), err, h.drain())
	if err == nil {
		h.exited(status)
	}
	cancel()
	kept.Wait()
	return status, err
}

// appliance passes on what the appliance says: what rules refused, and pushes.
func (h *hostRun) appliance(e lease.Event) {
	switch e.Type {
	case lease.EventDenied, lease.EventPush:
		_ = h.events.Write(spec.Event{Type: spec.Kind(e.Type), Time: e.Time, Fields: e.Fields})
	}
}

// verdict says how the command ended, and why. err is of the waiting for it, lost of its
// output.
func (h *hostRun) verdict(status sandbox.Status, cause spec.Cause, err, lost error) (sandbox.Status, error) {
	if output, ok := errors.AsType[*sandbox.OutputError](err); ok {
		err, lost = nil, errors.Join(lost, output)
	}
	killed := sandbox.Status{Signal: syscall.SIGKILL}
	if cause == "" && (err != nil || status.ExitCode() == killed.ExitCode()) {
		// A KILL that is not ours. Who sent it is known where the kernel counts.
		if after, ok := oomKills("/"); ok && h.oomSeen && after > h.oom {
			cause = spec.OOM
		}
	}
	if cause != "" {
		_ = h.events.Write(spec.Event{Type: spec.Killed, Reason: cause})
		h.report(lease.EventKilled, map[string]any{"reason": cause})
		if err != nil {
			// It was killed with PID 1 of its sandbox, which would have told.
			status, err = killed, nil
		}
	}
	if cause == spec.Timeout {
		status = sandbox.Status{Code: exitTimeout}
	}
	if lost != nil {
		h.say.warn("not all output could be written: %v", lost)
		if status.ExitCode() == 0 {
			status.Code = 1
		}
	}
	return status, err
}
