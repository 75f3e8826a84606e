package gitgw

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errRunEnded is why something was aborted whose run has ended.
var errRunEnded = errors.New("this run has ended")

// ended reports whether the run has.
func (c Caller) ended() bool {
	select {
	case <-c.Ended: // never, when it is nil
		return true
	default:
		return false
	}
}

// hold makes the run's end wait for release.
func (c Caller) hold() (release func(), ok bool) {
	switch {
	case c.ended():
		return func() {}, false
	case c.Hold == nil:
		return func() {}, true
	}
	return c.Hold()
}

// begin holds the run and binds a context to it, with errRunEnded as the cause of
// its end. ok is false when the run has ended.
func (c Caller) begin(ctx context.Context) (bound context.Context, release func(), ok bool) {
	let, ok := c.hold()
	if !ok {
		return ctx, func() {}, false
	}
	if c.Ended == nil {
		return ctx, let, true
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-c.Ended:
			cancel(errRunEnded)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		let()
	}, true
}

// whyGone says who went away, where a push's context has ended or its client
// cannot be written to. A run takes its clients along, so it is asked first.
func (p *push) whyGone() error {
	if p.caller.ended() {
		return errRunEnded
	}
	return errClientGone
}

// bind aborts the reading of the client's body when the run ends, until unbind is
// called.
func (p *push) bind() (unbind func()) {
	if p.caller.Ended == nil {
		return func() {}
	}
	over := make(chan struct{})
	go func() {
		select {
		case <-p.caller.Ended:
			p.body.abort()
		case <-over:
		}
	}()
	return func() { close(over) }
}

// endWithRun binds the request to the forge to the run: as long as the forge lacks
// a byte of the push it is aborted with the run, and the forge changes nothing.
// After that aborting undoes nothing either; the forge is given a moment to
// report, and then the token goes.
func (p *push) endWithRun(ctx context.Context, up *upload) (bound context.Context, part func()) {
	ctx, cut := context.WithCancelCause(ctx)
	if p.caller.Ended == nil {
		return ctx, func() { cut(context.Canceled) }
	}
	over := make(chan struct{})
	go func() {
		select {
		case <-over:
			return
		case <-p.caller.Ended:
		}
		if up.whole.Load() {
			grace := time.NewTimer(p.limits.Grace)
			defer grace.Stop()
			select {
			case <-over:
				return
			case <-grace.C:
			}
		}
		cut(errRunEnded)
	}()
	return ctx, sync.OnceFunc(func() {
		close(over)
		cut(context.Canceled)
	})
}

// cutShort notes how a push stands whose run has ended under way. Nobody is left
// to be answered.
func (p *push) cutShort(up *upload) bool {
	if up.whole.Load() {
		p.end(Unknown, errRunEnded.Error()+" before "+p.up.forge.Host+" reported; fetch to see whether the push arrived")
	} else {
		p.end(Aborted, errRunEnded.Error())
	}
	return false
}
