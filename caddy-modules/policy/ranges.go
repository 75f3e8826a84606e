package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Ranges are addresses that names may resolve to, although their class is closed: what
// an operator says of the network that the appliance stands in. They open no name, no
// literal address, and nothing that a rule denies.
type Ranges struct {
	// Public are ranges for documentation and benchmarks (192.0.2.0/24, 198.18.0.0/15
	// …) that are in real use here, as in a laboratory. To names they are as good as
	// public ones.
	Public []netip.Prefix
	// PrivateFor has, for single names, the private ranges their addresses may lie in:
	// what the flag private of a rule says of every private range, narrowed to some.
	// Metadata endpoints stay refused.
	PrivateFor map[Host][]netip.Prefix
}

// Check finds what cannot be meant. Compile asks it too.
func (r *Ranges) Check() error {
	for host := range r.PrivateFor {
		if host.IsZero() {
			return errors.New("check private_for: a host is empty")
		}
		if _, literal := host.Addr(); literal {
			return fmt.Errorf("check private_for %s: it is an address, and resolves to nothing; want a name", host)
		}
	}
	return nil
}

// clone is r with slices and a map that nobody else has.
func (r *Ranges) clone() Ranges {
	out := Ranges{Public: slices.Clone(r.Public)}
	for host, ranges := range r.PrivateFor {
		if out.PrivateFor == nil {
			out.PrivateFor = make(map[Host][]netip.Prefix, len(r.PrivateFor))
		}
		out.PrivateFor[host] = slices.Clone(ranges)
	}
	return out
}

// public reports whether an address of a class counts as public. inner is what
// Classify found in it.
func (r *Ranges) public(class Class, inner netip.Addr) bool {
	return (class == Documentation || class == Benchmark) && within(r.Public, inner)
}

// private reports whether the name may lie at the address a, by its range. An address
// that merely carries a private one is not what the range was written for.
func (r *Ranges) private(host Host, class Class, a, inner netip.Addr) bool {
	return class.ByName() && inner == a && within(r.PrivateFor[host], inner)
}

func within(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}
