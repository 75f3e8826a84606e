package policy

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// kind is the list a rule stands in, in the order of the verdict.
type kind uint8

const (
	alwaysDeny kind = iota
	deny
	allow
	ask
)

// anyPort is the port of a grant that holds for all.
const anyPort = 0

// webPorts are what an allowing rule without ports means. Anything else on an
// allowed host (SMTP, a database) has to be named.
var webPorts = []uint16{httpPort, httpsPort}

const (
	httpPort  = 80
	httpsPort = 443
)

// portsOf are the ports that a rule names in its list, or means by naming none.
func portsOf(r *Rule, k kind) []uint16 {
	switch {
	case len(r.ports) > 0:
		return r.ports
	case r.scheme == SchemeHTTP:
		return webPorts[:1]
	case r.scheme == SchemeTLS:
		return webPorts[1:]
	case k < allow:
		return []uint16{anyPort}
	case r.shape == shapeAddr && r.prefix.IsSingleIP():
		return []uint16{anyPort}
	default:
		return webPorts
	}
}

// entry is what decisions keep of a rule. Its source is written at the first decision
// that names it: most rules of a long list are never named.
type entry struct {
	text   string
	source atomic.Pointer[string]
	file   *string // shared by the rules of a file
	line   int32
}

func (e *entry) origin() Origin { return Origin{File: *e.file, Line: int(e.line)} }

// from is the text of the origin.
func (e *entry) from() string {
	if s := e.source.Load(); s != nil {
		return *s
	}
	s := e.origin().String()
	e.source.Store(&s)
	return s
}

// grant is one port of one pattern in one list, from whichever rules name it. It is
// small so that the grants of a name lie in one cache line.
type grant struct {
	port  uint16
	kind  kind
	flags flags
	rule  uint32 // index of an entry
}

type flags uint8

const (
	flagUnder   flags = 1 << iota // the pattern is the wildcard over the node's name
	flagPrivate                   // the flags of the rule
	flagTCP
	flagHTTP // the schemes it is about: all of them without a word in the rule
	flagTLS
	flagOther
)

const anyScheme = flagHTTP | flagTLS | flagOther

// flagsOf are the flags of a rule's grants. A rule that denies one scheme denies what
// may be it as well: a tunnel of which nobody knows what it will carry.
func flagsOf(r *Rule, k kind) flags {
	f := anyScheme
	switch r.scheme {
	case SchemeHTTP:
		f = flagHTTP
	case SchemeTLS:
		f = flagTLS
	case SchemeTCP:
	}
	if k < allow {
		f |= flagOther
	}
	if r.private {
		f |= flagPrivate
	}
	if r.tcp {
		f |= flagTCP
	}
	if r.shape == shapeUnder {
		f |= flagUnder
	}
	return f
}

// question is what is asked of the grants of a host.
type question struct {
	port    uint16
	schemes flags // those that a grant must be about, all of them
}

func (t Target) question() question {
	q := question{port: t.port, schemes: flagOther}
	switch t.scheme {
	case SchemeHTTP:
		q.schemes = flagHTTP
	case SchemeTLS:
		q.schemes = flagTLS
	case SchemeTCP:
	}
	return q
}

// order sorts the grants of a node: the name before what is under it, denials
// before permissions, ports ascending.
func (g grant) order() uint32 {
	return uint32(g.flags&flagUnder)<<24 | uint32(g.kind)<<16 | uint32(g.port)
}

func compareGrants(a, b grant) int { return cmp.Compare(a.order(), b.order()) }

// fewGrants are scanned in order; above that a binary search keeps the decision
// quick.
const fewGrants = 8

// part gives the grants of one shape in one list.
func part(gs []grant, shape flags, k kind) []grant {
	low, _ := slices.BinarySearchFunc(gs, grant{flags: shape, kind: k}, compareGrants)
	high, _ := slices.BinarySearchFunc(gs, grant{flags: shape, kind: k + 1}, compareGrants)
	return gs[low:high]
}

// match is what the rules say of one host and port: for each question the most
// specific rule that answers it.
type match struct {
	always  *entry
	denied  *entry
	allowed *entry
	ask     *entry
	tcp     *entry // allows, and has the flag tcp
	private *entry // allows, and has the flag private
	// For the reason of a refusal, and for whoever looks for a port that is open (DNS):
	// what allows other ports of the host, and the wildcard whose apex the host is.
	ports     []grant
	portsRule *entry
	askPorts  []grant // what is asked about on other ports, where none allows any
	asksRule  *entry
	scheme    *entry // allows another scheme of the host and port
	apex      *entry
}

// scope says which grants of a list count.
type scope struct {
	question
	shape   flags // 0, or flagUnder
	refuses bool  // only those that deny
}

// take adds what the grants of one node say.
func (m *match) take(entries []entry, gs []grant, s scope) {
	if len(gs) > fewGrants {
		m.search(entries, gs, s)
		return
	}
	other, asks := false, false
	for i := range gs {
		g := &gs[i]
		switch {
		case g.flags&flagUnder != s.shape:
		case g.port == anyPort || g.port == s.port:
			m.use(g, &entries[g.rule], s)
		case g.kind == allow:
			other = true
		case g.kind == ask:
			asks = true
		}
	}
	if other {
		m.elsewhere(entries, part(gs, s.shape, allow), s)
	}
	if asks {
		m.elsewhere(entries, part(gs, s.shape, ask), s)
	}
}

// search is take for a node with many grants.
func (m *match) search(entries []entry, gs []grant, s scope) {
	for k := alwaysDeny; k <= ask; k++ {
		of := part(gs, s.shape, k)
		for _, port := range [2]uint16{anyPort, s.port} {
			i, ok := slices.BinarySearchFunc(of, port, func(g grant, p uint16) int { return cmp.Compare(g.port, p) })
			if ok {
				m.use(&of[i], &entries[of[i].rule], s)
			}
		}
		if k >= allow && len(of) > 0 {
			m.elsewhere(entries, of, s)
		}
	}
}

// elsewhere notes what allows or asks about the host, if only on other ports.
func (m *match) elsewhere(entries []entry, of []grant, s scope) {
	switch {
	case s.refuses:
	case of[0].kind == ask && m.ask == nil && m.askPorts == nil:
		m.askPorts, m.asksRule = of, &entries[of[0].rule]
	case of[0].kind == allow && m.allowed == nil && m.ports == nil:
		m.ports, m.portsRule = of, &entries[of[0].rule]
	}
}

func (m *match) use(g *grant, e *entry, s scope) {
	if g.flags&s.schemes != s.schemes {
		if g.kind == allow && m.scheme == nil && !s.refuses {
			m.scheme = e
		}
		return
	}
	switch {
	case g.kind == alwaysDeny:
		if m.always == nil {
			m.always = e
		}
	case g.kind == deny:
		if m.denied == nil {
			m.denied = e
		}
	case s.refuses:
	case g.kind == ask:
		if m.ask == nil {
			m.ask = e
		}
	default:
		if m.allowed == nil {
			m.allowed = e
		}
		if g.flags&flagTCP != 0 && m.tcp == nil {
			m.tcp = e
		}
		if g.flags&flagPrivate != 0 && m.private == nil {
			m.private = e
		}
	}
}
