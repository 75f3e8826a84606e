package gitgw

import (
	"context"
	"errors"
	"fmt"
)

// errTooLong is the cause of a context's end that Limits.Total has ended.
var errTooLong = fmt.Errorf("it took too long: %w", context.DeadlineExceeded)

// within bounds what is done for a push to Limits.Total.
func (l Limits) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, l.Total, errTooLong)
}

// tookLong says it to people, what being the push or a part of it.
func (l Limits) tookLong(what string) string {
	return what + " took longer than " + shortTime(l.Total)
}

// tooLong refuses a push of which the forge lacks at least the end. Who has sent for so
// long has as long as one that stalls to send the rest, and is then answered or cut.
func (p *push) tooLong() (sound bool) {
	p.body.hurry(p.limits.Stall)
	return p.fail(Refused, CodeTooLong, p.g.notice(p.limits.tookLong("the push")))
}

// whyOver says why the context of a push's look has ended.
func (p *push) whyOver(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errTooLong) {
		return errTooLong
	}
	return p.whyGone()
}
