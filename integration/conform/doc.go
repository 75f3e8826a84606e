// Command conform replays case files against a running appliance.
//
//	go run ./integration/conform egress FILE...
//	go run ./integration/conform dns FILE...
//
// It builds the appliance, starts it in a network where every address is local
// (package netlab), and for each case sends the very bytes that the case holds
// to the listeners of a session. What the appliance answers is one half of the
// verdict; the other is what it did: every address that was dialled, every name
// that was looked up, every byte that reached an origin. A refusal after which
// something went upstream all the same is a failure.
//
// It prints one line for each case that differs, with its id, what was expected
// and what came, then `N passed, N failed` alone on the last line, and exits 0
// only if none failed. A case of a kind that is not replayed is printed as
// `ID: not yet (…)` and counts as failed.
//
// # How a case becomes a configuration
//
// Every case has a policy and a session of its own. The texts of its lists
// reach the parser of rules as they stand. A list that the configuration
// refuses is offered to the session's egressAllowlist as well, which is the
// other door a rule may come through: a bad pattern is refused only if both
// doors refuse it.
//
// The lists of cases name hosts, not ports, and a rule without ports means 443
// and 80. The port of the request is therefore added to the rules where the
// default would decide the case instead of what it is about: where the case
// expects the request to be allowed, since its author meant the host to be
// open there, and where the port is one of the appliance's own, which must stay
// shut even though a rule names it. In all other cases the default stands, so
// that a case which expects port 25 to be refused tests just that.
//
// # What the names answer
//
// How long a name may be that a session asks for below a wildcard is what cases of DNS
// are about; here all that a name can be may be asked for.
//
// Names answer what `resolve` says, in turn what `resolve_seq` says, and else a
// public address. Origins listen on every address, on 80, 443 and the ports the
// cases use. They answer HTTP requests and echo everything else.
//
// # Cases of DNS
//
// A case of the second kind has a sandbox of its own, which is a network of its own
// with the sockets that a launcher makes in one: the appliance is lent them as it is by
// a launcher, and all that the case asks is asked from inside. Cases with the same
// options are replayed under one configuration, whose dns block says those options; what
// names stand for is made up where the sandbox lends a listener that they lead to.
// An entry of a list that neither the configuration nor a session takes is left out,
// since it opens nothing.
//
// The resolver behind it says packet by packet what the case says. Time passes as it
// does; what a case says of lifetimes and of rates is compared with what has passed.
// What a session remembers of a name is seen by asking for the names of an address,
// refusals by the launcher's events, and what is only logged in the log. Addresses of
// the networks for documentation, which the cases take for public ones, are public ones
// by the time they are sent: the appliance knows the difference.
//
// # What is not the appliance
//
// The lines of proto `dns` among the cases of egress are replayed against the DNS
// guard's own server, which this program opens itself. A `match` case is asked over
// SOCKS5 and CONNECT, and is allowed when both allow the host, even if its name cannot
// be resolved.
package main
