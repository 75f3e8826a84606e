package dnsguard

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
)

// Modes of Config.CNAME.
const (
	// Flatten gives the addresses at the end of a CNAME chain to the asked name
	// and does not show the chain. Its hops need not be listed, since CDNs
	// change theirs at will and the owner of the listed name chose them, but a
	// denied hop refuses the answer.
	Flatten = "flatten"
	// Strict wants every hop on the allowlist.
	Strict = "strict"
)

// Modes of Config.Private, for an answer with some address that the session may
// not reach.
const (
	// Reject refuses the whole answer: an honest name does not mix.
	Reject = "reject"
	// Drop leaves the address out, and refuses when none is left.
	Drop = "drop"
)

// Config configures a Guard. The zero Config is complete: every zero field has
// the default that stands with it.
type Config struct {
	// Upstreams are the resolvers that may be asked, best first: `1.1.1.1`,
	// `1.1.1.1:5353`, `tcp://1.1.1.1`, `tls://1.1.1.1#NAME`,
	// `https://1.1.1.1/dns-query`, `https://NAME/dns-query#1.1.1.1`. None means
	// the nameservers of ResolvConf, followed as that file changes.
	Upstreams []string
	// ResolvConf is read when there are no Upstreams; /etc/resolv.conf.
	ResolvConf string
	// RootCAs verify tls and https upstreams; the system's.
	RootCAs *x509.CertPool
	// Dial opens connections to upstreams; a net.Dialer's DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// SameCase turns off the random letter case of queries, for upstreams whose
	// answers do not repeat it and that do not answer over TCP.
	SameCase bool

	// Tries is how often each upstream is asked for one answer; 2.
	Tries int
	// TryTimeout bounds one try; 2 s. TotalTimeout bounds all of them; 4.5 s,
	// which is less than the 5 s after which stub resolvers ask again.
	TryTimeout, TotalTimeout time.Duration

	// MinTTL and MaxTTL bound how long an answer holds; 5 s and 300 s. The floor
	// keeps a name from changing between a check and a connection. NegTTL is
	// the most that an absence holds; 60 s.
	MinTTL, MaxTTL, NegTTL time.Duration
	// PinGrace is how long after its TTL an address stays the name's; 30 s.
	PinGrace time.Duration

	// Types are the record types that may be asked: a choice of A, AAAA, SRV;
	// A and AAAA.
	Types []string
	// CNAME is Flatten or Strict; Flatten. MaxCNAME is the most hops; 8.
	CNAME    string
	MaxCNAME int
	// Private is Reject or Drop; Reject. View.Resolve always rejects: what it
	// returns is dialled without another look at what was left out.
	Private string
	// MaxAnswers is the most addresses in one answer; 16.
	MaxAnswers int
	// UDPSize is the largest UDP answer in octets; 1232.
	UDPSize int

	// DenyRcode is the response code of a policy refusal: NXDOMAIN, REFUSED,
	// SERVFAIL or NODATA; NXDOMAIN. Clients ask again, and elsewhere, on
	// REFUSED and SERVFAIL, and take NXDOMAIN for final.
	DenyRcode string

	// WildcardNames is the most different names under one wildcard rule; 256.
	// WildcardSub is the most octets the star may stand for; 100. WildcardBytes
	// is the most octets of different sub-names under all wildcards; 8192. Each
	// holds for a session's life.
	WildcardNames, WildcardSub, WildcardBytes int
	// QPS is how many queries for allowed names a session may make a second;
	// 50. Burst is how many at once; 100.
	QPS, Burst int

	// FakeIP answers A with an address of 198.18.0.0/15 that stands for the
	// name (View.FakeName), without asking upstream, and AAAA with nothing, or
	// where FakeIP6 is set as well with one of fd00:706f:7374::/64.
	FakeIP, FakeIP6 bool
	// LocalHosts are names served inside the appliance, such as the git
	// gateway's. FakeIP gives them an address whatever the rules say; without
	// it they do not exist, as the proxies alone know them.
	LocalHosts []string

	// Store keeps the sessions' state over configurations; one of this Guard's
	// own.
	Store *Store
	// Record gets every judged query, may be nil, and must not block.
	Record func(Record)
	// Log gets the same at debug level, at info what failed, and faults of the guard itself
	// as errors; discarded.
	Log *slog.Logger

	now          func() time.Time
	secondFamily time.Duration
}

// Rcodes by the names of Config.DenyRcode.
var denyRcodes = map[string]int{
	"NXDOMAIN": dns.RcodeNameError,
	"REFUSED":  dns.RcodeRefused,
	"SERVFAIL": dns.RcodeServerFailure,
	"NODATA":   dns.RcodeSuccess,
}

// complete fills in defaults and refuses what cannot work.
func (c *Config) complete() error {
	orInt := func(p *int, name string, def, low, high int) error {
		if *p == 0 {
			*p = def
		}
		if *p < low || *p > high {
			return fmt.Errorf("%s %d is not within %d to %d", name, *p, low, high)
		}
		return nil
	}
	orTime := func(p *time.Duration, name string, def, high time.Duration) error {
		if *p == 0 {
			*p = def
		}
		if *p < 0 || *p > high {
			return fmt.Errorf("%s %v is not within 0 to %v", name, *p, high)
		}
		return nil
	}
	if err := errors.Join(
		orInt(&c.Tries, "tries", 2, 1, 10),
		orInt(&c.MaxCNAME, "max_cname", 8, 1, 32),
		orInt(&c.MaxAnswers, "max_answers", 16, 1, maxAddrs),
		orInt(&c.UDPSize, "udp_size", ednsSize, dns.MinMsgSize, 4096),
		orInt(&c.WildcardNames, "wildcard_names", 256, 1, 1<<20),
		orInt(&c.WildcardSub, "wildcard_sub", 100, 1, 253),
		orInt(&c.WildcardBytes, "wildcard_bytes", 8192, 1, 1<<24),
		orInt(&c.QPS, "qps", 50, 1, 1<<20),
		orInt(&c.Burst, "burst", 2*c.QPS, 1, 1<<20),
		orTime(&c.TryTimeout, "try_timeout", 2*time.Second, time.Minute),
		orTime(&c.TotalTimeout, "total_timeout", 4500*time.Millisecond, time.Minute),
		orTime(&c.MinTTL, "min_ttl", 5*time.Second, time.Hour),
		orTime(&c.MaxTTL, "max_ttl", 300*time.Second, 24*time.Hour),
		orTime(&c.NegTTL, "neg_ttl", time.Minute, time.Hour),
		orTime(&c.PinGrace, "pin_grace", 30*time.Second, time.Hour),
	); err != nil {
		return err
	}
	if c.MinTTL > c.MaxTTL {
		return fmt.Errorf("min_ttl %v is above max_ttl %v", c.MinTTL, c.MaxTTL)
	}
	choices := func(p *string, name string, first string, more ...string) error {
		if *p == "" {
			*p = first
		}
		if *p != first && !slices.Contains(more, *p) {
			return fmt.Errorf("unknown %s %q; want %s or %s", name, *p, first, strings.Join(more, " or "))
		}
		return nil
	}
	if err := errors.Join(
		choices(&c.CNAME, "cname mode", Flatten, Strict),
		choices(&c.Private, "private mode", Reject, Drop),
		choices(&c.DenyRcode, "deny_rcode", "NXDOMAIN", "REFUSED", "SERVFAIL", "NODATA"),
	); err != nil {
		return err
	}
	if c.Types == nil {
		c.Types = []string{"A", "AAAA"}
	}
	for _, t := range c.Types {
		if t != "A" && t != "AAAA" && t != "SRV" {
			return fmt.Errorf("type %q cannot be handed out (A, AAAA, SRV)", t)
		}
	}
	if c.ResolvConf == "" {
		c.ResolvConf = defaultResolvConf
	}
	if c.Dial == nil {
		// The host's resolver is asked for nothing but the name in an https
		// upstream without addresses; never through cgo, which would read
		// other sources than resolv.conf.
		c.Dial = (&net.Dialer{Resolver: &net.Resolver{PreferGo: true}}).DialContext
	}
	if c.Store == nil {
		c.Store = new(Store)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.secondFamily == 0 {
		c.secondFamily = secondFamily
	}
	if c.now == nil {
		c.now = time.Now
	}
	return nil
}

func localHosts(names []string) (map[policy.Host]struct{}, error) {
	hosts := make(map[policy.Host]struct{}, len(names))
	for _, name := range names {
		host, err := policy.ParseName(name)
		if err != nil {
			return nil, fmt.Errorf("parse local_hosts %q: %w", name, err)
		}
		if host.Name() == "" {
			return nil, fmt.Errorf("parse local_hosts %q: it is an address", name)
		}
		hosts[host] = struct{}{}
	}
	return hosts, nil
}
