package main

import (
	"errors"
	"fmt"
	"slices"

	"postern/caddy-modules/session/lease"
	"postern/launcher/sandbox"
)

// lookups says how names are looked up in the run. Without a network there is nothing to
// look up.
func (r *request) lookups() sandbox.DNSMode {
	if on := r.session().NetworkEnabled; on != nil && !*on {
		return sandbox.DNSOff
	}
	if r.DNS == "" {
		return sandbox.DNSAuto
	}
	return r.DNS
}

// askForNames asks for the sockets that a mode needs. A port that the user leads elsewhere
// is theirs.
func (l *launch) askForNames(mode sandbox.DNSMode) {
	if sandbox.SharedLoopback {
		return // mac_dns says it
	}
	var taken []uint16
	for _, g := range l.Ports.Grants {
		taken = append(taken, g.Inside)
	}
	for _, p := range l.Ports.Publish {
		taken = append(taken, p.Inside)
	}
	l.options.Low = slices.DeleteFunc(sandbox.DNSSockets(mode), func(s sandbox.LowPort) bool {
		return s.Network == "tcp" && slices.Contains(taken, s.Addr.Port())
	})
	l.options.Any = mode == sandbox.DNSAuto || mode == sandbox.DNSFake
	var told []uint16
	for _, s := range sandbox.DNSSockets(mode) {
		port := s.Addr.Port()
		if s.Network == "tcp" && slices.Contains(taken, port) && !slices.Contains(told, port) {
			told = append(told, port)
			l.say.warn("port %d inside is what -p or --host-port says: there is no way out by it but the proxies", port)
		}
	}
}

// owner is a sandbox that stands, and may have sockets.
type owner interface {
	Low() ([]sandbox.LowSocket, error)
	Pair() lease.Pair
}

// names are the sockets that are lent for names, of a sandbox that stands. There are none
// where the system does not give them, which is an error if they were asked for by name.
func names(p owner, mode sandbox.DNSMode) ([]lease.Lent, error) {
	if mode == sandbox.DNSOff {
		return nil, nil
	}
	low, err := p.Low()
	if err == nil && sandbox.SharedLoopback && mode == sandbox.DNSFake {
		err = &sandbox.Refusal{Reason: sandbox.ReasonLowPorts, Detail: "a run on macOS has no addresses of its own"}
	}
	if err == nil && !sandbox.SharedLoopback && len(low) > 0 && lease.OnHost(p.Pair().HTTP) {
		err = &sandbox.Refusal{
			Reason: sandbox.ReasonLowPorts, Detail: "the kernel does not tell the sandbox's network from this host's",
			Cure: "a kernel from Linux 5.14 on does",
		}
	}
	if err != nil {
		if mode == sandbox.DNSFake || mode == sandbox.DNSAnswer {
			return nil, needed(err, mode)
		}
		for i := range low {
			_ = low[i].Close() // nobody will answer
		}
		return nil, nil
	}
	return lentOf(low, mode), nil
}

// needed words a refusal of sockets that the user asked for.
func needed(err error, mode sandbox.DNSMode) error {
	r, ok := errors.AsType[*sandbox.Refusal](err)
	if !ok {
		return err
	}
	out := *r
	out.Detail = fmt.Sprintf("dns %s is not to be had: %s", mode, r.Detail)
	if out.Cure == "" {
		out.Cure = "leave dns at auto, which does without"
	}
	return &out
}

// lentOf says what each socket is for.
func lentOf(low []sandbox.LowSocket, mode sandbox.DNSMode) []lease.Lent {
	out := make([]lease.Lent, 0, len(low))
	for _, s := range low {
		use := lease.UseTransparent
		if sandbox.SharedLoopback || s.Addr.Port() == sandbox.DNSPort {
			use = lease.UseDNS
		}
		if mode == sandbox.DNSAnswer && use != lease.UseDNS {
			continue
		}
		out = append(out, lease.Lent{
			Socket:   lease.Socket{Use: use, Network: s.Network, Port: s.Addr.Port()},
			Listener: s.Listener, Packets: s.Packets,
		})
	}
	return out
}

// settle closes what the appliance does not serve, by the mode that it answered with:
// a program hears at once that nobody is there, and does not wait for an answer.
func (k *keeper) settle(mode string) {
	k.more = slices.DeleteFunc(k.more, func(s lease.Lent) bool {
		unserved := mode != lease.DNSFake && (mode != lease.DNSAnswer || s.Use != lease.UseDNS)
		if unserved {
			_ = s.Close()
		}
		return unserved
	})
}

// served warns of an appliance that does less than was asked for by name.
func (l *launch) served(mode sandbox.DNSMode, answer string) {
	switch {
	case mode == sandbox.DNSFake && answer != lease.DNSFake:
		l.say.warn("dns: fake is not what the appliance's configuration has: programs that ignore the proxies have no way out")
	case mode == sandbox.DNSAnswer && answer == "":
		l.say.warn("dns: answer is not what the appliance's configuration has: names are not looked up inside")
	}
}

// nameserver is where the run's resolver is, on a system whose own cannot be told.
func (k *keeper) nameserver() string {
	for _, s := range k.more {
		if sandbox.SharedLoopback && s.Packets != nil {
			return s.Packets.LocalAddr().String()
		}
	}
	return ""
}
