package policy

import (
	"net/netip"
	"slices"
	"strings"
)

// index finds every rule for a host without looking at the others: names by hash,
// of the whole name and of its suffixes, addresses by prefixTable.
type index struct {
	names nameTable
	// depths has a bit for each number of labels that some wildcard has after its
	// star. Suffixes of other depths are not looked up, so a name of 127 labels
	// costs no more than the rules do.
	depths  [2]uint64
	v4, v6  prefixTable[addrRules]
	entries []entry
}

// addrRules is what the rules say of the addresses of a prefix.
type addrRules struct {
	grants []grant
	class  Class // of the whole prefix, see classOf
}

// name matches a canonical name, the most specific rules first: the name itself,
// then the wildcards from the longest suffix to the shortest.
func (x *index) name(name string, q question, m *match) {
	if n := x.names.find(name); n != nil {
		gs := n.grants()
		m.take(x.entries, gs, scope{question: q})
		if over := part(gs, flagUnder, allow); len(over) > 0 && m.apex == nil {
			m.apex = &x.entries[over[0].rule]
		}
	}
	if x.depths == [2]uint64{} {
		return
	}
	labels := strings.Count(name, ".") + 1
	// at is where the suffix starts, before where the label ahead of it does: the
	// place of the star of a middle wildcard.
	before, at := 0, 0
	for labels--; labels > 0; labels-- {
		before, at = at, at+strings.IndexByte(name[at:], '.')+1
		if x.depths[labels>>6]&(1<<(labels&63)) == 0 {
			continue
		}
		n := x.names.find(name[at:])
		if n == nil {
			continue
		}
		if before > 0 {
			m.take(x.entries, n.middle(name[:before-1]), scope{question: q})
		}
		m.take(x.entries, n.grants(), scope{question: q, shape: flagUnder})
	}
}

// addr matches a canonical address of the given class, which is not Invalid.
func (x *index) addr(a netip.Addr, class Class, q question, m *match) {
	t := x.family(a)
	for i := t.longest(a); i >= 0; i = t.spans[i].parent {
		r := &t.spans[i].value
		// A prefix over several classes opens nothing but the public part; what
		// it denies it denies.
		opens := class == Public || class == r.class
		m.take(x.entries, r.grants, scope{question: q, refuses: !opens})
	}
}

// denials adds what denies a whole prefix, or a single canonical address.
func (x *index) denials(p netip.Prefix, q question, m *match) {
	t := x.family(p.Addr())
	for i := t.longest(p.Addr()); i >= 0; i = t.spans[i].parent {
		if t.spans[i].prefix.Bits() <= p.Bits() {
			m.take(x.entries, t.spans[i].value.grants, scope{question: q, refuses: true})
		}
	}
}

func (x *index) family(a netip.Addr) *prefixTable[addrRules] {
	if a.Is4() {
		return &x.v4
	}
	return &x.v6
}

// builder makes an index.
type builder struct {
	index
	prefixes [2]map[netip.Prefix]addrRules // IPv4, IPv6
	from     *string                       // the file of the rule before
	same     uint32                        // the entry that said what a rule without news says
}

// newBuilder takes the number of rules that will be added at most.
func newBuilder(rules int) *builder {
	return &builder{
		index:    index{entries: make([]entry, 0, rules), names: newNameTable(rules)},
		prefixes: [2]map[netip.Prefix]addrRules{{}, {}},
	}
}

// add takes a rule in. news says that it is not one that said the same before, in the
// same words and the same list.
func (b *builder) add(r *Rule, k kind) (news bool) {
	if b.from == nil || *b.from != r.Origin.File {
		file := r.Origin.File
		b.from = &file
	}
	g := grant{kind: k, flags: flagsOf(r, k), rule: uint32(len(b.entries))}                      //nolint:gosec // lists are far shorter than 2^32 rules
	b.entries = append(b.entries, entry{text: r.text, file: b.from, line: int32(r.Origin.Line)}) //nolint:gosec // nor do files have more lines
	for _, g.port = range portsOf(r, k) {
		if b.grant(r, g) {
			news = true
		}
	}
	return news
}

// forget takes back the entry of the rule that was added last and brought nothing.
func (b *builder) forget() { b.entries = b.entries[:len(b.entries)-1] }

func (b *builder) grant(r *Rule, g grant) (news bool) {
	if r.shape == shapeAddr {
		family := b.prefixes[0]
		if !r.prefix.Addr().Is4() {
			family = b.prefixes[1]
		}
		rules, ok := family[r.prefix]
		if !ok {
			rules.class = classOf(r.prefix)
		}
		rules.grants, news = b.addGrant(rules.grants, g)
		family[r.prefix] = rules
		return news
	}
	n := b.names.put(r.name)
	if r.shape != shapeExact {
		depth := strings.Count(r.name, ".") + 1
		b.depths[depth>>6] |= 1 << (depth & 63)
	}
	if r.shape == shapeMiddle {
		o := n.others()
		if o.middle == nil {
			o.middle = make(map[string][]grant)
		}
		o.middle[r.head], news = b.addGrant(o.middle[r.head], g)
		return news
	}
	gs, news := b.addGrant(n.grants(), g)
	n.setGrants(gs)
	return news
}

// addGrant folds one grant in. Rules for the same pattern and port add up: a flag
// holds when one of them has it, and the rule that brought the last flag is named.
func (b *builder) addGrant(to []grant, g grant) (gs []grant, news bool) {
	i, found := slices.BinarySearchFunc(to, g, compareGrants)
	if !found {
		return slices.Insert(to, i, g), true
	}
	if both := to[i].flags | g.flags; both != to[i].flags {
		to[i].flags, to[i].rule = both, g.rule
		return to, true
	}
	b.same = to[i].rule
	return to, b.entries[to[i].rule].text != b.entries[g.rule].text
}

func (b *builder) build() *index {
	b.v4 = newPrefixTable(b.prefixes[0])
	b.v6 = newPrefixTable(b.prefixes[1])
	return &b.index
}
