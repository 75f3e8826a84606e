package policy

import (
	"cmp"
	"slices"
)

// kind is the list a rule stands in, in the order of the verdict.
type kind uint8

const (
	alwaysDeny kind = iota
	deny
	allow
	kinds
)

// anyPort is the port of a grant that holds for all.
const anyPort = 0

// webPorts are what an allowing rule without ports means. Anything else to an
// allowed host (SMTP, a database) has to be named.
var webPorts = []uint16{80, 443}

// entry is what decisions keep of a rule: its texts, made once.
type entry struct {
	text   string
	source string
}

// grant is one port of one pattern, from whichever rules name it.
type grant struct {
	port    uint16
	private bool
	tcp     bool
	rule    *entry
}

// grants are the ports of a pattern in one list, ascending, anyPort first.
type grants []grant

// lists are the grants of one pattern, by kind.
type lists [kinds]grants

// find gives the grant for a port, nil for none. Where both a grant for every port
// and one for this port exist, the one that lifts the demand for TLS wins, so that
// a further rule never takes away what another gave.
func (g grants) find(port uint16) *grant {
	if len(g) == 0 {
		return nil
	}
	if g[0].port != anyPort {
		return g.exactly(port)
	}
	if own := g[1:].exactly(port); own != nil && own.tcp {
		return own
	}
	return &g[0]
}

func (g grants) exactly(port uint16) *grant {
	// A pattern with more than a handful of ports is rare, and must still not
	// make a decision slow.
	if len(g) > 8 {
		i, ok := slices.BinarySearchFunc(g, port, comparePort)
		if !ok {
			return nil
		}
		return &g[i]
	}
	for i := range g {
		if g[i].port == port {
			return &g[i]
		}
	}
	return nil
}

func comparePort(g grant, port uint16) int { return cmp.Compare(g.port, port) }

// add folds a rule in. Rules for the same pattern and port add up: a flag holds
// when one of them has it, and the rule that brought the last flag is the one
// named.
func (g grants) add(port uint16, r *Rule, e *entry) grants {
	i, found := slices.BinarySearchFunc(g, port, comparePort)
	if !found {
		return slices.Insert(g, i, grant{port: port, private: r.private, tcp: r.tcp, rule: e})
	}
	have := &g[i]
	if r.private && !have.private || r.tcp && !have.tcp {
		have.private = have.private || r.private
		have.tcp = have.tcp || r.tcp
		have.rule = e
	}
	return g
}

// portsOf are the ports that a rule names in its list, or means by naming none.
func portsOf(r *Rule, k kind) []uint16 {
	switch {
	case len(r.ports) > 0:
		return r.ports
	case k != allow:
		return []uint16{anyPort}
	case r.shape == shapeAddr && r.prefix.IsSingleIP():
		return []uint16{anyPort}
	default:
		return webPorts
	}
}
