package sandbox

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
)

// In a large folder nearly every directory holds nothing of interest and is as it was at
// the last start. A walk that met many notes those in the run directory, with what tells
// that a directory has not changed: its inode and its time of change, which no program
// can set. The next walk asks for that, instead of for the names, and goes on to the
// folders below. One where something was found is always listed, and so is one that is
// other than noted in any way.
//
// The notes are believed for the same reason as the sockets beside them: the run directory
// is the user's alone, and no run is shown it. The walk at the end of a run goes by those
// of its beginning, without a file between them.
//
// They are the same in a file and in memory: they are used where they lie, so that to
// read them is to check them. A head, a record of one size for each directory, level by
// level and those of one folder together and by name, then the names, in the same order,
// each ended by a zero byte as the kernel wants it.
type walkCache struct {
	data  []byte
	names string
	count uint32
}

// cacheRec is one directory in which nothing was found, or (without inode) one that is
// only the way to others.
type cacheRec struct {
	dev, ino    uint64
	sec         int64
	nsec        uint32
	context     uint32
	first, many uint32 // the folders below
}

const (
	cacheMagic   = "walk\x00\x02\r\n"
	cacheHead    = len(cacheMagic) + 4
	cacheRecSize = 48
)

// rec is the record of a directory; 0 is the one that the walk began with.
func (c *walkCache) rec(i uint32) cacheRec {
	b := c.data[cacheHead+int(i)*cacheRecSize:][:cacheRecSize]
	num := binary.LittleEndian
	return cacheRec{
		dev: num.Uint64(b), ino: num.Uint64(b[8:]), sec: int64(num.Uint64(b[16:])), nsec: num.Uint32(b[24:]), //nolint:gosec // bits
		context: num.Uint32(b[28:]), first: num.Uint32(b[32:]), many: num.Uint32(b[36:]),
	}
}

// name is the name of a directory; a zero byte follows it.
func (c *walkCache) name(i uint32) string {
	b := c.data[cacheHead+int(i)*cacheRecSize+40:][:8]
	at := binary.LittleEndian.Uint32(b)
	return c.names[at : at+binary.LittleEndian.Uint32(b[4:])]
}

// find is the folder of r that has a name.
func (c *walkCache) find(r cacheRec, name string) (i uint32, ok bool) {
	low, high := r.first, r.first+r.many
	for low < high {
		i = (low + high) / 2
		switch order := strings.Compare(c.name(i), name); {
		case order == 0:
			return i, true
		case order < 0:
			low = i + 1
		default:
			high = i
		}
	}
	return 0, false
}

// tree is what was noted, with what was listed in its place.
func (c *walkCache) tree(i int32, listed map[int32]*cacheNode) *cacheNode {
	n := listed[i]
	if n == nil {
		n = &cacheNode{cacheRec: c.rec(uint32(i)), name: c.name(uint32(i))} //nolint:gosec // positive
		for at := n.first; at < n.first+n.many; at++ {
			n.children = append(n.children, c.tree(int32(at), listed)) //nolint:gosec // bounded when it is read
		}
		return n
	}
	n.name = c.name(uint32(i)) //nolint:gosec // positive
	for at, child := range n.children {
		if child.rec != noRec {
			n.children[at] = c.tree(child.rec, listed)
		}
	}
	return n
}

// encodeCache writes the nodes.
func encodeCache(top *cacheNode) []byte {
	var (
		num   = binary.LittleEndian
		body  = append([]byte(cacheMagic), 0, 0, 0, 0)
		names []byte
		total = uint32(1)
	)
	for level := []*cacheNode{top}; len(level) > 0; {
		var below []*cacheNode
		for _, n := range level {
			slices.SortFunc(n.children, func(a, b *cacheNode) int { return strings.Compare(a.name, b.name) })
			for _, v := range []uint64{n.dev, n.ino, uint64(n.sec)} { //nolint:gosec // bits
				body = num.AppendUint64(body, v)
			}
			many := uint32(len(n.children))                                                                       //nolint:gosec // no memory holds more
			for _, v := range []uint32{n.nsec, n.context, total, many, uint32(len(names)), uint32(len(n.name))} { //nolint:gosec // nor more than these
				body = num.AppendUint32(body, v)
			}
			names = append(append(names, n.name...), 0)
			total += many
			below = append(below, n.children...)
		}
		level = below
	}
	num.PutUint32(body[len(cacheMagic):], total)
	return append(body, names...)
}

// decodeCache takes what encodeCache wrote; nil if it did not write that. Every directory
// is below one that comes before it, and below no other: whoever goes on from one to the
// next meets each once.
func decodeCache(data []byte) *walkCache {
	if len(data) < cacheHead || string(data[:len(cacheMagic)]) != cacheMagic {
		return nil
	}
	c := &walkCache{data: data, count: binary.LittleEndian.Uint32(data[len(cacheMagic):])}
	rest := data[cacheHead:]
	if c.count == 0 || uint64(c.count)*cacheRecSize > uint64(len(rest)) {
		return nil
	}
	names := rest[int(c.count)*cacheRecSize:]
	// One zero behind each, as is checked below, and so none in any.
	if bytes.Count(names, []byte{0}) != int(c.count) || bytes.IndexByte(names, '/') >= 0 {
		return nil
	}
	first, at := uint64(1), uint64(0)
	for i := range c.count {
		b := rest[int(i)*cacheRecSize:][:cacheRecSize]
		many, size := binary.LittleEndian.Uint32(b[36:]), uint64(binary.LittleEndian.Uint32(b[44:]))
		if first != uint64(binary.LittleEndian.Uint32(b[32:])) || at != uint64(binary.LittleEndian.Uint32(b[40:])) ||
			first <= uint64(i) || size >= uint64(len(names))-at || names[at+size] != 0 || (size == 0) != (i == 0) {
			return nil
		}
		if name := names[at : at+size]; size <= 2 && (string(name) == "." || string(name) == "..") {
			return nil
		}
		first += uint64(many)
		at += size + 1
	}
	if first != uint64(c.count) || at != uint64(len(names)) {
		return nil
	}
	c.names = string(names)
	return c
}
