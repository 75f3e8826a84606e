package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// dnsRun is one case that is being replayed.
type dnsRun struct {
	*dnsCase
	w       *dnsWorld
	asker   *sandbox // who asks the question
	session string   // its id
	logFrom int64    // where the log was when the case began
	faults  []string

	warmed time.Time // when the first of what came before was asked
}

func (r *dnsRun) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// replay runs one case and judges it.
func (w *dnsWorld) replay(c *dnsCase, policies map[string]dnsPolicy) result {
	select {
	case <-w.app.ended:
		return result{failed: true, got: w.app.died().Error()}
	default:
	}
	r := &dnsRun{dnsCase: c, w: w}
	if err := r.run(policies); err != nil {
		return result{failed: true, got: err.Error()}
	}
	return result{failed: len(r.faults) > 0, got: strings.Join(r.faults, "; ")}
}

func (r *dnsRun) run(policies map[string]dnsPolicy) (err error) {
	r.w.say(nil)
	r.w.forget()
	if r.logFrom, err = r.w.logSize(); err != nil {
		return err
	}
	open := func(name string) (*sandbox, error) {
		p, ok := policies[name]
		if !ok {
			return nil, fmt.Errorf("there is no session %q", name)
		}
		r.session = p.name
		return r.w.open(p, r.Opts.FakeIP)
	}
	first, err := open("A")
	if err != nil {
		return err
	}
	defer first.close()
	r.asker = first
	if err := r.before(first); err != nil {
		return err
	}
	switch r.Session {
	case "", "A":
	case "ended":
		if err := r.w.app.close(r.session); err != nil {
			return fmt.Errorf("end the session: %w", err)
		}
	default:
		// The first session has asked before; nothing of it may show here.
		r.w.say(r.Upstream.script)
		if err := r.ask(r.Query); err != nil {
			return err
		}
		if r.asker, err = open(r.Session); err != nil {
			return err
		}
		defer r.asker.close()
	}
	time.Sleep(time.Duration(r.ClockS) * time.Second)
	if r.Upstream != nil {
		r.w.say(r.Upstream.script)
	} else if r.BeforeUnique == 0 {
		r.w.say(nil)
	}
	r.w.forget()
	if err := r.w.watch.Forget(); err != nil {
		return err
	}
	m, err := r.question()
	if err != nil {
		return err
	}
	r.checkUpstream()
	if r.Expect.Rcode == "DROP" {
		if m != nil {
			r.fault("a reply with %s", dns.RcodeToString[m.Rcode])
		}
		return nil
	}
	if m == nil {
		r.fault("no reply")
		return nil
	}
	r.checkReply(m)
	if err := r.checkPins(); err != nil {
		return err
	}
	r.checkRecords()
	return r.checkProxy()
}

// ask sends a query of the case as it says, for what it leaves behind.
func (r *dnsRun) ask(q *dnsQuery) error {
	raw, err := q.wire(4711)
	if err != nil {
		return err
	}
	_, err = r.asker.ask(raw, q.Transport == "tcp", false)
	return err
}

// before does what comes before the question.
func (r *dnsRun) before(s *sandbox) error {
	r.warmed = time.Now()
	for _, b := range r.Before {
		r.w.say(b.Upstream.script)
		if err := r.ask(&b.Query); err != nil {
			return err
		}
	}
	r.w.say(answerAll)
	for i := range r.BeforeUnique {
		if err := warmUp(s, fmt.Sprintf("n%d.example.com", i+1)); err != nil {
			return err
		}
	}
	for i, left := 0, r.BeforeBytes; left > 0; i++ {
		// Of more than a label can hold, two labels.
		sub := fmt.Sprintf("%0*d", min(left, 50), i)
		if left > 50 {
			sub += "." + strings.Repeat("f", min(left, 100)-51)
		}
		left -= len(sub)
		if err := warmUp(s, sub+".example.com"); err != nil {
			return err
		}
	}
	if r.BeforeUnique+r.BeforeBytes > 0 {
		time.Sleep(time.Second) // the question is not to be refused for its rate
	}
	return nil
}

// warmUp asks for a name, and again when it is too early.
func warmUp(s *sandbox, name string) error {
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(25 * time.Millisecond) {
		m, err := s.lookUp(name, dns.TypeA)
		if err != nil {
			return err
		}
		if m.Rcode != dns.RcodeRefused {
			return nil
		}
	}
	return fmt.Errorf("ask for %s before: refused for as long as %s", name, patience)
}

// question asks what the case is about, and gives the reply, nil for none.
func (r *dnsRun) question() (*dns.Msg, error) {
	switch {
	case r.BeforeRate > 0:
		return r.tooFast()
	case r.Repeat > 1:
		return r.again()
	}
	raw, err := r.Query.wire(4711)
	if err != nil {
		return nil, err
	}
	drop := r.Expect.Rcode == "DROP"
	m, err := r.asker.ask(raw, r.Query.Transport == "tcp", drop)
	if drop && errors.Is(err, errDropped) {
		return nil, nil
	}
	return m, err
}

// again asks the same often: every reply is to be the expected one, the last is
// looked at.
func (r *dnsRun) again() (last *dns.Msg, err error) {
	others := 0
	err = r.asker.flood(r.Query, r.Repeat, func(m *dns.Msg) {
		if dns.RcodeToString[m.Rcode] != r.Expect.Rcode {
			others++
		}
		last = m
	})
	if others > 0 {
		r.fault("%d of %d replies are others", others, r.Repeat)
	}
	return last, err
}

// tooFast asks more often than a session may, until it is told so. What is answered
// is bounded from both sides, whatever the machine makes of the speed: it is the burst
// at least, and at most what the rate has given since besides. (Replies come in any
// order.)
func (r *dnsRun) tooFast() (*dns.Msg, error) {
	var refused *dns.Msg
	answered := 0
	begin := time.Now()
	for round := 0; round < 50 && refused == nil; round++ {
		err := r.asker.flood(r.Query, r.BeforeRate+1, func(m *dns.Msg) {
			if m.Rcode == dns.RcodeSuccess {
				answered++
			} else {
				refused = m
			}
		})
		if err != nil {
			return nil, err
		}
	}
	if most := r.Opts.Burst + 1 + int(time.Since(begin).Seconds()*float64(r.Opts.QPS)); answered > most {
		r.fault("%d queries were answered, and the rate gives %d", answered, most)
	}
	if answered < r.Opts.Burst {
		r.fault("%d queries were answered, and the burst is %d", answered, r.Opts.Burst)
	}
	if refused == nil {
		r.fault("%d queries were answered, and none refused", answered)
		return nil, nil
	}
	// The first of them was looked up.
	r.w.forget()
	return refused, nil
}
