package proxy

import (
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"testing"
)

// Each request has a number of its own, which its close has too, and what it took to
// open the connection is told of the request that opened it.
func TestTrailNumbers(t *testing.T) {
	b := newLab(t, []string{"a.example"}, withOrigin(newOrigin(t, answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))))
	other := netip.MustParseAddr("93.184.216.35")
	b.answers["a.example"] = [][]netip.Addr{{public, other}}
	conn := b.connectTo(b.http)
	for range 2 {
		conn.send(get(aURL, "a"))
		if resp, _ := conn.response(http.MethodGet); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	conn.send(get("http://evil.example/", "evil.example"))
	conn.response(http.MethodGet)
	await(t, "the records", func() bool { return len(b.kept(KindDecision)) == 3 && len(b.kept(KindClose)) == 2 })
	decisions, closes := b.kept(KindDecision), b.kept(KindClose)
	seen := map[uint64]bool{}
	for i, d := range decisions {
		if d.Conn == 0 || seen[d.Conn] {
			t.Errorf("decision %d goes by %d", i, d.Conn)
		}
		seen[d.Conn] = true
		if i == 2 {
			if d.Allowed() || d.Resolved != nil || d.Connect != 0 {
				t.Errorf("refused: %+v", d)
			}
			continue
		}
		c := closes[i]
		if c.Conn != d.Conn || !slices.Equal(c.Resolved, []netip.Addr{public, other}) || !slices.Equal(d.Resolved, c.Resolved) {
			t.Errorf("decision %+v\nclose %+v", d, c)
		}
		if first := i == 0; first != (d.Connect > 0) || first != (c.Connect > 0) {
			t.Errorf("request %d: connecting took %v, %v", i, d.Connect, c.Connect)
		}
	}
}

// A target that is an address was not looked up, and a long answer is not kept whole.
func TestTrailBoundsAddresses(t *testing.T) {
	b := newLab(t, []string{"a.example", public.String()})
	var long []netip.Addr
	for a := public; len(long) < 3*maxResolved; a = a.Next() {
		long = append(long, a)
	}
	b.answers["a.example"] = [][]netip.Addr{long}
	for _, target := range []string{"a.example:80", public.String() + ":80"} {
		conn := b.connectTo(b.http)
		conn.send(connectTo(target))
		conn.response(http.MethodConnect)
		_ = conn.Close()
	}
	await(t, "the records", func() bool { return len(b.kept(KindDecision)) == 2 })
	for _, d := range b.kept(KindDecision) {
		want := long[:maxResolved]
		if d.Target.Host().Name() == "" {
			want = nil
		}
		if !slices.Equal(d.Resolved, want) {
			t.Errorf("%s: %v", d.Target, d.Resolved)
		}
	}
}

// What was allowed and not reached says so, since nothing else follows it.
func TestTrailTellsFailures(t *testing.T) {
	b := newLab(t, []string{"a.example"})
	b.srv.Gate.SetDial(failWith(syscall.ECONNREFUSED))
	conn := b.connectTo(b.http)
	conn.send(connectTo("a.example:443"))
	conn.response("DENIED")
	await(t, "the record", func() bool { return len(b.kept(KindDecision)) == 1 })
	d := b.kept(KindDecision)[0]
	if !d.Allowed() || d.Failed != "connection_refused" || !slices.Equal(d.Resolved, []netip.Addr{public}) || d.Conn == 0 {
		t.Errorf("%+v", d)
	}
}

// What a tunnel carries may be refused long after it was opened: the trail tells of the
// connection all the same.
func TestTrailOfARefusalInside(t *testing.T) {
	o := parent(t, parentOK)
	b := newLab(t, []string{"a.example"}, withParent(t, "http", o, "", false))
	conn := b.tunnel("a.example:80")
	conn.send(get("/", "b.example"))
	if resp, _ := conn.response(http.MethodGet); resp.Header.Get(reasonField) != "host_mismatch" {
		t.Fatal(resp.Status)
	}
	for _, r := range []Record{b.one(), b.awaitClose()} {
		if r.Parent != o.addr.String() || !slices.Equal(r.Resolved, []netip.Addr{public}) || r.Addr.Addr() != public || r.Connect <= 0 || r.SNI != "b.example" || r.Allowed() {
			t.Errorf("%+v", r)
		}
	}
}
