package dnsguard

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
)

// Where fake addresses come from. fakeNet is the benchmarking range of RFC 2544,
// which no network routes and the address rules refuse, so that one that leaks
// out of its sandbox leads nowhere. fakeNet6 is a range of unique local addresses
// (RFC 4193), of which the same holds.
var (
	fakeNet  = netip.MustParsePrefix("198.18.0.0/15")
	fakeNet6 = netip.MustParsePrefix("fd00:706f:7374::/64")
)

// fakeCount is how many names one session can have: all of fakeNet but its
// first and last address.
const fakeCount = 1<<17 - 2

// maxLoose is how many names that no rule bounds can have one: what is asked about or
// only reported is whatever a run thinks of, and would fill the range.
const maxLoose = 4096

// fakes maps names to fake addresses and back, in the order of first use. A
// listener that takes every address of the range learns from the destination
// address which name the client meant. Its owner locks.
type fakes struct {
	index map[string]uint32
	names []string
	// first is where in the range the first name is.
	first uint32
	// loose is how many names came as such.
	loose int
}

// of returns the place of name in the range, false when the range is used up. loose
// says that neither a list nor a budget bounds how many such names there are: then
// maxLoose does.
func (f *fakes) of(name string, loose bool) (place uint32, ok bool) {
	i, known := f.index[name]
	if !known {
		if len(f.names) >= fakeCount || loose && f.loose >= maxLoose {
			return 0, false
		}
		if loose {
			f.loose++
		}
		if f.index == nil {
			f.index = make(map[string]uint32)
		}
		i = uint32(len(f.names)) //nolint:gosec // below fakeCount
		f.index[name] = i
		f.names = append(f.names, name)
	}
	return 1 + (f.first+i)%fakeCount, true
}

// at returns the name at a place of the range.
func (f *fakes) at(place uint32) (string, bool) {
	if place < 1 || place > fakeCount {
		return "", false
	}
	i := (place - 1 + fakeCount - f.first) % fakeCount
	if int(i) >= len(f.names) {
		return "", false
	}
	return f.names[i], true
}

// name returns the name behind a fake address.
func (f *fakes) name(addr netip.Addr) (string, bool) {
	place, ok := fakePlace(addr)
	if !ok {
		return "", false
	}
	return f.at(place)
}

// elsewhere begins the range at a place that cannot be foretold, unless it has
// begun.
func (f *fakes) elsewhere() {
	if len(f.names) == 0 && f.first == 0 {
		f.first = 1 + rand.Uint32N(fakeCount-1) //nolint:gosec // a place, no secret
	}
}

// fakeAddr is the IPv4 address at a place, fakeAddr6 the IPv6 one.
func fakeAddr(place uint32) netip.Addr {
	b := fakeNet.Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+place)
	return netip.AddrFrom4(b)
}

func fakeAddr6(place uint32) netip.Addr {
	b := fakeNet6.Addr().As16()
	binary.BigEndian.PutUint32(b[12:], place)
	return netip.AddrFrom16(b)
}

// fakePlace is the place of an address in its range.
func fakePlace(addr netip.Addr) (place uint32, ok bool) {
	addr = addr.WithZone("").Unmap()
	switch {
	case fakeNet.Contains(addr):
		b, first := addr.As4(), fakeNet.Addr().As4()
		return binary.BigEndian.Uint32(b[:]) - binary.BigEndian.Uint32(first[:]), true
	case fakeNet6.Contains(addr):
		b := addr.As16()
		// One address for one name, and no other spelling of it.
		return binary.BigEndian.Uint32(b[12:]), binary.BigEndian.Uint32(b[8:12]) == 0
	default:
		return 0, false
	}
}

// IsFake says that an address is of the ranges that fake addresses come from,
// whoever they stand for.
func IsFake(addr netip.Addr) bool {
	addr = addr.WithZone("").Unmap()
	return fakeNet.Contains(addr) || fakeNet6.Contains(addr)
}
