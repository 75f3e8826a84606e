package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/miekg/dns"

	"postern/caddy-modules/session/lease"
	"postern/integration/netlab"
)

// dnsWorld is everything around the appliance that DNS cases need, and the appliance.
type dnsWorld struct {
	lab     *netlab.Lab
	app     *appliance
	up      *netlab.DNS
	watch   *netlab.Watch
	origins *originServer
	dir     string
	serial  int

	mu      sync.Mutex
	options [][]string // of the messages that the resolver got since the last forget
}

// newDNSWorld starts everything. Origins listen on these ports; the appliance has the
// configuration that config gives with the place of the log in it.
func newDNSWorld(lab *netlab.Lab, binary, dir string, ports []uint16, config func(log string) string) (w *dnsWorld, err error) {
	w = &dnsWorld{lab: lab}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.watch, err = lab.Watch(); err != nil {
		return w, err
	}
	if w.up, err = netlab.ListenDNS(dnsAddr); err != nil {
		return w, err
	}
	if w.origins, err = listenOrigins(ports, lab.IPv6); err != nil {
		return w, err
	}
	if w.dir, err = os.MkdirTemp(dir, "app-"); err != nil {
		return w, fmt.Errorf("make directory: %w", err)
	}
	w.app, err = startAppliance(binary, w.dir, config(w.log()))
	return w, err
}

func (w *dnsWorld) close() {
	if w.app != nil {
		w.app.stop()
	}
	if w.origins != nil {
		w.origins.close()
	}
	if w.up != nil {
		w.up.Close()
	}
	if w.watch != nil {
		w.watch.Close()
	}
}

func (w *dnsWorld) log() string { return filepath.Join(w.dir, "caddy.json") }

func (w *dnsWorld) leaseSocket() string { return filepath.Join(w.dir, "run", "lease.sock") }

// say has the resolver answer like this from now on; nil is silence.
func (w *dnsWorld) say(script func(*dns.Msg, bool) [][]byte) {
	w.up.SetScript(func(q *dns.Msg, tcp bool) [][]byte {
		options, _ := optionCodes(q)
		w.mu.Lock()
		w.options = append(w.options, options)
		w.mu.Unlock()
		if script == nil {
			return nil
		}
		return script(q, tcp)
	})
}

// forget empties what the resolver has seen.
func (w *dnsWorld) forget() {
	w.up.Forget()
	w.mu.Lock()
	w.options = nil
	w.mu.Unlock()
}

// replayAll replays the cases, those with the same options under one configuration,
// and gives the results in the order of the cases.
func (w *dnsWorld) replayAll(cases []*dnsCase) []result {
	results := make([]result, len(cases))
	groups := map[string][]*dnsCase{}
	var order []string
	for i, c := range cases {
		switch {
		case c.bad != nil:
			results[i] = result{failed: true, got: c.bad.Error()}
		case c.Opts.todo() != "":
			results[i] = result{todo: c.Opts.todo()}
		default:
			key := c.Opts.block()
			if groups[key] == nil {
				order = append(order, key)
			}
			groups[key] = append(groups[key], c)
		}
	}
	for _, key := range order {
		policies, err := w.load(groups[key])
		for _, c := range groups[key] {
			if err != nil {
				results[c.index] = result{failed: true, got: err.Error()}
				continue
			}
			results[c.index] = w.replay(c, policies[c])
		}
	}
	return results
}

// load loads the configuration of cases with the same options.
func (w *dnsWorld) load(cases []*dnsCase) (map[*dnsCase]map[string]dnsPolicy, error) {
	policies := map[*dnsCase]map[string]dnsPolicy{}
	var all []dnsPolicy
	for _, c := range cases {
		policies[c] = map[string]dnsPolicy{}
		lists := map[string]dnsLists{"A": {c.Allow, c.Deny}}
		maps.Copy(lists, c.Sessions)
		for name, l := range lists {
			p, err := w.policy(fmt.Sprintf("case-%d-%s", c.index, name), l, c.Opts)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.ID, err)
			}
			policies[c][name] = p
			all = append(all, p)
		}
	}
	w.serial++
	return policies, w.app.load(dnsCaddyfile(cases[0].Opts, all, w.log(), w.serial))
}

// policy finds the door through which the lists may come. An entry that neither the
// configuration nor a session takes opens nothing, so that it is left out.
func (w *dnsWorld) policy(name string, l dnsLists, o dnsOpts) (dnsPolicy, error) {
	p := dnsPolicy{name: name, allow: l.Allow, deny: l.Deny}
	takes := func(p dnsPolicy) (bool, error) {
		ok, _, err := w.app.accepts(dnsCaddyfile(o, []dnsPolicy{p}, w.log(), 0))
		return ok, err
	}
	if ok, err := takes(p); ok || err != nil {
		return p, err
	}
	for _, list := range []*[]string{&p.allow, &p.deny} {
		var sound []string
		for _, e := range *list {
			ok, err := takes(dnsPolicy{name: name, allow: []string{e}})
			if err == nil && !ok && list == &p.allow {
				ok, err = w.app.brings(e)
			}
			if err != nil {
				return p, err
			}
			if ok {
				sound = append(sound, e)
			}
		}
		*list = sound
	}
	if ok, err := takes(p); ok || err != nil {
		return p, err
	}
	p.allow, p.brought = nil, p.allow
	ok, err := takes(p)
	if err == nil && !ok {
		err = fmt.Errorf("no door takes the lists %q and %q", l.Allow, l.Deny)
	}
	return p, err
}

// open opens the session of a case's policy.
func (w *dnsWorld) open(p dnsPolicy, fake bool) (*sandbox, error) {
	spec := lease.Spec{ID: p.name, Policy: p.name, EgressAllowlist: slices.Clone(p.brought)}
	s, err := openSandbox(w.lab, w.leaseSocket(), spec, fake)
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	return s, nil
}
