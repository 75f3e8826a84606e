package session

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"time"

	"postern/caddy-modules/session/lease"
)

// acceptPause is the pause after an accept that failed for want of something,
// descriptors mostly.
const acceptPause = 50 * time.Millisecond

// serveLeases takes launchers' connections until the door is shut.
func (r *Registry) serveLeases(d *doors) {
	for {
		c, err := d.lease.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			r.log.LogAttrs(r.ctx, slog.LevelError, "accept lease", slog.Any("error", err))
			time.Sleep(acceptPause)
			continue
		case !d.enter(c):
			_ = c.Close()
			continue
		}
		r.tasks.Go(func() {
			defer d.leave(c)
			r.lease(c)
		})
	}
}

// lease is one launcher's connection, from its hello to its end.
func (r *Registry) lease(c *net.UnixConn) {
	req, err := (&lease.Acceptor{Credentials: r.credentials}).Accept(c)
	if err != nil {
		r.log.LogAttrs(r.ctx, slog.LevelWarn, "lease refused", slog.Any("error", err))
		return
	}
	defer req.Close()

	// A launcher that goes while its session is being opened stops that.
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	go func() {
		select {
		case <-req.Closed():
			cancel()
		case <-ctx.Done():
		}
	}()

	// Subscribed before the session opens, so that the launcher misses nothing;
	// sent after the answer, which has to come first.
	spec := req.Hello.Spec
	events, told := r.hub.subscribe(spec.ID, leaseQueue), make(chan struct{})
	s, err := r.open(ctx, order{
		kind: kindLease, spec: spec, owner: req.PeerUID, pid: req.PeerPID, holder: lease.ProcessOf(req.PeerPID),
		pair: &req.Pair, more: req.More, resume: req.Hello.Resume, login: req.Hello.Login, events: events, told: told,
		hostPorts: req.Hello.HostPorts,
	})
	if err != nil {
		events.cancel()
		var refusal *lease.Error
		if !errors.As(err, &refusal) {
			refusal = unavailable(err)
		}
		r.log.LogAttrs(r.ctx, slog.LevelWarn, "lease refused", slog.String("session", spec.ID), slog.String("code", refusal.Code), slog.String("error", refusal.Message))
		_ = req.Refuse(refusal.Code, refusal.Message) // he may be gone
		if refusal.Code == lease.CodeEnded {
			r.disown(req.Hello.Resume, r.log)
		}
		return
	}
	if err := req.Reply(s.answer()); err != nil {
		close(told)
		s.end(endDeaf)
		return
	}
	if err := s.meet(req); err != nil {
		close(told)
		_ = r.Close(spec.ID) // for good: it would be lent again as it was
		return
	}
	go func() {
		defer close(told)
		// The last word has no place in the queue, where it could get lost: the
		// launcher obeys it.
		if s.events.each(nil, sendAllBut(notSentBack(), req)) == nil {
			_ = req.Send(s.last)
		}
	}()
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		for e := range req.Reports() {
			e.Session = spec.ID
			if e.Type == lease.EventExit {
				s.lastWords()
			}
			r.Publish(e)
		}
	}()
	defer func() {
		_ = req.Close()
		<-reported
	}()
	select {
	case <-req.Closed():
		<-reported // its last words come before the session's
		s.end(endLeft)
	case <-s.done:
		// Closed here: let the launcher read why, if it reads.
	}
	<-told
}

// lastFor bounds the wait, at the end of a command, for the records of its pushes.
const lastFor = 250 * time.Millisecond

// lastWords has everything reported that was refused to a command which has ended. Its
// exit goes back to the launcher behind that: who has heard it has heard all.
func (s *session) lastWords() {
	s.work.rest(lastFor)
	s.denials.flush()
}

// notSentBack are the kinds of events that a launcher is not sent: what it reported
// itself, but for exit, and session_close, which may also be that of an earlier session
// with the id.
func notSentBack() []string {
	kinds := slices.DeleteFunc(lease.Reported(), func(kind string) bool { return kind == lease.EventExit })
	return append(kinds, lease.EventSessionClose)
}

// sendAllBut sends events of all kinds but some.
func sendAllBut(kinds []string, req *lease.Request) func(lease.Event) error {
	return func(e lease.Event) error {
		if slices.Contains(kinds, e.Type) {
			return nil
		}
		return req.Send(e)
	}
}
