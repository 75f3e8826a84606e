package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// logEntropy is what expect.log may be: the record of the name says that it looks
// like packed data.
const logEntropy = "high-entropy"

// checkUpstream looks at what the resolver got.
func (r *dnsRun) checkUpstream() {
	seen := r.w.up.Queries()
	if n := r.Expect.UpstreamQueries; n != nil && len(seen) != *n {
		r.fault("the resolver got %d queries, not %d: %v", len(seen), *n, seen)
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.checkOptions(r.w.options)
}

// checkOptions looks at the EDNS options of the messages that the resolver got.
func (r *dnsRun) checkOptions(seen [][]string) {
	want := r.Expect.UpstreamEDNS
	if want == nil {
		return
	}
	if len(seen) == 0 {
		r.fault("the resolver got no query whose EDNS options could be %q", *want)
	}
	for _, options := range seen {
		if !slices.Equal(options, *want) {
			r.fault("the resolver got the EDNS options %q", options)
		}
	}
}

// checkReply compares the message.
func (r *dnsRun) checkReply(m *dns.Msg) {
	e := r.Expect
	if got := dns.RcodeToString[m.Rcode]; got != e.Rcode {
		r.fault("%s", got)
	}
	if e.Answers != nil {
		want := slices.Clone(e.Answers)
		for i := range want {
			want[i], _ = repeated(want[i])
		}
		slices.Sort(want)
		if got := recordData(m.Answer); !slices.Equal(got, want) {
			r.fault("the answers %q, not %q", got, want)
		}
	}
	options, explained := optionCodes(m)
	asked := r.Query.EDNS == nil || !r.Query.EDNS.none
	if has := m.IsEdns0() != nil; has != asked {
		r.fault("an OPT record: %t, of the client: %t", has, asked)
	}
	if e.EDE != nil && !slices.Contains(explained, *e.EDE) {
		r.fault("the explanations %v, not %d", explained, *e.EDE)
	}
	if e.NoEDE != nil && slices.Contains(explained, *e.NoEDE) {
		r.fault("the explanation %d", *e.NoEDE)
	}
	if e.EDNS != nil && !slices.Equal(options, *e.EDNS) {
		r.fault("the EDNS options %q, not %q", options, *e.EDNS)
	}
	r.checkTimes(m)
	if e.Authority != nil && !slices.Equal(recordData(m.Ns), sorted(*e.Authority)) {
		r.fault("authority records: %v", m.Ns)
	}
	if e.Additional != nil {
		more := slices.DeleteFunc(slices.Clone(m.Extra), func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeOPT })
		if !slices.Equal(recordData(more), sorted(*e.Additional)) {
			r.fault("additional records: %v", more)
		}
	}
	if e.TC != nil && m.Truncated != *e.TC {
		r.fault("TC is %t", m.Truncated)
	}
	// The reply was read as a whole, so that its size is what it is packed to.
	if raw, err := m.Pack(); err != nil || e.MaxLen > 0 && len(raw) > e.MaxLen {
		r.fault("%d bytes: %v", len(raw), err)
	}
}

func sorted(in []string) []string { return slices.Sorted(slices.Values(in)) }

// checkTimes compares lifetimes. What has run since a question before is measured:
// it may be more than the case lets pass.
func (r *dnsRun) checkTimes(m *dns.Msg) {
	if want := r.Expect.TTL; want != nil {
		low, high := *want, *want
		if len(r.Before) > 0 {
			whole := *want + r.ClockS
			low = whole - int(time.Since(r.warmed).Seconds()) - 1
			high = whole - r.ClockS
		}
		if len(m.Answer) == 0 {
			r.fault("no answer that could have the TTL %d", *want)
		}
		for _, rr := range m.Answer {
			if got := int(rr.Header().Ttl); got < low || got > high {
				r.fault("the TTL %d, not %d to %d", got, low, high)
			}
		}
	}
	if want := r.Expect.NegTTL; want != nil {
		ok := len(m.Ns) == 1
		if ok {
			h := m.Ns[0].Header()
			ok = h.Rrtype == dns.TypeSOA && strings.EqualFold(h.Name, dns.Fqdn(r.Query.Name)) && int(h.Ttl) == *want
		}
		if !ok {
			r.fault("the authority %v, not a SOA record of the name with the TTL %d", m.Ns, *want)
		}
	}
}

// checkPins asks for the names of addresses, which a session is told of those that it
// got alone.
func (r *dnsRun) checkPins() error {
	want := map[string][]string{} // address → names
	for name, addrs := range r.Expect.Pinned {
		for _, a := range addrs {
			want[a] = append(want[a], name)
		}
	}
	others := slices.Clone(r.Expect.NotPinned)
	if r.Expect.Pinned != nil && len(r.Expect.Pinned) == 0 && r.Upstream != nil {
		for _, line := range r.Upstream.Answer {
			words := strings.Fields(line)
			others = append(others, words[len(words)-1])
		}
	}
	for _, a := range others {
		want[a] = nil
	}
	for addr, names := range want {
		parsed, err := netip.ParseAddr(addr)
		if err != nil {
			return fmt.Errorf("parse expect: %w", err)
		}
		if parsed.IsLoopback() {
			names = []string{"localhost"} // which every session has
		}
		reverse, err := dns.ReverseAddr(parsed.String())
		if err != nil {
			return fmt.Errorf("parse expect: %w", err)
		}
		m, err := r.asker.lookUp(reverse, dns.TypePTR)
		if err != nil {
			return err
		}
		var got []string
		for _, rr := range m.Answer {
			if ptr, ok := rr.(*dns.PTR); ok {
				got = append(got, strings.TrimSuffix(ptr.Ptr, "."))
			}
		}
		if !slices.Equal(sorted(got), sorted(names)) {
			r.fault("%s is known as %q, not %q", addr, got, names)
		}
	}
	return nil
}

// checkRecords looks at what was told of the question: to the launcher, and in the log.
func (r *dnsRun) checkRecords() {
	e := r.Expect
	if e.Reason != "" {
		r.awaitLog(fmt.Sprintf(`"reason":%q`, e.Reason))
		if !r.asker.denied() {
			r.fault("the launcher was told of no refusal")
		}
	}
	if e.Log == logEntropy {
		r.awaitLog(`"high_entropy":true`)
	}
	if e.MaxLogLines > 0 {
		// A name is told of again every five seconds.
		most := max(e.MaxLogLines, 2+int(time.Since(r.warmed)/(5*time.Second)))
		lines := r.awaitLog(fmt.Sprintf(`"name":%q`, r.Query.Name))
		if len(lines) > 0 {
			lines = r.settledLog(fmt.Sprintf(`"name":%q`, r.Query.Name))
		}
		if n := bytes.Count(lines, []byte("\n")); n > most {
			r.fault("%d lines in the log", n)
		}
	}
}

// quiet is how long no line may come until all are taken to be there.
const quiet = 500 * time.Millisecond

// settledLog gives the lines about the session with this in them when no more come.
func (r *dnsRun) settledLog(text string) []byte {
	var lines []byte
	last := time.Now()
	for begin := last; time.Since(last) < quiet; time.Sleep(20 * time.Millisecond) {
		now, err := r.w.logSince(r.logFrom, fmt.Sprintf(`"session":%q`, r.session), text)
		if err != nil {
			r.fault("%v", err)
			return nil
		}
		if len(now) != len(lines) {
			lines, last = now, time.Now()
		}
		if time.Since(begin) > patience {
			r.fault("lines with %s come in the log without an end", text)
			return lines
		}
	}
	return lines
}

// awaitLog waits for a line about the session with this in it, and gives all.
func (r *dnsRun) awaitLog(text string) []byte {
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		lines, err := r.w.logSince(r.logFrom, fmt.Sprintf(`"session":%q`, r.session), text)
		if err != nil {
			r.fault("%v", err)
			return nil
		}
		if len(lines) > 0 {
			return lines
		}
		if time.Since(begin) > patience {
			r.fault("no line in the log with %s", text)
			return nil
		}
	}
}

func (w *dnsWorld) logSize() (int64, error) {
	info, err := os.Stat(w.log())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look at the log: %w", err)
	}
	return info.Size(), nil
}

// logSince gives the whole lines from an offset that hold all of the texts.
func (w *dnsWorld) logSince(from int64, texts ...string) ([]byte, error) {
	f, err := os.Open(w.log())
	if err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	defer f.Close()
	var out []byte
	br := bufio.NewReader(io.NewSectionReader(f, from, 64<<20))
	for {
		line, err := br.ReadBytes('\n')
		if err != nil {
			return out, nil // the last line may be half written
		}
		if json.Valid(line) && !slices.ContainsFunc(texts, func(t string) bool { return !bytes.Contains(line, []byte(t)) }) {
			out = append(out, line...)
		}
	}
}

// checkProxy asks for a tunnel in the same session.
func (r *dnsRun) checkProxy() error {
	p := r.Expect.Proxy
	if p == nil {
		return nil
	}
	r.w.forget()
	if err := r.w.watch.Forget(); err != nil {
		return err
	}
	status, err := r.asker.connect(p.Connect)
	if err != nil {
		return err
	}
	dials, err := r.w.watch.Dials()
	if err != nil {
		return err
	}
	var got []string
	for _, d := range dials {
		if d.Net == "tcp" && strings.HasSuffix(p.Connect, ":"+itoa(d.Dst.Port())) {
			got = append(got, d.Dst.String())
		}
	}
	if p.Status != 0 && status != p.Status {
		r.fault("the proxy answered %d, not %d", status, p.Status)
	}
	if p.Dials != nil && (status != http.StatusOK || !slices.Equal(sorted(got), sorted(p.Dials))) {
		r.fault("the proxy answered %d and dialled %q, not %q", status, got, p.Dials)
	}
	if status != http.StatusOK && len(got) > 0 {
		r.fault("the proxy answered %d and dialled %q", status, got)
	}
	for _, never := range p.Never {
		if slices.Contains(got, never) {
			r.fault("the proxy dialled %s", never)
		}
	}
	if seen := r.w.up.Queries(); p.UpstreamQueries != nil && len(seen) != *p.UpstreamQueries {
		r.fault("for the proxy the resolver got %d queries, not %d", len(seen), *p.UpstreamQueries)
	}
	return nil
}
