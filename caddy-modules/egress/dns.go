package egress

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/caddyserver/caddy/v2"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/session"
	"postern/dnsguard"
)

// linger is how long the guard of an old configuration is kept for lookups that
// began with it. A lookup takes 4.5 s at most.
const linger = 10 * time.Second

// DNS says whom to ask for the addresses of allowed names, and what of the answers
// sessions get. Names that no rule allows are never asked for.
type DNS struct {
	// The resolvers, best first: 1.1.1.1, 1.1.1.1:5353, tcp://1.1.1.1,
	// tls://1.1.1.1#NAME or https://1.1.1.1/dns-query. Default: those of
	// /etc/resolv.conf, as that file changes.
	Upstreams []string `json:"upstreams,omitempty"`

	// The longest time an answer is kept. Default: 5m.
	MaxTTL caddy.Duration `json:"max_ttl,omitempty"`

	// The shortest time an answer is kept, so that a name does not change between a check
	// and a connection. Default: 5s.
	MinTTL caddy.Duration `json:"min_ttl,omitempty"`

	// The longest time it is remembered that there is no answer. Default: 1m.
	NegTTL caddy.Duration `json:"neg_ttl,omitempty"`

	// The response code of a refusal: NXDOMAIN, REFUSED, SERVFAIL or NODATA. Default:
	// NXDOMAIN, which clients take for final.
	DenyRcode string `json:"deny_rcode,omitempty"`

	// Whether the names between an allowed name and its addresses must be allowed as
	// well, strict, or only must not be denied, flatten. Default: flatten.
	CNAME string `json:"cname,omitempty"`

	// What an answer with a private address that no rule opens is: reject refuses all of
	// it, drop leaves the address out. Connections are always refused such an answer.
	// Default: reject.
	Private string `json:"private,omitempty"`

	// The private ranges in which addresses of single names may lie. Default: none.
	PrivateFor map[string][]string `json:"private_for,omitempty"`

	// Ranges for documentation and benchmarks that are in use here, as in a laboratory.
	// Default: none.
	Public []string `json:"public,omitempty"`

	// How names are answered on the sockets that launchers lend for it: fake, with
	// addresses that stand for names and lead back here, where the sandbox has listeners
	// for them, else as answer; answer, with the addresses of the names; off, not at all,
	// for sessions that are opened from then on. Default: fake.
	Stub string `json:"stub,omitempty"`

	// Make up addresses of IPv6 too, where the sandbox has listeners for those. Default:
	// false.
	StubIPv6 bool `json:"stub_v6,omitempty"`

	// How many names one session may ask for below a wildcard. Default: 256.
	WildcardNames int `json:"wildcard_names,omitempty"`

	// How many bytes the names may have together that one session asks for below
	// wildcards. Default: 8192.
	WildcardBytes int `json:"wildcard_bytes,omitempty"`

	// How many bytes a wildcard may stand for. Default: 100.
	WildcardSub int `json:"wildcard_sub,omitempty"`

	// How many queries a session may make each second, and how many at once. Default: 50
	// and twice as many.
	QPS   int `json:"qps,omitempty"`
	Burst int `json:"burst,omitempty"`

	// Do not mix the case of queries at random, for resolvers whose answers do not
	// repeat it. Default: false.
	SameCase bool `json:"same_case,omitempty"`
}

// guard makes the guard of this configuration, with what conf has besides.
func (d *DNS) guard(conf dnsguard.Config) (*dnsguard.Guard, error) {
	if d == nil {
		return dnsguard.New(conf)
	}
	conf.Upstreams = d.Upstreams
	conf.MaxTTL, conf.MinTTL, conf.NegTTL = time.Duration(d.MaxTTL), time.Duration(d.MinTTL), time.Duration(d.NegTTL)
	conf.DenyRcode, conf.CNAME, conf.Private = d.DenyRcode, d.CNAME, d.Private
	conf.WildcardNames, conf.WildcardBytes, conf.WildcardSub = d.WildcardNames, d.WildcardBytes, d.WildcardSub
	conf.QPS, conf.Burst, conf.SameCase = d.QPS, d.Burst, d.SameCase
	return dnsguard.New(conf)
}

// ranges reads what addresses mean here. They are the policies': whoever dials asks these.
func (d *DNS) ranges() (r policy.Ranges, err error) {
	if d == nil {
		return r, nil
	}
	if r.Public, err = prefixes("public", d.Public); err != nil {
		return r, err
	}
	for name, texts := range d.PrivateFor {
		host, err := policy.ParseName(name)
		if err != nil {
			return r, fmt.Errorf("parse private_for %q: %w", name, err)
		}
		if r.PrivateFor == nil {
			r.PrivateFor = map[policy.Host][]netip.Prefix{}
		}
		if r.PrivateFor[host], err = prefixes("private_for "+name, texts); err != nil {
			return r, err
		}
	}
	return r, r.Check()
}

// stub reads how names are answered on lent sockets.
func (d *DNS) stub() (mode session.Stub, v6 bool, err error) {
	if d == nil {
		return session.StubFake, false, nil
	}
	switch d.Stub {
	case "", "fake":
		return session.StubFake, d.StubIPv6, nil
	case "answer":
		mode = session.StubAnswer
	case "off":
		mode = session.StubOff
	default:
		return 0, false, fmt.Errorf("parse stub %q: want fake, answer or off", d.Stub)
	}
	if d.StubIPv6 {
		return 0, false, fmt.Errorf("parse stub %s: v6 is for made-up addresses, so for fake alone", d.Stub)
	}
	return mode, false, nil
}

func prefixes(name string, texts []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix != prefix.Masked() {
			return nil, fmt.Errorf("parse %s: %q is no network, as 10.9.0.0/16 is one", name, text)
		}
		out = append(out, prefix)
	}
	return out, nil
}
