package violation

import "postern/launcher/nameguard"

// Named is a call that a rule about names refused, in the words of all violations. The
// target and who tried are the run's own words.
func Named(v nameguard.Violation) Violation {
	return Violation{
		Action: v.Action, Target: clip(printable(v.Target), maxTarget), Rule: v.Rule, Source: v.Source, Comm: printable(v.Comm),
	}
}
