package ports

import "slices"

// Apart is the set without what need not be led where a run shares the host's loopback,
// as on macOS: a port that has the same number for both sides is there already.
func (s Set) Apart() Set {
	var out Set
	for _, p := range s.Publish {
		if p.Addr.IsValid() && !p.Addr.IsLoopback() || p.Host != p.Inside {
			out.Publish = append(out.Publish, p)
		}
	}
	for _, g := range s.Grants {
		if g.Host != g.Inside {
			out.Grants = append(out.Grants, g)
		}
	}
	return out
}

// Inside are the ports of the loopback that the run connects to, and those it listens at.
func (s Set) Inside() (reach, serve []uint16) {
	for _, g := range s.Grants {
		reach = append(reach, g.Inside)
	}
	for _, p := range s.Publish {
		serve = append(serve, p.Inside)
	}
	slices.Sort(reach)
	slices.Sort(serve)
	return slices.Compact(reach), slices.Compact(serve)
}
