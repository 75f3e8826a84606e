package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"postern/integration/netlab"
)

// dnsAddr is the appliance's upstream resolver.
var dnsAddr = netip.MustParseAddr("9.9.9.9")

// publicAddr is what a name answers that a case says nothing about: a public
// address for each, so that it shows whose was dialled.
func publicAddr(name string) netip.Addr {
	h := fnv.New32a()
	_, _ = h.Write([]byte(canonical(name)))
	n := h.Sum32()
	return netip.AddrFrom4([4]byte{93, 184, byte(n >> 8), byte(n)})
}

// world is everything around the appliance, and the appliance.
type world struct {
	app     *appliance
	dns     *netlab.DNS
	watch   *netlab.Watch
	origins *originServer

	cases  []*testCase
	doors  map[*testCase]door
	barred map[*testCase]string // lists that no door took, and why
	serial int

	// given are the answers given since the last load, by name. The appliance
	// may keep an answer; a case must not be decided by that of another.
	given map[string]string

	mu    sync.Mutex
	local map[netip.AddrPort]bool // our own ends of connections to the appliance
}

// newWorld starts everything.
func newWorld(lab *netlab.Lab, binary, dir string, cases []*testCase) (w *world, err error) {
	w = &world{doors: map[*testCase]door{}, barred: map[*testCase]string{}, given: map[string]string{}, local: map[netip.AddrPort]bool{}}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	for _, c := range cases {
		if c.bad == nil {
			c.fill(netlab.LAN)
			w.cases = append(w.cases, c)
		}
	}
	if w.watch, err = lab.Watch(); err != nil {
		return w, err
	}
	if w.dns, err = netlab.ListenDNS(dnsAddr); err != nil {
		return w, err
	}
	w.dns.SetDefault(func(name string) netlab.Answer {
		return netlab.Answer{Addrs: []netip.Addr{publicAddr(name)}}
	})
	if w.origins, err = listenOrigins(originPorts(w.cases), lab.IPv6); err != nil {
		return w, err
	}
	scratch, err := os.MkdirTemp(dir, "app-")
	if err != nil {
		return w, fmt.Errorf("make directory: %w", err)
	}
	if w.app, err = startAppliance(binary, scratch, caddyfile(nil, nil, nil, dnsAddr.String(), 0)); err != nil {
		return w, err
	}
	if err := w.sortLists(w.app.accepts); err != nil {
		return w, err
	}
	if err := w.reload(nil); err != nil {
		// What adapting does not find, loading may. One by one it shows whose
		// list it is.
		if err := w.sortLists(w.app.loads); err != nil {
			return w, err
		}
		if err := w.reload(nil); err != nil {
			return w, err
		}
	}
	// The neighbour whose listener some cases knock at.
	if _, err := w.app.open("neighbour", "base", nil, otherPort, otherPort+1); err != nil {
		return w, fmt.Errorf("open the neighbour's session: %w", err)
	}
	return w, nil
}

func (w *world) close() {
	if w.app != nil {
		w.app.stop()
	}
	if w.origins != nil {
		w.origins.close()
	}
	if w.dns != nil {
		w.dns.Close()
	}
	if w.watch != nil {
		w.watch.Close()
	}
}

// alive fails when the appliance has gone: then nothing that follows means
// anything.
func (w *world) alive() error {
	select {
	case <-w.app.ended:
		return w.app.died()
	default:
		return nil
	}
}

// originPorts are the ports that cases want to reach somebody on.
func originPorts(cases []*testCase) []uint16 {
	ports := map[uint16]bool{80: true, 443: true, devPort: true}
	for _, c := range cases {
		for _, t := range c.targets() {
			if t.port != 0 && t.port != 53 && !ownPort(t.port) {
				ports[t.port] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(ports))
}

// trial says whether the appliance takes a configuration, and why not.
type trial func(config string) (ok bool, why string, err error)

// sortLists finds the door for every case's lists. Lists that are the same are
// asked about once.
func (w *world) sortLists(takes trial) error {
	clear(w.doors)
	clear(w.barred)
	known := map[string]*testCase{}
	for _, c := range w.cases {
		key := strings.ReplaceAll(c.policy(doorConfig), c.policyName(), "")
		if first, ok := known[key]; ok {
			if d, ok := w.doors[first]; ok {
				w.doors[c] = d
			} else {
				w.barred[c] = w.barred[first]
			}
			continue
		}
		known[key] = c
		if err := w.findDoor(c, takes); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) findDoor(c *testCase, takes trial) error {
	one := func(d door) string {
		return caddyfile([]*testCase{c}, map[*testCase]door{c: d}, nil, dnsAddr.String(), 0)
	}
	ok, why, err := takes(one(doorConfig))
	if err != nil || ok {
		w.doors[c] = doorConfig
		return err
	}
	// The second door, if at least the deny list is sound.
	ok, _, err = takes(one(doorSession))
	if err != nil {
		return err
	}
	if ok {
		httpPort, socksPort := c.ports()
		_, err := w.app.open(c.sessionID(), "base", c.sessionRules(), httpPort, socksPort)
		if err == nil {
			w.doors[c] = doorSession
			return w.app.close(c.sessionID())
		}
		why += "; by the session: " + err.Error()
	}
	w.barred[c] = why
	return nil
}

// reload loads the configuration of all cases again. The new generation has
// looked up nothing yet.
func (w *world) reload(revoked *testCase) error {
	w.serial++
	var usable []*testCase
	for _, c := range w.cases {
		if _, ok := w.doors[c]; ok {
			usable = append(usable, c)
		}
	}
	clear(w.given)
	return w.app.load(caddyfile(usable, w.doors, revoked, dnsAddr.String(), w.serial))
}

// dial connects to a listener of the appliance, and notes our end so that the
// watch's dials can be told apart.
func (w *world) dial(ctx context.Context, addr string) (*net.TCPConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to the session's listener: %w", err)
	}
	w.mu.Lock()
	w.local[conn.LocalAddr().(*net.TCPAddr).AddrPort()] = true //nolint:forcetypeassert // "tcp" gives no other
	w.mu.Unlock()
	return conn.(*net.TCPConn), nil //nolint:forcetypeassert // "tcp" gives no other
}

// dialled are the addresses the appliance tried to reach since the case began,
// without its resolver.
func (w *world) dialled() ([]netlab.Dial, error) {
	dials, err := w.watch.Dials()
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(dials, func(d netlab.Dial) bool {
		return w.local[d.Src] || d.Src.Addr() == dnsAddr || d.Dst.Addr() == dnsAddr && d.Dst.Port() == 53
	}), nil
}

// prepare sets the stage for a case.
func (w *world) prepare(c *testCase) error {
	response := ""
	if c.UpstreamResponse != nil {
		response = *c.UpstreamResponse
	}
	w.origins.reset(response)
	need := map[string]string{} // what the case's names must answer
	for _, t := range c.targets() {
		if n := t.name(); n != "" {
			need[n] = "public"
		}
	}
	for name, a := range c.Resolve {
		w.dns.Set(name, a)
		need[name] = fmt.Sprint(a)
	}
	for name, steps := range c.ResolveSeq {
		if name == "" {
			if ts := c.targets(); len(ts) > 0 {
				name = ts[0].name()
			}
		}
		w.dns.Set(name, steps...)
		need[name] = "in turn" // never the same again
	}
	for name, a := range need {
		// A case that counts lookups must not be helped by an earlier one.
		if old, ok := w.given[name]; ok && (old != a || a == "in turn" || c.ExpectDNSQueries != nil) {
			if err := w.reload(nil); err != nil {
				return err
			}
			break
		}
	}
	maps.Copy(w.given, need)
	w.dns.Forget()
	w.mu.Lock()
	clear(w.local)
	w.mu.Unlock()
	return w.watch.Forget()
}

// cleanUp takes the case's names away again.
func (w *world) cleanUp(c *testCase) {
	for name := range c.Resolve {
		w.dns.Set(name)
	}
	for name := range c.ResolveSeq {
		if name == "" {
			if ts := c.targets(); len(ts) > 0 {
				name = ts[0].name()
			}
		}
		w.dns.Set(name)
	}
	w.origins.reset("")
}
