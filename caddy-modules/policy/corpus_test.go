package policy

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
)

// corpusCase is one line of testdata/egress.jsonl. input is a host (match), the
// request bytes (connect), the request line (http) or hex (socks5).
type corpusCase struct {
	ID         string              `json:"id"`
	Proto      string              `json:"proto"`
	Allow      []string            `json:"allow"`
	Deny       []string            `json:"deny"`
	Input      string              `json:"input"`
	Expect     string              `json:"expect"`
	ExpectSeq  []string            `json:"expect_seq"`
	Why        string              `json:"why"`
	Resolve    map[string][]string `json:"resolve"`
	ResolveSeq map[string][]string `json:"resolve_seq"`
	SNI        *string             `json:"sni"`
	Variant    string              `json:"tls_variant"`
	Timing     string              `json:"timing"`
}

func corpus(tb testing.TB, protos ...string) []corpusCase {
	tb.Helper()
	raw, err := os.ReadFile("testdata/egress.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	var cases []corpusCase
	scanner := bufio.NewScanner(bytes.NewReader(raw))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var c corpusCase
		if err := json.Unmarshal(scanner.Bytes(), &c); err != nil {
			tb.Fatalf("%s: %v", scanner.Text(), err)
		}
		if slices.Contains(protos, c.Proto) {
			cases = append(cases, c)
		}
	}
	if len(cases) == 0 {
		tb.Fatalf("no cases of %v", protos)
	}
	return cases
}

// The places that cases leave open. All but devPort are the appliance's own.
const (
	ownPort = "20001"
	devPort = "3000"
	lanIP   = "192.0.2.77"
)

func fillIn(text string) string {
	return strings.NewReplacer(
		"{HTTP_PORT}", ownPort, "{SOCKS_PORT}", ownPort, "{ADMIN_PORT}", ownPort,
		"{OTHER_SESSION_HTTP_PORT}", ownPort, "{GIT_GATEWAY_PORT}", ownPort,
		"{DEV_PORT}", devPort, "{LAN_IP}", lanIP,
	).Replace(text)
}

// ownListeners answers as the registry does: loopback, unspecified and the
// machine's own address on an own port.
func ownListeners(a netip.AddrPort) bool {
	ip := a.Addr()
	return a.Port() == 20001 && (ip.IsLoopback() || ip.IsUnspecified() || ip.String() == lanIP)
}

func (c corpusCase) set() (*Set, error) {
	rules := func(lines []string) (out []Rule, err error) {
		for _, line := range lines {
			r, err := ParseRule(line, Origin{File: "session"})
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
		return out, nil
	}
	allowed, err := rules(c.Allow)
	if err != nil {
		return nil, err
	}
	denied, err := rules(c.Deny)
	if err != nil {
		return nil, err
	}
	return Compile(Lists{Deny: denied, Allow: allowed}, ownListeners)
}

// verdict is what a proxy would come to for the target: the target itself, then
// every address that the case's resolver gives for it.
func (c corpusCase) verdict(s *Set, t Target) (string, Decision) {
	d := s.Decide(t)
	if !d.Allowed {
		return "deny", d
	}
	answers := []string{"140.82.112.5"}
	if a, ok := t.Host().Addr(); ok {
		answers = []string{a.String()}
	} else if given, ok := c.Resolve[t.Host().Name()]; ok {
		answers = given
	}
	answers = append(answers, c.ResolveSeq[t.Host().Name()]...)
	for _, text := range answers {
		if d = s.DecideAddr(t, netip.MustParseAddr(text)); !d.Allowed {
			return "deny", d
		}
	}
	return "allow", d
}

func TestCorpusMatch(t *testing.T) {
	for _, c := range corpus(t, "match") {
		t.Run(c.ID, func(t *testing.T) {
			got, why := "error", ""
			s, err := c.set()
			if err == nil {
				var h Host
				if h, err = ParseHost(c.Input); err == nil {
					target, err := NewTarget(h, 443, SchemeTCP)
					if err != nil {
						t.Fatal(err)
					}
					var d Decision
					got, d = c.verdict(s, target)
					why = d.Reason()
				}
			}
			if err != nil {
				why = err.Error()
			}
			if got != c.Expect {
				t.Errorf("allow %q deny %q host %q: got %s (%s), want %s: %s", c.Allow, c.Deny, c.Input, got, why, c.Expect, c.Why)
			}
			wantOneLine(t, why)
		})
	}
}

// Cases that are refused for their framing, which is the proxy's to see: their
// targets parse.
var framing = []string{"c160", "c161", "c165", "c168", "c171", "c172"}

func TestCorpusConnect(t *testing.T) {
	for _, c := range corpus(t, "connect") {
		t.Run(c.ID, func(t *testing.T) {
			request := fillIn(c.Input)
			line, _, _ := strings.Cut(request, "\r\n")
			authority := strings.TrimPrefix(line[:strings.LastIndex(line, " ")], "CONNECT ")
			authority = strings.TrimPrefix(authority, "connect ")
			c.check(t, authority, func(s string) (Target, error) { return ParseTarget(s, SchemeTCP) }, slices.Contains(framing, c.ID))
		})
	}
}

func TestCorpusHTTP(t *testing.T) {
	checked := 0
	for _, c := range corpus(t, "http") {
		method, rest, _ := strings.Cut(fillIn(c.Input), " ")
		uri, _, _ := strings.Cut(rest, " HTTP/")
		if len(uri) < 7 || !strings.EqualFold(uri[:7], "http://") || method == "CONNECT" {
			continue // origin-form and other schemes never reach a target
		}
		authority := uri[7:]
		if end := strings.IndexAny(authority, "/?# "); end >= 0 {
			authority = authority[:end]
		}
		checked++
		t.Run(c.ID, func(t *testing.T) {
			if c.ExpectSeq != nil {
				c.Expect = c.ExpectSeq[0]
			}
			// An error expected of a good authority is one of framing.
			good := authority == "api.github.com"
			c.check(t, authority, func(s string) (Target, error) { return ParseTargetOr(s, 80, SchemeHTTP) }, good && c.Expect == "error")
		})
	}
	if checked < 40 {
		t.Errorf("only %d cases had a target", checked)
	}
}

// check compares the verdict about one authority. Cases about what happens inside
// a tunnel (SNI, timing) need only a target that parses.
func (c corpusCase) check(t *testing.T, authority string, parse func(string) (Target, error), parses bool) {
	t.Helper()
	s, err := c.set()
	if err != nil {
		t.Fatal(err)
	}
	target, err := parse(authority)
	if err != nil {
		if c.Expect != "error" || parses {
			t.Errorf("%q: %v, want %s: %s", authority, err, c.Expect, c.Why)
		}
		wantOneLine(t, err.Error())
		return
	}
	if parses || c.SNI != nil || c.Variant != "" || c.Timing != "" || c.ID == "c155" {
		return
	}
	if again, err := ParseTarget(target.String(), target.Scheme()); err != nil || again != target {
		t.Errorf("%q: canonical text %q reads back as %v, %v", authority, target, again, err)
	}
	if c.ExpectSeq != nil {
		c.Expect = c.ExpectSeq[0]
	}
	got, d := c.verdict(s, target)
	if got != c.Expect {
		t.Errorf("%q: got %s (%s), want %s: %s", authority, got, d.Reason(), c.Expect, c.Why)
	}
	wantOneLine(t, d.Reason())
}

func TestCorpusSOCKS(t *testing.T) {
	checked := 0
	for _, c := range corpus(t, "socks5") {
		// greeting | request | more
		parts := strings.Split(c.Input, " | ")
		if len(parts) < 2 {
			continue
		}
		request, err := hex.DecodeString(strings.ReplaceAll(parts[1], " ", ""))
		if err != nil || len(request) < 7 || !bytes.HasPrefix(request, []byte{5, 1, 0}) {
			continue // other commands and versions are refused before any target
		}
		address, port := request[4:len(request)-2], request[len(request)-2:]
		var h Host
		var parseErr error
		switch request[3] {
		case 1, 4:
			a, _ := netip.AddrFromSlice(address)
			h = HostFromAddr(a)
		case 3:
			h, parseErr = ParseName(string(address[1:]))
		default:
			continue
		}
		checked++
		t.Run(c.ID, func(t *testing.T) {
			s, err := c.set()
			if err != nil {
				t.Fatal(err)
			}
			got := "error"
			var d Decision
			if parseErr == nil {
				target, err := NewTarget(h, uint16(port[0])<<8|uint16(port[1]), SchemeTCP)
				if err == nil {
					// The own port of these cases is 2019, as a client writes it.
					s.own = func(a netip.AddrPort) bool { return a.Port() == 2019 && a.Addr().IsLoopback() }
					got, d = c.verdict(s, target)
				}
			}
			if c.SNI != nil {
				return
			}
			if got != c.Expect {
				t.Errorf("%s: got %s (%s), want %s: %s", c.Input, got, d.Reason(), c.Expect, c.Why)
			}
		})
	}
	if checked < 20 {
		t.Errorf("only %d cases had a target", checked)
	}
}

// wantOneLine checks what every text for a person must be, since it goes into a
// status phrase.
func wantOneLine(t *testing.T, text string) {
	t.Helper()
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			t.Errorf("not one line of printable ASCII: %q", text)
			return
		}
	}
}
