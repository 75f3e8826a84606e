package egress

import (
	"errors"
	"strconv"

	"github.com/caddyserver/caddy/v2"

	"postern/dnsguard"
)

// dns reads whom to ask, and how; the syntax is with App.UnmarshalCaddyfile.
func (p *parser) dns() error {
	begin := p.Token()
	d := &DNS{Upstreams: p.RemainingArgs()}
	p.app.DNS = d
	seen := map[string]bool{}
	opened, err := Block(p.Dispenser, "dns", func() error {
		name := p.Val()
		if seen[name] && name != "private_for" {
			return p.Errf("%s is given twice", name)
		}
		seen[name] = true
		return p.dnsLine(d, name)
	})
	if err != nil {
		return err
	}
	if len(d.Upstreams) == 0 && !opened {
		return At(begin, errors.New("wrong argument count: want dns [ADDRESS…] [{ … }], and one of them"))
	}
	if guard, err := d.guard(dnsguard.Config{}); err != nil {
		return At(begin, err)
	} else if err := guard.Close(); err != nil {
		return At(begin, err)
	}
	if _, err := d.ranges(); err != nil {
		return At(begin, err)
	}
	return nil
}

func (p *parser) dnsLine(d *DNS, name string) error {
	texts := map[string]*string{"deny_rcode": &d.DenyRcode, "cname": &d.CNAME, "private": &d.Private}
	times := map[string]*caddy.Duration{"max_ttl": &d.MaxTTL, "min_ttl": &d.MinTTL, "neg_ttl": &d.NegTTL}
	counts := map[string]*int{
		"wildcard_names": &d.WildcardNames, "wildcard_bytes": &d.WildcardBytes, "wildcard_sub": &d.WildcardSub, "qps": &d.QPS, "burst": &d.Burst,
	}
	switch {
	case texts[name] != nil:
		if !p.AllArgs(texts[name]) {
			return Want(p.Dispenser, name+" WORD")
		}
	case times[name] != nil:
		return p.duration(name, times[name])
	case counts[name] != nil:
		return p.count(name, counts[name])
	case name == "stub":
		return p.stub(d)
	case name == "same_case":
		if p.NextArg() {
			return Want(p.Dispenser, "same_case, and nothing on its line")
		}
		d.SameCase = true
	case name == "public":
		if d.Public = p.RemainingArgs(); len(d.Public) == 0 {
			return Want(p.Dispenser, "public CIDR…")
		}
	case name == "private_for":
		words := p.RemainingArgs()
		if len(words) < 2 {
			return Want(p.Dispenser, "private_for HOST CIDR…")
		}
		if d.PrivateFor == nil {
			d.PrivateFor = map[string][]string{}
		}
		d.PrivateFor[words[0]] = append(d.PrivateFor[words[0]], words[1:]...)
	default:
		return p.Errf("unrecognized dns option %q; want max_ttl, min_ttl, neg_ttl, deny_rcode, cname, private, private_for, public, wildcard_names, wildcard_bytes, wildcard_sub, qps, burst, stub or same_case", name)
	}
	return nil
}

// stub reads how names are answered on the sockets that launchers lend.
func (p *parser) stub(d *DNS) error {
	switch words := p.RemainingArgs(); {
	case len(words) == 2 && words[1] == "v6":
		d.Stub, d.StubIPv6 = words[0], true
	case len(words) == 1:
		d.Stub = words[0]
	default:
		return Want(p.Dispenser, "stub fake [v6], stub answer or stub off")
	}
	if _, _, err := d.stub(); err != nil {
		return p.WrapErr(err)
	}
	return nil
}

// count reads a positive number.
func (p *parser) count(name string, into *int) error {
	var text string
	if !p.AllArgs(&text) {
		return Want(p.Dispenser, name+" NUMBER")
	}
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 {
		return p.Errf("parse %s %q: want a number above zero", name, text)
	}
	*into = n
	return nil
}
