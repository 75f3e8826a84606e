package policy

import (
	"net/netip"
	"strconv"
)

// Code is the kind of a decision. Its text is stable: headers, logs, metrics and
// the API carry it.
type Code uint8

// The codes. The zero one is a refusal.
const (
	NotAllowed       Code = iota // no rule allows the host
	Allow                        // a rule allows it
	Denied                       // the deny list has it
	AlwaysDenied                 // the always-deny list or a built-in rule has it
	OwnListener                  // it is a listener of the appliance
	PortNotAllowed               // the host is allowed, or asked about, on other ports
	AddressClass                 // the address is of a class that no rule opens here
	NetworkOff                   // the session has no network
	PolicyGone                   // the session has no policy any more
	NameRefused                  // the lists allow the name, the rules of DNS do not
	PushElsewhere                // a push that went to the forge instead of the gateway
	SchemeNotAllowed             // the host and port are allowed, for another scheme
	AskFirst                     // an approver has to be asked first
	AskRefused                   // the approver said no
	AskTimeout                   // no answer came in time
	AskNobody                    // there is nobody to ask
	FakeUnknown                  // a made-up address that stands for no name here
	TooManyTunnels               // the session's cap on open tunnels is reached
	TooManyRequests              // the one on requests under way
	TooFast                      // the one on new connections a second
	TooManyBytes                 // the one on bytes
)

var codeNames = [...]string{
	NotAllowed:     "not_allowed",
	Allow:          "allowed",
	Denied:         "denied",
	AlwaysDenied:   "always_denied",
	OwnListener:    "own_listener",
	PortNotAllowed: "port_not_allowed",
	AddressClass:   "address_class",
	NetworkOff:     "network_off",
	PolicyGone:     "policy_gone",
	NameRefused:    "name_refused",
	PushElsewhere:  "push_elsewhere",

	SchemeNotAllowed: "scheme_not_allowed",
	AskFirst:         "ask",
	AskRefused:       "ask_refused",
	AskTimeout:       "ask_timeout",
	AskNobody:        "ask_nobody",
	FakeUnknown:      "fake_unknown",
	TooManyTunnels:   "too_many_tunnels",
	TooManyRequests:  "too_many_requests",
	TooFast:          "too_fast",
	TooManyBytes:     "too_many_bytes",
}

// String is snake_case and stable.
func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return "code_" + strconv.Itoa(int(c))
}

// Decision is the answer to one question. It is a plain value that allocates
// nothing; the zero one is a refusal.
type Decision struct {
	// Allowed is the verdict. Everything else explains it.
	Allowed bool
	// TCP says that a rule that allows the target has the flag tcp: the tunnel
	// need not carry TLS.
	TCP bool
	// Code is the kind of the verdict.
	Code Code
	// Rule is the canonical text of the rule that decided, or that came nearest
	// (PortNotAllowed, AddressClass); "" when there is none.
	Rule string
	// Source is where that rule was written: "configs/allow/baseline.list:3",
	// "built-in", "session"; "" when there is none.
	Source string

	would  bool // see WouldDeny
	target Target
	addr   netip.Addr // set by DecideAddr
	class  Class
	ports  []grant // of PortNotAllowed
	near   *entry  // the wildcard whose apex was asked for
	closed string  // the reason of a closed Set, or of a refused name
}

// RefuseName is the decision of a resolver about a name that the lists allow and
// that it must not ask for: a name that never leaves the host, a budget that is
// spent. The reason is one sentence without the name.
func RefuseName(t Target, reason string) Decision {
	return Decision{Code: NameRefused, target: t, closed: printable(reason)}
}

// RefusePush is the decision about a push that went to a forge itself, where it
// could only fail. The address is where pushes are taken.
func RefusePush(t Target, address string) Decision {
	return Decision{Code: PushElsewhere, target: t, closed: "pushes go through " + printable(address)}
}

// Refuse is the decision of what stands behind the lists: whoever was asked
// (AskRefused, AskTimeout, AskNobody), the table of made-up addresses (FakeUnknown),
// a cap of the session (TooManyTunnels to TooManyBytes). It is a refusal whatever the
// code. The reason completes "HOST:PORT is refused: …" and does not name the host; it
// says what would change the answer.
func Refuse(t Target, c Code, reason string) Decision {
	if c < AskRefused {
		c = NameRefused // a code of the lists would tell of a rule that is not there
	}
	return Decision{Code: c, target: t, closed: printable(reason)}
}

// WouldDeny says that the target is allowed only because the policy reports and does
// not enforce. Code, Rule and Source are those of the refusal that it would have been.
func (d Decision) WouldDeny() bool { return d.would }

// Liftable says that no rule stands against the target, but none allows it either:
// an allowing rule, a grant or an approval would open it. Whether somebody is to be
// asked is another question, which the code AskFirst alone answers with yes.
func (d Decision) Liftable() bool {
	switch d.Code {
	case NotAllowed, PortNotAllowed, SchemeNotAllowed, AskFirst:
		return !d.Allowed && !d.target.IsZero()
	default:
		return false
	}
}

// Target is what was asked.
func (d Decision) Target() Target { return d.target }

// Addr is the address that was asked about, with its class; invalid when the
// question was about the target alone.
func (d Decision) Addr() (netip.Addr, Class) { return d.addr, d.class }

// Reason is one line of printable ASCII for a person or an agent: host and port,
// the rule that decided with its file and line, and what to change. It is written
// when asked for, since most decisions never need it.
func (d Decision) Reason() string {
	return printable(d.sentence())
}

func (d Decision) sentence() string {
	if d.would {
		d.would, d.Allowed = false, false
		return "not enforced, only reported: " + d.sentence()
	}
	t := d.target.String()
	if d.target.IsZero() {
		t = "an empty target"
	}
	switch d.Code {
	case Allow:
		return t + d.resolved() + " is allowed by " + d.rule()
	case Denied:
		return t + d.resolved() + " is denied by " + d.rule() + "; a deny rule beats every allow: only removing it there opens the host"
	case AlwaysDenied:
		return t + d.resolved() + " is closed by " + d.rule() + "; no policy, session or grant opens it"
	case OwnListener:
		return t + d.resolved() + " is a listener of this appliance, which is never a destination; ask for another host"
	case PortNotAllowed:
		allows := " allows "
		if len(d.ports) > 0 && d.ports[0].kind == ask {
			allows = " asks about "
		}
		return t + " is refused: " + d.rule() + allows + portList(d.ports) + " only; add the rule \"" + d.target.host.String() + " " + strconv.Itoa(int(d.target.port)) + "\" to open this one"
	case AddressClass:
		return t + d.unreachable()
	case NetworkOff:
		return t + " is refused: " + d.closed + "; start it with network access to reach anything"
	case SchemeNotAllowed:
		return t + " " + d.target.scheme.sentence() + " is refused: " + d.rule() + " is for another scheme; add the rule \"" + d.target.Rule() + "\" to open it for all"
	case AskFirst:
		return t + d.asked()
	case PolicyGone, NameRefused, PushElsewhere, AskRefused, AskTimeout, AskNobody, FakeUnknown,
		TooManyTunnels, TooManyRequests, TooFast, TooManyBytes:
		return t + " is refused: " + d.closed
	case NotAllowed:
		fallthrough
	default:
		return t + d.missing()
	}
}

// resolved tells the address apart from the name that was asked for.
func (d Decision) resolved() string {
	if !d.addr.IsValid() || d.target.host.addr == d.addr {
		return ""
	}
	return " (at " + d.addr.String() + ")"
}

func (d Decision) rule() string {
	return "the rule \"" + d.Rule + "\" (" + d.Source + ")"
}

// unreachable explains AddressClass.
func (d Decision) unreachable() string {
	name := d.target.host.name
	switch {
	case name == "":
		if d.addr.IsValid() && d.addr != d.target.host.addr {
			return " is refused: the connection would go to " + d.addr.String() + " instead"
		}
		return " is refused: it is " + d.class.Sentence() + "; no rule opens it"
	case !d.addr.IsValid() && d.class == Loopback:
		return " is refused: the name means this machine; add the flag private to " + d.rule() + " if that is meant"
	case !d.addr.IsValid():
		return " is refused: its lookup gave no address"
	case d.Rule == "":
		return " resolves to " + d.addr.String() + ", " + d.class.Sentence() + "; no rule opens that for this name"
	case thisMachine(name) && d.class != Loopback:
		return " is refused: the name means this machine, but resolves to " + d.addr.String()
	case d.class.ByName():
		return " resolves to " + d.addr.String() + ", " + d.class.Sentence() + "; add the flag private to " + d.rule() + " if that is meant"
	default:
		return " resolves to " + d.addr.String() + ", " + d.class.Sentence() + "; no rule opens it"
	}
}

// asked explains AskFirst.
func (d Decision) asked() string {
	by := "the policy asks about every host that no rule allows"
	if d.Rule != "" {
		by = d.rule() + " says so"
	}
	return " is refused until an approver allows it: " + by
}

// missing explains NotAllowed with the line that would change it.
func (d Decision) missing() string {
	host := d.target.host.String()
	if host == "" {
		return " is refused: it names no host"
	}
	add := host
	if d.target.host.name != "" && d.target.port != 80 && d.target.port != 443 {
		add += " " + strconv.Itoa(int(d.target.port))
	}
	if thisMachine(d.target.host.name) {
		add += " private"
	}
	if d.near != nil {
		return " is refused: the rule \"" + d.near.text + "\" (" + d.near.from() + ") covers what is below " + host + ", not " + host + " itself; add the rule \"" + add + "\" to the allow list"
	}
	why := " is refused: no rule allows it; add the rule \"" + add + "\" to the policy's allow list or the session's egressAllowlist"
	if thisMachine(d.target.host.name) || d.target.host.addr.IsLoopback() {
		why += "; if the client's own machine is meant, it has to be asked without a proxy"
	}
	return why
}

func portList(g []grant) string {
	const shown = 5
	if len(g) == 1 {
		return "port " + strconv.Itoa(int(g[0].port))
	}
	text := "ports "
	for i := range g {
		switch {
		case i == shown:
			return text + " and others"
		case i == len(g)-1:
			text += " and "
		case i > 0:
			text += ", "
		}
		text += strconv.Itoa(int(g[i].port))
	}
	return text
}
