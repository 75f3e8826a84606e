package session

import (
	"cmp"

	"postern/caddy-modules/proxy"
	"postern/caddy-modules/session/lease"
)

// Caps bound what a session may have open at a time and what it may move in its life.
type Caps = lease.Caps

// narrow is c where by has no smaller bound.
func narrow(c, by Caps) Caps {
	return Caps{
		Tunnels: lesser(c.Tunnels, by.Tunnels), Requests: lesser(c.Requests, by.Requests),
		PerSecond: lesser(c.PerSecond, by.PerSecond), Bytes: lesser(c.Bytes, by.Bytes),
	}
}

func lesser[T cmp.Ordered](a, b T) T {
	var none T
	switch {
	case a == none:
		return b
	case b == none:
		return a
	default:
		return min(a, b)
	}
}

// caps are those of a session: of all, of its policy, and its own. None of them can
// lift what another has.
func (v *view) caps(t *terms) Caps {
	if v.gen == nil {
		return t.caps
	}
	l := v.gen.Limits
	all := Caps{Tunnels: l.Tunnels, Requests: l.Requests, PerSecond: l.PerSecond, Bytes: l.Bytes}
	return narrow(narrow(all, v.gen.PolicyCaps[v.policy]), t.caps)
}

// adopt has a view and its caps hold from now on.
func (s *session) adopt(v *view) {
	c := v.caps(s.terms.Load())
	s.usage.Set(proxy.Limits{Tunnels: c.Tunnels, Requests: c.Requests, PerSecond: c.PerSecond, Bytes: c.Bytes})
	s.view.Store(v)
}
