package sandbox

import (
	"net/netip"
	"testing"

	"postern/dnsguard"
)

// The addresses that a sandbox has as its own are those that names are answered with, to
// the last: one that is not its own leads out of it, or nowhere.
func TestFakeRangesAreThoseOfTheGuard(t *testing.T) {
	for _, r := range []netip.Prefix{fakeRange4, fakeRange6} {
		first, last := r.Addr(), lastOf(r)
		for addr, want := range map[netip.Addr]bool{first.Prev(): false, first: true, last: true, last.Next(): false} {
			if got := dnsguard.IsFake(addr); got != want || r.Contains(addr) != want {
				t.Errorf("%s: the guard says %v of %s", r, got, addr)
			}
		}
	}
}

// lastOf is the last address of a network.
func lastOf(r netip.Prefix) netip.Addr {
	b := r.Addr().AsSlice()
	for i := r.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}
