package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// dnsOpts are the options of a case.
type dnsOpts struct {
	DenyRcode  string              `json:"deny_rcode"`
	CNAME      string              `json:"cname"`
	Private    string              `json:"private"`
	PrivateFor map[string][]string `json:"private_for"`
	TTLMin     int                 `json:"ttl_min"`
	TTLMax     int                 `json:"ttl_max"`
	NegTTLMax  int                 `json:"neg_ttl_max"`
	WCUnique   int                 `json:"wc_unique"`
	WCSubMax   int                 `json:"wc_sub_max"`
	WCBytes    int                 `json:"wc_bytes"`
	QPS        int                 `json:"qps"`
	Burst      int                 `json:"burst"`
	ZeroX20    bool                `json:"zero_x20"`
	FakeIP     bool                `json:"fake_ip"`

	dnsFixed
}

// dnsFixed are those that the appliance lets nobody set.
type dnsFixed struct {
	Types        types `json:"types"`
	UDPMax       int   `json:"udp_max"`
	MaxAnswers   int   `json:"max_answers"`
	CNAMEMax     int   `json:"cname_max"`
	TryTimeoutMS int   `json:"try_timeout_ms"`
	Tries        int   `json:"tries"`
	TotalMS      int   `json:"total_ms"`
}

// types is a list of record types, comparable as a whole.
type types string

// UnmarshalJSON joins the list.
func (t *types) UnmarshalJSON(raw []byte) error {
	var list []string
	if err := strictly(raw, &list); err != nil {
		return err
	}
	*t = types(strings.Join(list, " "))
	return nil
}

// defaultDNSOpts are the appliance's own.
func defaultDNSOpts() dnsOpts {
	return dnsOpts{
		DenyRcode: "NXDOMAIN", CNAME: "flatten", Private: "reject", TTLMin: 5, TTLMax: 300, NegTTLMax: 60,
		WCUnique: 256, WCSubMax: 100, WCBytes: 8192, QPS: 50, Burst: 100, ZeroX20: true,
		dnsFixed: dnsFixed{
			Types: "A AAAA", UDPMax: 1232, MaxAnswers: 16, CNAMEMax: 8, TryTimeoutMS: 2000, Tries: 2, TotalMS: 4500,
		},
	}
}

// todo says why the appliance cannot be set so, or nothing.
func (o dnsOpts) todo() string {
	if o.dnsFixed != defaultDNSOpts().dnsFixed {
		return "an option that the appliance lets nobody set"
	}
	return ""
}

// block is the dns block of the configuration. What is the default is left out, so
// that it is the appliance's own default which is tested.
func (o dnsOpts) block() string {
	var b strings.Builder
	d := defaultDNSOpts()
	line := func(differs bool, format string, args ...any) {
		if differs {
			fmt.Fprintf(&b, "\t\t\t"+format+"\n", args...)
		}
	}
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	line(o.DenyRcode != d.DenyRcode, "deny_rcode %s", o.DenyRcode)
	line(o.CNAME != d.CNAME, "cname %s", o.CNAME)
	line(o.Private != d.Private, "private %s", o.Private)
	for _, host := range slices.Sorted(maps.Keys(o.PrivateFor)) {
		line(true, "private_for %s %s", host, strings.Join(o.PrivateFor[host], " "))
	}
	line(o.TTLMin != d.TTLMin, "min_ttl %s", seconds(o.TTLMin))
	line(o.TTLMax != d.TTLMax, "max_ttl %s", seconds(o.TTLMax))
	line(o.NegTTLMax != d.NegTTLMax, "neg_ttl %s", seconds(o.NegTTLMax))
	line(o.WCUnique != d.WCUnique, "wildcard_names %d", o.WCUnique)
	line(o.WCSubMax != d.WCSubMax, "wildcard_sub %d", o.WCSubMax)
	line(o.WCBytes != d.WCBytes, "wildcard_bytes %d", o.WCBytes)
	line(o.QPS != d.QPS, "qps %d", o.QPS)
	line(o.Burst != d.Burst, "burst %d", o.Burst)
	line(!o.ZeroX20, "same_case")
	if b.Len() == 0 {
		return ""
	}
	return " {\n" + b.String() + "\t\t}"
}

// dnsCaddyfile is the whole configuration for cases with the same options.
func dnsCaddyfile(o dnsOpts, policies []dnsPolicy, log string, serial int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{
	# load %d
	admin 127.0.0.1:%d
	persist_config off
	auto_https off
	log {
		output file %s
		format json
		level DEBUG
	}
	egress {
		default_policy base
		policy base
		dns %s%s
`, serial, adminPort, log, dnsAddr, o.block())
	for _, p := range policies {
		b.WriteString(p.block())
	}
	b.WriteString("\t}\n}\n")
	return b.String()
}

// dnsPolicy is a policy and what a session that has it brings along.
type dnsPolicy struct {
	name        string
	allow, deny []string
	brought     []string // rules that the configuration refused and a session may bring
}

// block is the policy in the configuration.
func (p dnsPolicy) block() string {
	allow := p.allow
	if len(allow) == 0 && len(p.deny) == 0 {
		return "\t\tpolicy " + p.name + "\n" // allows nothing
	}
	if len(allow) == 0 {
		allow = []string{"unused.conform.example"} // a block must allow something
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\t\tpolicy %s {\n", p.name)
	for _, l := range []struct {
		name  string
		rules []string
	}{{"allow", allow}, {"deny", p.deny}} {
		if len(l.rules) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\t\t\t%s {\n", l.name)
		for _, r := range l.rules {
			fmt.Fprintf(&b, "\t\t\t\t%s\n", quote(r))
		}
		b.WriteString("\t\t\t}\n")
	}
	b.WriteString("\t\t}\n")
	return b.String()
}
