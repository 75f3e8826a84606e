package policy

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
)

// prefixTable maps prefixes of one address family to values. The prefixes are
// sorted by their first address, shorter ones first; prefixes either nest or are
// apart, so each knows the next shorter one around it. The longest match is then the
// nearest start at or below the address, or one of those around that: a binary
// search and a few steps up, whatever the number of prefixes.
type prefixTable[T any] struct {
	// starts are the upper 64 bits of each first address, which nearly always
	// decide the search; kept apart for the caches' sake.
	starts []uint64
	spans  []span[T]
}

type span[T any] struct {
	prefix netip.Prefix
	parent int32 // index of the next shorter prefix around this one, -1 for none
	value  T
}

func upper(a netip.Addr) uint64 {
	if a.Is4() {
		b := a.As4()
		return uint64(binary.BigEndian.Uint32(b[:])) << 32
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8])
}

// newPrefixTable takes prefixes of one family, without host bits.
func newPrefixTable[T any](of map[netip.Prefix]T) prefixTable[T] {
	t := prefixTable[T]{spans: make([]span[T], 0, len(of)), starts: make([]uint64, len(of))}
	for p, value := range of {
		t.spans = append(t.spans, span[T]{prefix: p, value: value})
	}
	slices.SortFunc(t.spans, func(a, b span[T]) int {
		return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()))
	})
	around := int32(-1)
	for i := range t.spans {
		start := t.spans[i].prefix.Addr()
		t.starts[i] = upper(start)
		for around >= 0 && !t.spans[around].prefix.Contains(start) {
			around = t.spans[around].parent
		}
		t.spans[i].parent = around
		around = int32(i)
	}
	return t
}

// longest is the index of the longest prefix that contains a canonical address of
// the table's family, -1 for none.
func (t *prefixTable[T]) longest(a netip.Addr) int32 {
	key := upper(a)
	// The number of starts at or below the address.
	low, high := 0, len(t.starts)
	for low < high {
		middle := int(uint(low+high) >> 1)
		start := t.starts[middle]
		if start < key || start == key && t.spans[middle].prefix.Addr().Compare(a) <= 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	i := int32(low - 1)
	for i >= 0 && !t.spans[i].prefix.Contains(a) {
		i = t.spans[i].parent
	}
	return i
}
