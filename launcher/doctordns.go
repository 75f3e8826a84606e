package main

import (
	"fmt"
	"io"

	"postern/caddy-modules/session/lease"
	"postern/launcher/sandbox"
)

// lookups is how names would be looked up in a run.
type lookups struct {
	OK     bool            `json:"ok"` // false: less than the settings name
	Mode   sandbox.DNSMode `json:"mode"`
	Reason sandbox.Reason  `json:"reason,omitempty"`
	Detail string          `json:"detail,omitempty"`
}

// stand notes what a sandbox has, and returns what is to be lent.
func (d *lookups) stand(p owner, mode sandbox.DNSMode) []lease.Lent {
	d.OK = true
	if mode == sandbox.DNSOff {
		d.Detail = "the settings say so: only the proxies know names"
		return nil
	}
	_, lacking := p.Low() // names takes what cannot be used
	more, err := names(p, mode)
	switch {
	case err != nil:
		d.OK, d.Reason, d.Detail = false, sandbox.ReasonLowPorts, err.Error()
	case len(more) == 0 && lacking != nil:
		d.Reason, d.Detail = sandbox.ReasonLowPorts, "only the proxies know names: "+lacking.Error()
	case len(more) == 0:
		d.Reason, d.Detail = sandbox.ReasonLowPorts, "only the proxies know names: the kernel does not tell the sandbox's network from this host's"
	default:
		d.say(lease.DNSFake)
		if mode == sandbox.DNSAnswer || sandbox.SharedLoopback {
			d.say(lease.DNSAnswer)
		}
		d.Detail += ", if the appliance does its part"
	}
	return more
}

// served notes what the appliance answered.
func (d *lookups) served(mode sandbox.DNSMode, a lease.Answer) {
	if d.Mode == sandbox.DNSOff {
		return // nothing was lent
	}
	d.say(a.DNS)
	d.OK = mode == sandbox.DNSAuto || d.Mode == mode
}

func (d *lookups) say(mode string) {
	switch mode {
	case lease.DNSFake:
		d.Mode, d.Detail = sandbox.DNSFake, "programs that ignore the proxies reach what is allowed, by its name"
	case lease.DNSAnswer:
		d.Mode, d.Detail = sandbox.DNSAnswer, "allowed names can be looked up; the way out are the proxies"
	default:
		d.Mode, d.Detail = sandbox.DNSOff, "the appliance serves no names inside: only the proxies know them"
	}
}

func (d *lookups) print(w io.Writer) {
	if d.Detail == "" {
		return
	}
	state := string(d.Mode)
	if !d.OK {
		state = "FAILS"
	}
	fmt.Fprintf(w, "%-10s %-6s %s\n", "names", state, printable(d.Detail))
}
