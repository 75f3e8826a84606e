package main

import (
	"fmt"
	"io"
	"runtime"

	"postern/launcher/sandbox"
)

// guarding is whether names would be guarded in a run of these settings.
type guarding struct {
	OK     bool           `json:"ok"` // false: a run would be refused
	On     bool           `json:"on"`
	Reason sandbox.Reason `json:"reason,omitempty"`
	Detail string         `json:"detail,omitempty"`
}

// guards says what a probe and the settings come to.
func guards(p *sandbox.Probe, s *settings) guarding {
	_, patterns := splitGlobs(s.Protect)
	rules := append(named("protect", patterns), s.DenyNames...)
	wants := len(rules) > 0 || s.Guard == sandbox.GuardOn
	var why string
	switch {
	case runtime.GOOS == "darwin":
		return guarding{OK: true, On: true, Detail: "the profile of each run forbids names, whatever the settings say"}
	case !s.Mode.Writes():
		return guarding{OK: true, Detail: "the settings say mode: " + string(s.Mode) + ", in which a run writes to no folder"}
	case s.Guard == sandbox.GuardOff:
		why = "the settings say guard_names: off"
	case s.Nested:
		why = "the settings say nested_sandbox: on"
	case !p.Names:
		why = p.NamesDetail
	case len(rules) > 0:
		return guarding{OK: true, On: true, Detail: "no run makes these, nor at any depth what tools outside act on: " + sandbox.Texts(rules)}
	default:
		return guarding{OK: true, On: true, Detail: "no run makes at the top of its folders what tools outside act on (.npmrc, .vscode, …)"}
	}
	switch {
	case len(rules) > 0:
		return guarding{Reason: sandbox.ReasonNameGlobs, Detail: why + "; a run is refused, for names are to be forbidden: " + sandbox.Texts(rules)}
	case wants:
		return guarding{Reason: sandbox.ReasonNameGlobs, Detail: why + "; a run is refused, for the settings say guard_names: on"}
	}
	return guarding{OK: true, Detail: why + ": only what is there is kept, and what git would read"}
}

func (g *guarding) print(w io.Writer) {
	state := "off"
	switch {
	case g.Detail == "":
		return // nothing was tried
	case !g.OK:
		state = "FAILS"
	case g.On:
		state = "on"
	}
	fmt.Fprintf(w, "%-10s %-6s %s\n", "guard", state, printable(g.Detail))
}
