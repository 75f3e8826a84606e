package dnsguard

import (
	"encoding/json"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// egressCase is a line of proto "dns" of the egress case file.
type egressCase struct {
	ID, Proto, Input, Expect, Why, Source string
	Allow, Deny                           []string
	Queries                               *int `json:"expect_dns_queries"`
	Optional                              bool
}

// TestEgressDNSCases replays the DNS lines of the egress cases. They carry no
// options; d028 wants the private record of a mixed answer left out, which is the
// mode Drop, so that is what they are replayed with. (The cases in dns.jsonl say
// their mode, and have both.)
func TestEgressDNSCases(t *testing.T) {
	cases := readCases(t, "testdata/egress-dns.jsonl", func(line []byte) (c egressCase) {
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		return c
	})
	if len(cases) < 25 {
		t.Fatalf("only %d cases", len(cases))
	}
	for _, c := range cases {
		t.Run(c.ID, func(t *testing.T) { c.run(t) })
	}
}

// note is a remark in parentheses: "(QR=1)", "(EDNS client subnet)".
var note = regexp.MustCompile(`\(([^)]*)\)`)

func (c egressCase) run(t *testing.T) {
	t.Helper()
	l := newLab(t, Config{Private: Drop})
	set := rules(t, c.Allow, c.Deny)
	v := l.session(t, "s")
	v.policy = l.rulesOf(set)

	asked, answer, scripted := strings.Cut(c.Input, "=>")
	remark := ""
	if m := note.FindStringSubmatch(asked); m != nil {
		remark = m[1]
		asked = note.ReplaceAllString(asked, "")
	}
	questions := strings.Split(asked, "+")
	m := new(dns.Msg)
	m.Id, m.RecursionDesired = 99, true
	for _, text := range questions {
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		q := dns.Question{Name: fields[0], Qtype: dns.StringToType[fields[1]], Qclass: dns.ClassINET}
		if len(fields) == 3 {
			q.Qclass = dns.StringToClass[fields[2]]
		}
		m.Question = append(m.Question, q)
	}
	m.SetEdns0(1232, false)

	if scripted {
		l.up.say(func(q *dns.Msg, _ string) [][]byte {
			if strings.Contains(answer, "answer for") {
				return say(q, "other.com. 60 IN A 140.82.112.5")
			}
			var lines []string
			for addr := range strings.SplitSeq(answer, ",") {
				lines = append(lines, "$ 60 IN A "+strings.TrimSpace(addr))
			}
			return say(q, lines...)
		})
	}
	proto, times := UDP, 1
	switch remark {
	case "", "no question", "empty allowlist":
	case "opcode UPDATE":
		m.Opcode = dns.OpcodeUpdate
	case "QR=1":
		m.Response = true
	case "EDNS client subnet":
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_SUBNET{
			Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: netip.MustParseAddr("192.0.2.0").AsSlice(),
		})
	case "TC, retry over TCP":
		proto = TCP
	case "4096 queries/s from one session":
		times = 4096
		m.Question = []dns.Question{{Name: "api.github.com.", Qtype: dns.TypeA, Qclass: dns.ClassINET}}
	default:
		t.Fatalf("unknown remark %q", remark)
	}

	verdict := ""
	for range times {
		var got *dns.Msg
		if times > 1 {
			got = v.Answer(t.Context(), m, proto)
		} else {
			wire, err := m.Pack()
			if err != nil {
				t.Fatal(err)
			}
			got = roundTrip(t, v, wire, proto)
		}
		verdict = verdictOf(t, got, l.records)
	}
	if verdict != c.Expect {
		t.Errorf("verdict %s, want %s", verdict, c.Expect)
	}
	seen := l.up.queries()
	for _, q := range seen {
		if got := options(q.msg); len(got) > 0 {
			t.Errorf("upstream saw options %q", got)
		}
	}
	// Refused by its question, nothing leaves; refused by its answer, one does.
	if c.Queries != nil && len(seen) != *c.Queries || c.Expect != "allow" && !scripted && times == 1 && len(seen) > 0 {
		t.Errorf("%d upstream queries", len(seen))
	}
	if c.ID == "d028" && !slices.Equal(v.Pinned("api.github.com"), []netip.Addr{netip.MustParseAddr("140.82.112.5")}) {
		t.Errorf("pinned %v", v.Pinned("api.github.com"))
	}
}

// verdictOf reads the verdict off what the client and the audit log see. An
// answer that gives nothing must not have been recorded as allowed, but for a
// service binding, whose absence lets the client go on.
func verdictOf(t *testing.T, m *dns.Msg, recorded *records) string {
	t.Helper()
	all := recorded.take()
	switch {
	case m == nil:
		return "error" // dropped
	case len(all) == 0: // a repeated refusal
		return map[bool]string{true: "deny", false: "?"}[m.Rcode == dns.RcodeRefused]
	}
	r := all[len(all)-1]
	if r.Verdict == Allow && len(m.Answer) == 0 && r.Type != "HTTPS" && r.Type != "SVCB" {
		t.Errorf("an empty answer is recorded as allowed: %+v", r)
	}
	if r.Verdict != Allow && len(m.Answer) > 0 {
		t.Errorf("an answer is recorded as refused: %+v", r)
	}
	return string(r.Verdict)
}
