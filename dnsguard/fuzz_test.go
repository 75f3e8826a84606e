package dnsguard

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
)

// caseMessages are the queries of the case files, packed, as seeds.
func caseMessages(f *testing.F) [][]byte {
	f.Helper()
	file, err := os.Open("testdata/dns.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	var out [][]byte
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var c struct{ Query *struct{ Name, Type string } }
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			f.Fatal(err)
		}
		if c.Query == nil || c.Query.Name == "" || strings.Contains(c.Query.Name, "{") {
			continue
		}
		if wire, err := query(c.Query.Name, dns.StringToType[c.Query.Type]).Pack(); err == nil {
			out = append(out, wire)
		}
	}
	return out
}

// FuzzAnswer puts any message before the guard and holds what every reply has in
// common: it packs within its size, answers the question that was asked, gives
// addresses for allowed names only, and no name leaves that is not allowed.
func FuzzAnswer(f *testing.F) {
	for _, wire := range caseMessages(f) {
		f.Add(wire, false)
	}
	set := rules(f, []string{"*.example.com", "api.github.com"}, []string{"evil.example.com"})
	var left []string
	g, err := New(Config{
		Upstreams: []string{"192.0.2.53"}, QPS: 1 << 20, Burst: 1 << 20, WildcardNames: 1 << 20, WildcardBytes: 1 << 24,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer server.Close()
				buf := make([]byte, dns.MaxMsgSize)
				n, err := server.Read(buf)
				if err != nil {
					return
				}
				q := new(dns.Msg)
				if q.Unpack(buf[:n]) != nil {
					panic("a query that does not unpack has left")
				}
				left = append(left, q.Question[0].Name)
				_, _ = server.Write(answerAll(q, UDP)[0])
				_, _ = server.Read(buf)
			}()
			return client, nil
		},
	})
	if err != nil {
		f.Fatal(err)
	}
	v := g.Session("s", func() *policy.Set { return set })
	f.Cleanup(func() { v.Close(); g.Close() })
	f.Fuzz(func(t *testing.T, wire []byte, stream bool) {
		req := new(dns.Msg)
		if req.Unpack(wire) != nil {
			return
		}
		left = nil
		proto, size := UDP, 1232
		if stream {
			proto, size = TCP, dns.MaxMsgSize
		}
		m := v.Answer(t.Context(), req, proto)
		if m == nil {
			if !req.Response {
				t.Fatal("a query has no answer")
			}
			return
		}
		packed, err := m.Pack()
		if err != nil || len(packed) > size {
			t.Fatalf("%d octets, %v", len(packed), err)
		}
		if !m.Response || m.Id != req.Id || len(m.Answer) > 16 {
			t.Fatalf("%v", m)
		}
		allowed := func(name string) bool {
			labels := dns.SplitDomainName(strings.ToLower(name))
			n := len(labels)
			if n < 3 || labels[n-1] != "com" || n == 3 && labels[0] == "evil" && labels[1] == "example" {
				return false
			}
			return labels[n-2] == "example" || n == 3 && labels[0] == "api" && labels[1] == "github"
		}
		for _, name := range left {
			if !allowed(name) || strings.ContainsAny(name, `\*`) {
				t.Fatalf("%q has left", name)
			}
		}
		for _, record := range m.Answer {
			h := record.Header()
			if h.Name != req.Question[0].Name || h.Rrtype != req.Question[0].Qtype {
				t.Fatalf("%v does not answer %v", record, req.Question[0])
			}
			if !allowed(h.Name) && !strings.Contains(strings.ToLower(h.Name), "localhost") && h.Rrtype != dns.TypePTR {
				t.Fatalf("%v is not allowed", record)
			}
		}
		if len(m.Answer) > 0 && m.Rcode != dns.RcodeSuccess {
			t.Fatalf("%v", m)
		}
		again := new(dns.Msg)
		if err := again.Unpack(packed); err != nil {
			t.Fatalf("the reply does not unpack: %v", err)
		}
	})
}

// FuzzReply puts any upstream message through matching, walking and vetting: no
// address comes out that the policy refuses or that is not in the message.
func FuzzReply(f *testing.F) {
	host, err := policy.ParseName("a.example.com")
	if err != nil {
		f.Fatal(err)
	}
	q := newQuery("a.example.com", dns.TypeA, false)
	q.Id = 1
	for _, records := range [][]string{
		{good},
		{"$ 60 IN CNAME b.example.", "b.example. 60 IN A 203.0.113.1"},
		{"$ 60 IN CNAME a.example.com."},
		{"$ 60 IN A 127.0.0.1", good},
		{"b.example. 1 IN A 203.0.113.1"},
		{`$ 60 IN CNAME a\.b.example.`},
	} {
		f.Add(say(q, records...)[0])
	}
	g, err := New(Config{Upstreams: []string{"192.0.2.53"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { g.Close() })
	set := rules(f, []string{"a.example.com"}, nil)
	target, err := policy.NewTarget(host, 443, policy.SchemeTCP)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		m := new(dns.Msg)
		if m.Unpack(wire) != nil || matchReply(m, q, true) != matchFull {
			return
		}
		found := walk(m, host, dns.TypeA, 8)
		if len(found.hops) > 8 || found.ttl < 0 || found.err != nil && found.found() {
			t.Fatalf("%+v", found)
		}
		out := g.vet(set, target, found, Reject)
		for _, addr := range out.addrs {
			class, _ := policy.Classify(addr)
			if class != policy.Public && !testNets[0].Contains(addr) {
				t.Fatalf("%s (%s) is let through", addr, class)
			}
			in := func(rr dns.RR) bool {
				a, ok := rr.(*dns.A)
				got, valid := netip.AddrFromSlice(a4(a, ok))
				return ok && valid && got == addr
			}
			ok := false
			for _, rr := range m.Answer {
				ok = ok || in(rr)
			}
			if !ok {
				t.Fatalf("%s is not in the message", addr)
			}
		}
	})
}

func a4(a *dns.A, ok bool) []byte {
	if !ok {
		return nil
	}
	return a.A.To4()
}

func FuzzName(f *testing.F) {
	for _, seed := range []string{"a.example.com.", `evil\.github.com.`, `a\000b.`, "127.1.", ".", "", "*.x.", "A_B.c", "1.0.0.127.in-addr.arpa."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := readName(text)
		if err != nil || s.kind == kindSpecial {
			return
		}
		if s.name != strings.ToLower(s.name) || len(s.name) > 253 || strings.HasSuffix(s.name, ".") || s.host.Name() != s.name {
			t.Fatalf("%q is read as %q", text, s.name)
		}
		again, err := readName(s.name + ".")
		if err != nil || again != s {
			t.Fatalf("%q is read as %+v and then as %+v, %v", text, s, again, err)
		}
		// On the wire it is the same labels.
		buf := make([]byte, 256)
		n, err := dns.PackDomainName(s.name+".", buf, 0, nil, false)
		if err != nil {
			t.Fatalf("%q does not pack: %v", s.name, err)
		}
		if back, _, err := dns.UnpackDomainName(buf[:n], 0); err != nil || back != s.name+"." {
			t.Fatalf("%q comes back as %q, %v", s.name, back, err)
		}
		reverseAddr(s.name)
	})
}

func FuzzConfigText(f *testing.F) {
	for _, seed := range []string{
		"1.1.1.1", "tls://1.1.1.1#dns.example", "https://dns.example/dns-query#192.0.2.1", "[::1]:53", "fe80::1%eth0",
		"nameserver 192.0.2.1\noptions edns0\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if spec, err := parseUpstream(text); err == nil {
			if spec.url == nil && (!spec.addr.IsValid() || spec.addr.Port() == 0) || spec.url != nil && spec.url.User != nil {
				t.Fatalf("%q: %+v", text, spec)
			}
		}
		servers, err := parseResolvConf(strings.NewReader(text))
		if len(servers) > maxNameservers || (len(servers) == 0) != (err != nil) {
			t.Fatalf("%q: %v, %v", text, servers, err)
		}
	})
}
