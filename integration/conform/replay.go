package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"postern/integration/netlab"
)

// caseTimeout bounds one case, whatever it waits for.
const caseTimeout = 25 * time.Second

// Timings that a case may ask for.
const (
	timingRevoke   word = "revoke_during_tunnel"
	timingStall    word = "stall"
	timingIdle     word = "idle"
	timingPacket   word = "one_packet"
	timingContinue word = "expect_continue"
	timingBytes    word = "byte_by_byte"
)

// outcome is what the appliance answered, and what a case's way of asking found
// out besides. observe adds what it did.
type outcome struct {
	verdicts  []verdict
	how       []string // in words, one for each verdict
	tunnel    bool     // a tunnel was open when the refusal came: dials are no leak, bytes are
	unreached bool     // allowed, and not to be reached: no dial is owed
	sent      bool     // the head was whole, so that a stalling body may have a dial
	faults    []string // what should not have been, whatever the verdict
}

func (o *outcome) add(v verdict, format string, args ...any) {
	o.verdicts = append(o.verdicts, v)
	o.how = append(o.how, fmt.Sprintf(format, args...))
}

func (o *outcome) fault(format string, args ...any) {
	if f := fmt.Sprintf(format, args...); !slices.Contains(o.faults, f) {
		o.faults = append(o.faults, f)
	}
}

// todo says why a case is not replayed, or nothing.
func (c *testCase) todo() string {
	switch c.Proto {
	case "match", "connect", "http", "socks5", "socks4", "socks4a":
	case "dns":
		if _, err := parseDNS(c.Input); errors.Is(err, errRemark) {
			return "dns " + err.Error()
		}
	default:
		return "proto " + c.Proto
	}
	if !c.Timing.oneOf("", timingRevoke, timingStall, timingIdle, timingPacket, timingContinue, timingBytes) {
		return "timing " + string(c.Timing)
	}
	if _, ok := planHello(c.TLSVariant, "x"); !ok {
		return "tls_variant " + string(c.TLSVariant)
	}
	return ""
}

// replay runs one case and judges it.
func (w *world) replay(c *testCase) result {
	if c.bad != nil {
		return result{failed: true, got: c.bad.Error()}
	}
	if why := c.todo(); why != "" {
		return result{todo: why}
	}
	ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
	defer cancel()
	if c.Proto == "dns" {
		o, err := w.askDNS(ctx, c)
		if err != nil {
			return result{failed: true, got: err.Error()}
		}
		return c.judge(o)
	}
	if why, barred := w.barred[c]; barred {
		// Refused at load: nothing can have gone anywhere.
		return c.judge(&outcome{verdicts: []verdict{fault}, how: []string{"the list is refused: " + why}})
	}
	o, err := w.ask(ctx, c)
	if err != nil {
		return result{failed: true, got: err.Error()}
	}
	return c.judge(o)
}

// ask opens the case's session, asks in the case's way, and looks at what
// happened.
func (w *world) ask(ctx context.Context, c *testCase) (*outcome, error) {
	if err := w.prepare(c); err != nil {
		return nil, err
	}
	defer w.cleanUp(c)
	var rules []string
	if w.doors[c] == doorSession {
		rules = c.sessionRules()
	}
	httpPort, socksPort := c.ports()
	info, err := w.app.open(c.sessionID(), c.policyName(), rules, httpPort, socksPort)
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	defer func() { _ = w.app.close(c.sessionID()) }()
	o := new(outcome)
	switch c.Proto {
	case "match":
		err = w.askMatch(ctx, c, info, o)
	case "connect", "http":
		err = w.askHTTP(ctx, c, info, o)
	case "socks5":
		err = w.askSOCKS(ctx, c, info, o)
	default:
		err = w.askSOCKS4(ctx, c, info, o)
	}
	if err != nil {
		return nil, err
	}
	// What the appliance may still have in hand after its answer.
	time.Sleep(3 * time.Millisecond)
	return o, w.observe(c, info, o)
}

// observe adds what the appliance did to what it said.
func (w *world) observe(c *testCase, before sessionInfo, o *outcome) error {
	dials, err := w.dialled()
	if err != nil {
		return err
	}
	queries := w.dns.Queries()
	var names []string
	for _, q := range queries {
		names = append(names, q.String())
	}
	last := o.verdicts[len(o.verdicts)-1]
	switch {
	case slices.Contains(o.verdicts, allow):
		c.checkReach(dials, queries, o)
	case last == deny && o.tunnel, last == fault && c.Timing == timingStall && o.sent:
		// The tunnel was open before its first bytes could be judged, or the
		// request had begun before it stalled. Nothing of a tunnel may go on.
		if n := w.origins.payload(); o.tunnel && n > 0 {
			o.fault("%d bytes reached an origin", n)
		}
	default:
		if len(dials) > 0 {
			o.fault("it dialled %s", dials[0])
		}
		if len(queries) > 0 && (last == fault || len(c.Resolve)+len(c.ResolveSeq) == 0) {
			o.fault("it looked up %s", strings.Join(names, ", "))
		}
	}
	if n := c.ExpectDNSQueries; n != nil && *n != len(queries) && *n != lookups(names) {
		o.fault("it looked up %d names (%s), not %d", len(queries), strings.Join(names, ", "), *n)
	}
	if slices.Contains(o.verdicts, deny) {
		after, err := w.app.session(c.sessionID())
		if err != nil {
			return fmt.Errorf("look at the session: %w", err)
		}
		if after.Denied == before.Denied {
			o.fault("there is no audit record")
		}
	}
	return nil
}

// lookups counts names, each of which is asked for two types.
func lookups(queries []string) int {
	seen := map[string]bool{}
	for _, q := range queries {
		name, _, _ := strings.Cut(q, " ")
		seen[name] = true
	}
	return len(seen)
}

// checkReach wants an allowed request to lead where its name's answers or its
// literal point, and nowhere else.
func (c *testCase) checkReach(dials []netlab.Dial, queries []netlab.Query, o *outcome) {
	if len(dials) == 0 && !o.unreached {
		o.fault("nothing was dialled")
	}
	targets := c.targets()
	if len(targets) == 0 {
		return // the target could not be read; that it was relayed is all there is to say
	}
	var addrs []netip.Addr
	var names []string
	for i, t := range targets {
		if len(targets) == len(c.want()) && c.want()[i] != allow && c.Timing != timingRevoke {
			continue
		}
		if a, err := netip.ParseAddr(t.host); err == nil {
			addrs = append(addrs, a.WithZone("").Unmap())
			continue
		}
		a := c.firstAnswer(t.name())
		addrs = append(addrs, a.Addrs...)
		names = append(names, t.name(), canonical(a.CNAME))
	}
	for _, d := range dials {
		if !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Unmap() == d.Dst.Addr().Unmap() }) {
			o.fault("it dialled %s", d)
		}
	}
	for _, q := range queries {
		if !slices.Contains(names, canonical(q.Name)) {
			o.fault("it looked up %s", q)
		}
	}
}

// firstAnswer is what a name answers to the first lookup. A later one must not
// matter: what was vetted is what is dialled.
func (c *testCase) firstAnswer(name string) netlab.Answer {
	for _, key := range []string{name, ""} {
		if steps := c.ResolveSeq[key]; len(steps) > 0 {
			return steps[0]
		}
	}
	if a, ok := c.Resolve[name]; ok {
		return a
	}
	return netlab.Answer{Addrs: []netip.Addr{publicAddr(name)}}
}

// judge compares.
func (c *testCase) judge(o *outcome) result {
	want := c.want()
	same := slices.Equal(o.verdicts, want)
	if same && len(o.faults) == 0 {
		return result{}
	}
	var b strings.Builder
	for i, v := range o.verdicts {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(v))
		if !same && o.how[i] != "" {
			b.WriteString(" (" + o.how[i] + ")")
		}
	}
	if len(o.verdicts) == 0 {
		b.WriteString("nothing")
	}
	if len(o.faults) > 0 {
		b.WriteString(", but " + strings.Join(o.faults, "; "))
	}
	return result{failed: true, got: b.String()}
}

// wanted is the expectation in words.
func (c *testCase) wanted() string {
	if c.bad != nil {
		return "a case"
	}
	var words []string
	for _, v := range c.want() {
		words = append(words, string(v))
	}
	return strings.Join(words, ", ")
}

// oneLine keeps a report to its line, and hostile bytes out of the terminal.
func oneLine(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 }), " ")
	if len(s) > 400 {
		s = s[:400] + "…"
	}
	return s
}
