package dnsguard

import (
	"net/netip"
	"slices"
	"time"
)

// maxPins bounds the addresses pinned to one name: a name whose short-lived
// answers rotate through more keeps the latest.
const maxPins = 256

// maxPinned is the number of names beyond which those whose pins are over are
// looked for; rules and budgets bound the others.
const maxPinned = 1024

// pin is one address that was handed out for one name.
type pin struct {
	addr  netip.Addr
	until time.Time // TTL and grace
	holds int       // connections that are open to it
}

func (p *pin) live(now time.Time) bool { return p.holds > 0 || p.until.After(now) }

// pins are the vetted addresses of each name of a session, latest last. An
// address outside of them is never a name's address, whatever some later or
// other answer says. Its owner locks.
type pins map[string][]*pin

// add pins addrs to name until the time given, or longer if they are already.
func (p *pins) add(name string, addrs []netip.Addr, until, now time.Time) {
	if *p == nil {
		*p = make(pins)
	}
	if len(*p) >= maxPinned {
		for other := range *p {
			p.sweep(other, now)
		}
	}
	list := p.sweep(name, now)
	for _, addr := range addrs {
		addr = addr.Unmap()
		if i := slices.IndexFunc(list, func(e *pin) bool { return e.addr == addr }); i >= 0 {
			if list[i].until.Before(until) {
				list[i].until = until
			}
			continue
		}
		list = append(list, &pin{addr: addr, until: until})
	}
	if over := len(list) - maxPins; over > 0 {
		list = slices.Delete(list, 0, over)
	}
	(*p)[name] = list
}

// sweep drops the pins of name that are over and returns the rest.
func (p pins) sweep(name string, now time.Time) []*pin {
	list := slices.DeleteFunc(p[name], func(e *pin) bool { return !e.live(now) })
	if len(list) == 0 {
		delete(p, name)
		return nil
	}
	p[name] = list
	return list
}

// of returns the live pins of name.
func (p pins) of(name string, now time.Time) []netip.Addr {
	list := p.sweep(name, now)
	addrs := make([]netip.Addr, len(list))
	for i, e := range list {
		addrs[i] = e.addr
	}
	return addrs
}

// names returns the names that addr is pinned to, sorted.
func (p pins) names(addr netip.Addr, now time.Time) []string {
	var names []string
	addr = addr.Unmap()
	for name, list := range p {
		if slices.ContainsFunc(list, func(e *pin) bool { return e.addr == addr && e.live(now) }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// find returns the live pin of addr for name.
func (p pins) find(name string, addr netip.Addr, now time.Time) *pin {
	addr = addr.Unmap()
	for _, e := range p[name] {
		if e.addr == addr && e.live(now) {
			return e
		}
	}
	return nil
}
