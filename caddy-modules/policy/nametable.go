package policy

import "hash/maphash"

// nameTable maps names to nodes. It is a hash table of its own for the sake of the
// processor's caches: with a hundred thousand rules, the time of a decision is
// the number of cache lines it reads, and a Go map of pointers reads twice as many.
// The hash is seeded for each table, so that nobody can choose colliding names.
type nameTable struct {
	seed maphash.Seed
	// slots are probed one after the other: the upper half is taken from the
	// hash, the lower half is the index of a node plus one; 0 is free. Half of
	// them at most are taken.
	slots []uint64
	nodes []node
}

// node is what the rules say of one name and of the names under it. It fills one
// cache line of 64 bytes, the grants of an ordinary name included.
type node struct {
	name  string
	few   [4]grant
	count uint8 // of few; 0 when the grants are in more
	more  *more
}

// more is what few nodes have.
type more struct {
	grants []grant
	// middle is keyed by what stands before the star: for bedrock.*.amazonaws.com
	// the node amazonaws.com has bedrock.
	middle map[string][]grant
}

// grants gives the grants of the name and of the wildcard over it.
func (n *node) grants() []grant {
	if n.count == 0 && n.more != nil {
		return n.more.grants
	}
	return n.few[:n.count]
}

// middle gives the grants of the middle wildcard with head before its star.
func (n *node) middle(head string) []grant {
	if n.more == nil {
		return nil
	}
	return n.more.middle[head]
}

// setGrants stores the grants where they fit.
func (n *node) setGrants(gs []grant) {
	if len(gs) <= len(n.few) {
		n.count = uint8(copy(n.few[:], gs)) //nolint:gosec // 4 at most
		return
	}
	n.count = 0
	n.others().grants = gs
}

func (n *node) others() *more {
	if n.more == nil {
		n.more = new(more)
	}
	return n.more
}

// newNameTable makes an empty table for so many names, which it takes without growing.
func newNameTable(names int) nameTable {
	size := 8
	for size < 2*names {
		size *= 2
	}
	return nameTable{seed: maphash.MakeSeed(), slots: make([]uint64, size), nodes: make([]node, 0, names)}
}

// put gives the node of a name, a new one where there is none. It is valid until the
// next put.
func (t *nameTable) put(name string) *node {
	h := maphash.String(t.seed, name)
	last := uint64(len(t.slots)) - 1
	at := h & last
	for ; t.slots[at] != 0; at = (at + 1) & last {
		if slot := t.slots[at]; slot>>32 == h>>32 {
			if n := &t.nodes[slot&0xffffffff-1]; n.name == name {
				return n
			}
		}
	}
	t.nodes = append(t.nodes, node{name: name})
	t.slots[at] = h&^0xffffffff | uint64(len(t.nodes))
	return &t.nodes[len(t.nodes)-1]
}

// find gives the node of a name, nil for none.
func (t *nameTable) find(name string) *node {
	if len(t.nodes) == 0 {
		return nil
	}
	h := maphash.String(t.seed, name)
	last := uint64(len(t.slots)) - 1
	for at := h & last; ; at = (at + 1) & last {
		slot := t.slots[at]
		if slot == 0 {
			return nil
		}
		if slot>>32 == h>>32 {
			if n := &t.nodes[slot&0xffffffff-1]; n.name == name {
				return n
			}
		}
	}
}
