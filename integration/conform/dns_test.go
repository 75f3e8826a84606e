package main

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

func TestDNSSamplePasses(t *testing.T) {
	const file = "testdata/dns.jsonl"
	code, out, stderr := conformRun(t, "dns", file)
	if want := fmt.Sprintf("%d passed, 0 failed\n", len(sample(t, file))-1); code != exitPassed || out != want { // one is _defaults
		t.Errorf("exit status %d, output\n%s%s", code, out, stderr)
	}
}

// A wrong expectation must come out as failed, whatever it is wrong about; and
// only that.
func TestWrongDNSExpectationsFail(t *testing.T) {
	cases := sample(t, "testdata/dns.jsonl")
	var lines []any
	change := func(id, newID string, fields, expect map[string]any) {
		c := maps.Clone(cases[id])
		if c == nil {
			t.Fatalf("no case %s", id)
		}
		maps.Copy(c, fields)
		if expect != nil {
			e := maps.Clone(c["expect"].(map[string]any))
			maps.Copy(e, expect)
			c["expect"] = e
		}
		c["id"] = newID
		lines = append(lines, c)
	}
	type m = map[string]any
	change("match-exact-case", "rcode", nil, m{"rcode": "NXDOMAIN"})
	change("match-exact-case", "spelling", nil, m{"answers": []string{"api.github.com A 203.0.113.10"}})
	change("match-mid-two", "lookup", nil, m{"upstream_queries": 1})
	change("match-bad-pattern-two-stars", "bad-pattern", nil, m{"rcode": "NOERROR"})
	change("type-svcb", "explanation", nil, m{"ede": 15})
	change("qr-set", "reply", nil, m{"rcode": "FORMERR"})
	change("match-exact-case", "silence", nil, m{"rcode": "DROP"})
	change("edns-cookie-stripped", "options", nil, m{"upstream_edns_options": []string{"10"}})
	change("cname-outside-flatten", "ttl", nil, m{"ttl": 31})
	change("cname-outside-flatten", "pin", nil, m{"pinned": m{"registry.example.org": []string{"203.0.113.11"}}})
	change("cname-outside-flatten", "no-pin", nil, m{"pinned": m{}})
	change("cname-outside-flatten", "not-pinned", nil, m{"not_pinned": []string{"203.0.113.10"}})
	change("cname-outside-strict", "option", m{"opts": m{}}, nil)
	change("answer-extra-sections", "authority", nil, m{"authority": []string{"example.com NS ns.evil.example."}})
	change("up-nxdomain", "negative-ttl", nil, m{"neg_ttl": 59})
	change("up-truncated", "over-tcp", nil, m{"upstream_queries": 1})
	change("limit-udp-no-edns", "truncated", nil, m{"tc": true})
	change("limit-rate", "no-rate", m{"opts": m{"qps": 5000, "burst": 10000}}, nil)
	change("session-ended", "lives", m{"session": "A"}, nil)
	change("pin-dial", "dials", nil, m{"proxy": m{"connect": "a.example.com:443", "dials": []string{"203.0.113.11:443"}}})
	change("pin-denied-not-resolved", "status", nil, m{"proxy": m{"connect": "evil.example:443", "status": 200}})
	change("fakeip-same", "no-fake", m{"opts": m{}}, nil)
	change("cname-outside-strict", "ttl-of-nothing", nil, m{"ttl": 30})
	change("match-mid-two", "options-of-nothing", nil, m{"upstream_edns_options": []string{}})
	change("up-edns-back", "bad-explanation", m{"upstream": m{"edns": m{"ede": "many:x"}, "rcode": "NOERROR", "answer": []string{"a.example.com. 60 IN A 203.0.113.10"}}}, nil)
	change("up-nxdomain", "no-number", nil, m{"no_ede": 70000})
	change("match-exact-case", "unknown-field", m{"colour": "blue"}, nil)
	change("match-exact-case", "unknown-log", nil, m{"log": "poem"})
	change("match-exact-case", "unknown-option", m{"opts": m{"tries": 3}}, nil)
	wrong := len(lines)
	change("match-exact-case", "good-1", nil, nil)
	change("match-mid-two", "good-2", nil, nil)
	lines = append(lines, `{"id": "broken"`)
	wrong++
	file := write(t, lines...)
	code, out, stderr := conformRun(t, "dns", file)
	got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if last := got[len(got)-1]; code != exitFailed || last != fmt.Sprintf("2 passed, %d failed", wrong) {
		t.Errorf("exit status %d, last line %q", code, last)
	}
	for i, l := range lines {
		id := fmt.Sprintf("%s:%d", file, i+1)
		if c, ok := l.(m); ok {
			id = c["id"].(string)
		}
		want := id + ": expected "
		if id == "unknown-option" {
			want = id + ": not yet ("
		}
		if has := strings.Contains("\n"+out, "\n"+want); has == strings.HasPrefix(id, "good-") {
			t.Errorf("a line %q: %t", want, has)
		}
	}
	if t.Failed() {
		t.Logf("output:\n%s%s", out, stderr)
	}
}
