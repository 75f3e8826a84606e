package gitgw

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// errClientGone ends a push whose client went away while it waited.
var errClientGone = errors.New("the client went away")

// ask puts the question and waits, showing the client that it waits: a line at
// once and then every Limits.Progress. The lines are also how a dead client is
// noticed, since nothing is read from it meanwhile; TCP holds its pack back for
// free. clientCtx ends when the server itself sees the connection end.
func (p *push) ask(clientCtx context.Context) (Answer, error) {
	limits := p.limits
	q := p.question(limits.Ask)
	p.record.Question = q.ID
	ctx, cancel := context.WithTimeout(clientCtx, limits.Ask)
	defer cancel()

	type result struct {
		answer Answer
		err    error
	}
	// Buffered: an approver that ignores its context must not hold the push.
	answered := make(chan result, 1)
	approver := p.g.Approver
	go func() {
		a, err := approver.Ask(ctx, q)
		answered <- result{a, err}
	}()

	// The first line goes out before anything else happens: a person who sees
	// git stand still must know why within the second.
	started := time.Now()
	tick := time.NewTicker(limits.Progress)
	defer tick.Stop()
	p.rep.progress(p.g.notice("waiting for approval of "+p.describe(q)) + "\n")
	if p.rep.flush() != nil {
		return Answer{}, p.whyGone()
	}
	for {
		select {
		case r := <-answered:
			// An approver that noticed the end of its context says so in its own
			// words; ours say which end it was.
			if r.err != nil && ctx.Err() != nil {
				return Answer{}, p.waited(clientCtx, limits.Ask)
			}
			return r.answer, r.err
		case <-tick.C:
			// The first write after the client's death succeeds, as the network has
			// not answered yet; the second fails.
			p.rep.progress(p.g.notice(fmt.Sprintf("waiting for approval (%s)", time.Since(started).Round(time.Second))) + "\n")
			if p.rep.flush() != nil {
				return Answer{}, p.whyGone()
			}
		case <-ctx.Done():
			return Answer{}, p.waited(clientCtx, limits.Ask)
		}
	}
}

// waited says which of its two ends a wait came to.
func (p *push) waited(clientCtx context.Context, limit time.Duration) error {
	if clientCtx.Err() != nil {
		return p.whyGone()
	}
	return fmt.Errorf("no answer within %s", limit)
}

// question describes the push to whoever decides.
func (p *push) question(limit time.Duration) Question {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	q := Question{
		ID: hex.EncodeToString(id[:]), Time: time.Now(),
		Session: p.caller.Session, Agent: p.caller.Agent, Workspace: p.caller.Workspace,
		Repository: p.up.repo, Options: p.head.Options,
	}
	q.Deadline = q.Time.Add(limit)
	// All refs, not only those that need a yes: whoever allows one of them lets
	// the others go with it.
	for _, r := range p.record.Refs {
		q.Refs = append(q.Refs, r.RefVerdict)
	}
	return q
}

// describe names what waits, in one short line.
func (p *push) describe(q Question) string {
	var asked []string
	for _, r := range q.Refs {
		if r.Verdict == Ask {
			asked = append(asked, doing(Update{Ref: r.Ref, Action: r.Action}))
		}
	}
	const most = 3
	if len(asked) > most {
		asked = append(asked[:most], fmt.Sprintf("%d more", len(asked)-most))
	}
	return strings.Join(asked, ", ") + " (question " + q.ID + ")"
}
