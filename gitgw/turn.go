package gitgw

import (
	"context"
	"errors"
	"time"
)

// inspections are the ones that the gateway counts in.
func (g *Gateway) inspections() *Inspections {
	if g.Inspections != nil {
		return g.Inspections
	}
	return &g.counted
}

// stopped is why a look into a push is given up that found nothing: no seat came, or the
// push itself is over. It is no verdict on what the push holds.
type stopped struct{ error }

func (s *stopped) Unwrap() error { return s.error }

// turn waits for a seat to look into the push's pack, and says so. An error is a *stopped.
func (p *push) turn(ctx context.Context) error {
	again := p.seat != nil
	p.seat = p.g.inspections().queue(p.caller.Session, p.limits.Looks, p.limits.LooksRun)
	select {
	case <-p.seat.ready:
		return nil
	default:
	}
	wait := time.NewTimer(p.limits.LookWait)
	defer wait.Stop()
	tick := time.NewTicker(p.limits.Progress)
	defer tick.Stop()
	for {
		// A look that goes on is mostly back at once, many times over.
		if !again {
			// The lines are also how a dead client is noticed.
			p.rep.progress(p.g.notice("waiting until other pushes have been looked into") + "\n")
			if p.rep.flush() != nil {
				return &stopped{p.whyGone()}
			}
		}
		again = false
		select {
		case <-p.seat.ready:
			return nil
		case <-tick.C:
		case <-wait.C:
			return &stopped{&coded{CodeLooksBusy, errors.New("other pushes are being looked into, and this one had no turn within " + shortTime(p.limits.LookWait))}}
		case <-ctx.Done():
			return &stopped{p.whyOver(ctx)}
		}
	}
}

// apart gives the push's seat to others while f waits for the forge, and then waits for
// another one.
func (p *push) apart(ctx context.Context, f func() error) error {
	if p.seat == nil {
		return f()
	}
	p.seat.leave()
	err := f()
	if stop := p.turn(ctx); stop != nil {
		return stop
	}
	return err
}

// giveUp ends a push whose look was stopped, and reports whether the connection is sound.
func (p *push) giveUp(stop *stopped) (sound bool) {
	switch {
	case errors.Is(stop, errTooLong):
		return p.tooLong()
	case errors.Is(stop, errClientGone), errors.Is(stop, errRunEnded):
		p.end(Aborted, stop.Error())
		return false
	}
	return p.fail(Refused, codeOf(stop, CodeLookFailed), p.g.notice(stop.Error()))
}
