package main

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// A check that finds nothing to look at has failed.
func TestNothingToCheck(t *testing.T) {
	ttl := 5
	answer, err := dns.NewRR("a.example. 5 IN A 93.184.216.10")
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]bool{0: true, 1: false} {
		r := &dnsRun{dnsCase: &dnsCase{Expect: &dnsExpect{TTL: &ttl}}}
		r.checkTimes(&dns.Msg{Answer: []dns.RR{answer}[:n]})
		if (len(r.faults) > 0) != want {
			t.Errorf("a TTL of %d answers: %q", n, r.faults)
		}
	}
	for _, c := range []struct {
		seen, want []string
		queries    int
		fails      bool
	}{
		{[]string{}, []string{}, 0, true},
		{[]string{}, []string{}, 2, false},
		{[]string{"10"}, []string{}, 1, true},
		{[]string{"10"}, []string{"10"}, 1, false},
	} {
		r := &dnsRun{dnsCase: &dnsCase{Expect: &dnsExpect{UpstreamEDNS: &c.want}}}
		var seen [][]string
		for range c.queries {
			seen = append(seen, c.seen)
		}
		r.checkOptions(seen)
		if (len(r.faults) > 0) != c.fails {
			t.Errorf("%d queries with %q: %q", c.queries, c.seen, r.faults)
		}
	}
}

// Lines of a log are counted when the last has come, not the first.
func TestLogIsCountedToItsEnd(t *testing.T) {
	w := &dnsWorld{dir: t.TempDir()}
	file, err := os.Create(w.log())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 6 {
			_, _ = fmt.Fprintln(file, `{"session":"s","name":"x.example"}`)
			time.Sleep(quiet / 5)
		}
	}()
	r := &dnsRun{
		dnsCase: &dnsCase{Query: &dnsQuery{Name: "x.example"}, Expect: &dnsExpect{MaxLogLines: 2}},
		w:       w, session: "s", warmed: time.Now(),
	}
	r.checkRecords()
	<-done
	if len(r.faults) != 1 || r.faults[0] != "6 lines in the log" {
		t.Errorf("%q", r.faults)
	}
}

// What is no number of an explanation is a fault of the case, on either side.
func TestExplanationsAreNumbers(t *testing.T) {
	const line = `{"id": "x", "query": {"name": "a.example", "type": "A"}, "upstream": %s, "expect": {"rcode": "NOERROR"%s}}`
	for _, c := range []struct {
		upstream, expect string
		bad              bool
	}{
		{"null", "", false},
		{`{"edns": {"ede": "15:text"}}`, `, "ede": 15`, false},
		{`{"edns": {"ede": "0"}}`, `, "no_ede": 0`, false},
		{`{"edns": {"local65001": "x"}}`, "", false},
		{`{"edns": {"ede": ""}}`, "", true},
		{`{"edns": {"ede": "fifteen:text"}}`, "", true},
		{`{"edns": {"ede": "65536"}}`, "", true},
		{`{"edns": {"ede": "-1:x"}}`, "", true},
		{`{"then": {"edns": {"ede": "1 5"}}}`, "", true},
		{`{"tc": true, "then_tcp": {"edns": {"ede": "0x5"}}}`, "", true},
		{"null", `, "ede": 65536`, true},
		{"null", `, "ede": -1`, true},
		{"null", `, "no_ede": 70000`, true},
		{"null", `, "ede": "15"`, true},
	} {
		text := fmt.Sprintf(line, c.upstream, c.expect)
		if got := parseDNSCase([]byte(text), defaultDNSOpts()); (got.bad != nil) != c.bad {
			t.Errorf("%s: %v", text, got.bad)
		}
	}
}
