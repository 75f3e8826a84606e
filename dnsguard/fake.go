package dnsguard

import (
	"encoding/binary"
	"net/netip"
)

// fakeNet is where fake addresses come from: the benchmarking range of RFC 2544,
// which no network routes and the address rules refuse, so that one that leaks
// out of its sandbox leads nowhere.
var fakeNet = netip.MustParsePrefix("198.18.0.0/15")

// fakeCount is how many names one session can have: all of fakeNet but its
// first and last address.
const fakeCount = 1<<17 - 2

// fakes maps names to fake addresses and back, in the order of first use. A
// listener that takes every address of the range learns from the destination
// address which name the client meant. Its owner locks.
type fakes struct {
	index map[string]uint32
	names []string
}

// of returns the fake address of name, false when the range is used up.
func (f *fakes) of(name string) (netip.Addr, bool) {
	i, known := f.index[name]
	if !known {
		if len(f.names) >= fakeCount {
			return netip.Addr{}, false
		}
		if f.index == nil {
			f.index = make(map[string]uint32)
		}
		i = uint32(len(f.names)) //nolint:gosec // below fakeCount
		f.index[name] = i
		f.names = append(f.names, name)
	}
	var b [4]byte
	first := fakeNet.Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(first[:])+1+i)
	return netip.AddrFrom4(b), true
}

// name returns the name behind a fake address.
func (f *fakes) name(addr netip.Addr) (string, bool) {
	addr = addr.Unmap()
	if !fakeNet.Contains(addr) {
		return "", false
	}
	b, first := addr.As4(), fakeNet.Addr().As4()
	i := int64(binary.BigEndian.Uint32(b[:])) - int64(binary.BigEndian.Uint32(first[:])) - 1
	if i < 0 || i >= int64(len(f.names)) {
		return "", false
	}
	return f.names[i], true
}
