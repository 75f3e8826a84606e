package sandbox

import (
	"encoding/binary"
	"slices"
	"strings"
)

// encodeCache writes the nodes, the children of each together.
func encodeCache(top *cacheNode) []byte {
	var body []byte
	count := uint64(1)
	for level := []*cacheNode{top}; len(level) > 0; {
		var below []*cacheNode
		for _, n := range level {
			slices.SortFunc(n.children, func(a, b *cacheNode) int { return strings.Compare(a.name, b.name) })
			for _, v := range []uint64{n.dev, n.ino, uint64(n.sec), uint64(n.nsec), uint64(n.context), count, uint64(len(n.children)), uint64(len(n.name))} { //nolint:gosec // bits
				body = binary.AppendUvarint(body, v)
			}
			body = append(body, n.name...)
			count += uint64(len(n.children))
			below = append(below, n.children...)
		}
		level = below
	}
	return append(binary.AppendUvarint(nil, count), body...)
}

// decodeCache reads what encodeCache wrote; nil if it did not write that.
func decodeCache(data []byte) *walkCache {
	text := string(data)
	at := 0
	number := func() uint64 {
		v, n := binary.Uvarint(data[min(at, len(data)):])
		if n <= 0 {
			at = len(data) + 1
			return 0
		}
		at += n
		return v
	}
	count := number()
	if count == 0 || count > uint64(len(data)/8) {
		return nil
	}
	c := &walkCache{recs: make([]cacheRec, count)}
	for i := range c.recs {
		r := &c.recs[i]
		r.dev, r.ino, r.sec, r.nsec = number(), number(), int64(number()), int64(number()) //nolint:gosec // bits
		context, first, many, size := number(), number(), number(), number()
		if at > len(data) || size > uint64(len(data)-at) || context > 1<<31 || first <= uint64(i) || first > count || many > count-first { //nolint:gosec // positive
			return nil
		}
		r.context, r.first, r.many = uint32(context), uint32(first), uint32(many) //nolint:gosec // bounded above
		r.name = text[at : at+int(size)]                                          //nolint:gosec // bounded above
		at += int(size)                                                           //nolint:gosec // bounded above
		if (r.name == "") != (i == 0) || strings.ContainsAny(r.name, "/\x00") || r.name == "." || r.name == ".." {
			return nil
		}
	}
	if at != len(data) {
		return nil
	}
	return c
}
