package dnsguard

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// upstream is one resolver that may be asked. Its exchange makes one try within
// the context's deadline and returns only a reply that matches the question.
type upstream interface {
	exchange(ctx context.Context, name string, qtype uint16) (*dns.Msg, error)
	String() string
	close()
}

// errUpstream is the kind of every failure to get an answer, as against an
// answer that is then refused.
var errUpstream = errors.New("no answer from any upstream resolver")

// exchanger asks upstreams in turn within one budget of time.
type exchanger struct {
	upstreams func() ([]upstream, error)
	tries     int
	try       time.Duration
	total     time.Duration

	// preferred is the upstream that answered last. Beginning with it spares
	// every later query the wait for one that is dead.
	preferred atomic.Uint32
}

// exchange asks until one upstream gives a usable answer: NOERROR or NXDOMAIN.
// Every upstream is tried up to the configured number of times; one that
// answered with a failure of its own (SERVFAIL, REFUSED …) is not asked again,
// since the same question gets the same answer. The returned string names the
// upstream that answered.
func (x *exchanger) exchange(ctx context.Context, name string, qtype uint16) (*dns.Msg, string, error) {
	ups, err := x.upstreams()
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", errUpstream, err)
	}
	ctx, cancel := context.WithTimeout(ctx, x.total)
	defer cancel()
	start := int(x.preferred.Load())
	failed := make([]bool, len(ups))
	last := errors.New("none is configured")
	for range x.tries {
		for i := range ups {
			at := (start + i) % len(ups)
			if failed[at] {
				continue
			}
			if ctx.Err() != nil {
				return nil, "", fmt.Errorf("%w within %v: %w", errUpstream, x.total, last)
			}
			reply, err := x.once(ctx, ups[at], name, qtype)
			switch {
			case err != nil:
				last = fmt.Errorf("ask %s: %w", ups[at], err)
			case reply.Rcode == dns.RcodeSuccess, reply.Rcode == dns.RcodeNameError:
				x.preferred.Store(uint32(at)) //nolint:gosec // an index into a short list
				return reply, ups[at].String(), nil
			default:
				failed[at] = true
				last = fmt.Errorf("ask %s: it answered %s", ups[at], rcodeText(reply.Rcode))
			}
		}
	}
	return nil, "", fmt.Errorf("%w: %w", errUpstream, last)
}

func (x *exchanger) once(ctx context.Context, up upstream, name string, qtype uint16) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, x.try)
	defer cancel()
	return up.exchange(ctx, name, qtype)
}

func rcodeText(rcode int) string {
	if text, ok := dns.RcodeToString[rcode]; ok {
		return text
	}
	return fmt.Sprintf("RCODE%d", rcode)
}
