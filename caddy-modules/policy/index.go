package policy

import (
	"net/netip"
	"strings"
)

// index finds every rule for a host without looking at the others: names by hash,
// of the whole name and of its suffixes, addresses by prefixTable.
type index struct {
	names map[string]*node
	// depths has a bit for each number of labels that some wildcard has after its
	// star. Suffixes of other depths are not looked up, so a name of 127 labels
	// costs no more than its rules do.
	depths [2]uint64
	v4, v6 prefixTable[*addrRules]
}

// addrRules is what the rules say of the addresses of a prefix.
type addrRules struct {
	lists
	class  Class // the class of the whole prefix, where it has a single one
	single bool
}

// node is what the rules say of one name, or of the names under it. Any may be
// nil.
type node struct {
	exact *lists
	under *lists
	// middle is keyed by what stands before the star: for bedrock.*.amazonaws.com
	// the node of amazonaws.com has bedrock.
	middle map[string]*lists
}

// match is what the rules say of one host and port.
type match struct {
	hit     [kinds]*grant // the most specific rule of each list
	tcp     *grant        // the most specific allowing rule with the flag tcp
	private *grant        // … with the flag private
	// For the reason of a refusal: what allows other ports of the host, and the
	// wildcard whose apex the host is.
	ports grants
	apex  *entry
}

// take adds what one pattern says.
func (m *match) take(l *lists, port uint16) {
	m.refuse(l, port)
	g := l[allow].find(port)
	if g == nil {
		if m.ports == nil {
			m.ports = l[allow]
		}
		return
	}
	if m.hit[allow] == nil {
		m.hit[allow] = g
	}
	if g.tcp && m.tcp == nil {
		m.tcp = g
	}
	if g.private && m.private == nil {
		m.private = g
	}
}

// refuse adds what the denying lists say.
func (m *match) refuse(l *lists, port uint16) {
	for k := alwaysDeny; k < allow; k++ {
		if m.hit[k] == nil {
			m.hit[k] = l[k].find(port)
		}
	}
}

// name matches a canonical name, the most specific rules first: the name itself,
// then the wildcards from the longest suffix to the shortest.
func (x *index) name(name string, port uint16, m *match) {
	if len(x.names) == 0 {
		return
	}
	if n := x.names[name]; n != nil {
		if n.exact != nil {
			m.take(n.exact, port)
		}
		if n.under != nil && len(n.under[allow]) > 0 && m.apex == nil {
			m.apex = n.under[allow][0].rule
		}
	}
	if x.depths == [2]uint64{} {
		return
	}
	// before is where the label before the current dot starts: the place of the
	// star of a middle wildcard.
	labels := strings.Count(name, ".") + 1
	for before, at := 0, 0; ; {
		dot := strings.IndexByte(name[at:], '.')
		if dot < 0 {
			return
		}
		before, at = at, at+dot+1
		labels--
		if x.depths[labels>>6]&(1<<(labels&63)) == 0 {
			continue
		}
		n := x.names[name[at:]]
		if n == nil {
			continue
		}
		if n.middle != nil && before > 0 {
			if l := n.middle[name[:before-1]]; l != nil {
				m.take(l, port)
			}
		}
		if n.under != nil {
			m.take(n.under, port)
		}
	}
}

// addr matches a canonical address of the given class.
func (x *index) addr(a netip.Addr, class Class, port uint16, m *match) {
	t := &x.v6
	if a.Is4() {
		t = &x.v4
	}
	for i := t.longest(a); i >= 0; i = t.spans[i].parent {
		r := t.spans[i].value
		if class == Public || r.single && r.class == class {
			m.take(&r.lists, port)
		} else {
			// A prefix over several classes opens nothing but the public part;
			// what it denies it denies.
			m.refuse(&r.lists, port)
		}
	}
}

// builder makes an index.
type builder struct {
	index
	prefixes [2]map[netip.Prefix]*addrRules // IPv4, IPv6
}

func newBuilder(rules int) *builder {
	return &builder{
		index:    index{names: make(map[string]*node, rules)},
		prefixes: [2]map[netip.Prefix]*addrRules{{}, {}},
	}
}

func (b *builder) add(r *Rule, k kind) {
	l := b.lists(r)
	e := &entry{text: r.text, source: r.Origin.String()}
	for _, port := range portsOf(r, k) {
		l[k] = l[k].add(port, r, e)
	}
}

// lists gives the place of a rule's pattern.
func (b *builder) lists(r *Rule) *lists {
	if r.shape == shapeAddr {
		family := b.prefixes[0]
		if !r.prefix.Addr().Is4() {
			family = b.prefixes[1]
		}
		l := family[r.prefix]
		if l == nil {
			l = new(addrRules)
			l.class, l.single = inside(r.prefix)
			family[r.prefix] = l
		}
		return &l.lists
	}
	n := b.names[r.name]
	if n == nil {
		n = new(node)
		b.names[r.name] = n
	}
	if r.shape == shapeExact {
		return orNew(&n.exact)
	}
	depth := strings.Count(r.name, ".") + 1
	b.depths[depth>>6] |= 1 << (depth & 63)
	if r.shape == shapeUnder {
		return orNew(&n.under)
	}
	if n.middle == nil {
		n.middle = make(map[string]*lists)
	}
	l := n.middle[r.head]
	if l == nil {
		l = new(lists)
		n.middle[r.head] = l
	}
	return l
}

func orNew(l **lists) *lists {
	if *l == nil {
		*l = new(lists)
	}
	return *l
}

func (b *builder) build() *index {
	b.v4 = newPrefixTable(b.prefixes[0])
	b.v6 = newPrefixTable(b.prefixes[1])
	return &b.index
}
