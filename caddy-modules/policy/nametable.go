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

// node is what the rules say of one name and of the names under it.
type node struct {
	name   string
	grants []grant
	// middle is keyed by what stands before the star: for bedrock.*.amazonaws.com
	// the node amazonaws.com has bedrock. Nil for nearly all.
	middle map[string][]grant
}

func newNameTable(nodes []node) nameTable {
	size := 8
	for size < 2*len(nodes) {
		size *= 2
	}
	t := nameTable{seed: maphash.MakeSeed(), slots: make([]uint64, size), nodes: nodes}
	for i := range nodes {
		h := maphash.String(t.seed, nodes[i].name)
		at := h & uint64(size-1) //nolint:gosec // size is positive
		for t.slots[at] != 0 {
			at = (at + 1) & uint64(size-1) //nolint:gosec // size is positive
		}
		t.slots[at] = h&^0xffffffff | uint64(i+1)
	}
	return t
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
