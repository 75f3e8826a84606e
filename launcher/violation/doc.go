// Package violation notices system calls that a sandbox denied to a run.
//
// On Linux nobody reports them: a Scanner searches what the run says on its stderr, or
// on its terminal, for the three texts by which programs tell of them (SPEC 95). On macOS
// a Tap reads them from the system's log (SPEC 91). Both give them to a Sink, which
// tells each action and target once in five seconds, with a number (SPEC 93). What refuses
// names (launcher/nameguard) tells of it itself, with the rule and who tried: Named.
//
// A refusal of a proxy, the resolver or the push gateway is no violation and never comes
// from here (SPEC 98): those are events of the appliance.
//
// What is read is the run's own output, and may say anything. It decides nothing.
package violation
