package proxy

import (
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSeats(t *testing.T) {
	for _, c := range []struct {
		descriptors  uint64
		conns, pipes int64
	}{
		{0, 16, 0}, // nothing works then, but not for this reason
		{256, 62, 2},
		{1024, 440, 8},
		{20000, 9531, 156},
		{1 << 20, 515584, 8192},
		{1<<64 - 1, 515584, 8192}, // no limit
	} {
		if s := newSeats(c.descriptors); s.most != c.conns || s.pipes != c.pipes {
			t.Errorf("%d descriptors: %d connections and %d pipes, want %d and %d", c.descriptors, s.most, s.pipes, c.conns, c.pipes)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(256, 1<<20).Draw(t, "descriptors")
		s := newSeats(n)
		if left := int64(n) - 2*s.most - 2*s.pipes; left < 128 {
			t.Errorf("%d descriptors: %d are left for the doors", n, left)
		}
	})
}

// A default never lets one session take more than half of what there is.
func TestSeatsOfOneSession(t *testing.T) {
	if l := (Limits{}).withDefaults(); int64(l.Conns) > allSeats().most/2 || l.Conns < 8 {
		t.Errorf("%d of %d", l.Conns, allSeats().most)
	}
}

func TestTooManyConnections(t *testing.T) {
	for name, limit := range map[string]func(*lab){
		"of a session":   func(b *lab) { b.srv.Gate.Limits.Conns = 2 },
		"of the process": func(b *lab) { b.srv.seats = newSeats(0); b.srv.seats.taken.Store(14) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newLab(t, []string{"a.example"}, limit)
			first := b.tunnel("a.example:80")
			b.tunnel("a.example:80")

			conn := b.connectTo(b.http)
			conn.send(connectTo("a.example:443"))
			resp, body := conn.response("DENIED")
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get(reasonField) != "too_many_connections" || resp.Header.Get(decisionField) != "none" || !resp.Close {
				t.Errorf("%s %v", resp.Status, resp.Header)
			}
			if !strings.Contains(body, "try again") {
				t.Errorf("%q", body)
			}
			conn.expectEnd()

			conn = b.connectTo(b.socks)
			conn.send(noAuth)
			conn.expect("\x05\x00")
			conn.send(socksRequest("a.example", 443))
			conn.expect(string(socksReply(replyFailure)))
			conn.expectEnd()

			if s := b.srv.Stats(); s.Overflow != 2 || s.OpenTunnels != 2 || s.Conns != 2 {
				t.Errorf("%+v", s)
			}
			if len(b.kept(KindDecision)) > 0 {
				t.Error("something was judged")
			}
			_ = first.Close()
			await(t, "the seat", func() bool { return b.srv.Stats().OpenConns == 1 && b.srv.seats.taken.Load() < b.srv.seats.most })
			b.tunnel("a.example:80")
		})
	}
}

// Those who are turned away live on the reserve, so that they are bounded too.
func TestTooManyTurnedAway(t *testing.T) {
	b := newLab(t, nil, func(b *lab) { b.srv.seats = newSeats(0); b.srv.seats.taken.Store(16) })
	told := 0
	var conns []*client
	for range maxLeaving + 10 {
		conns = append(conns, b.connectTo(b.http)) // says nothing and does not leave
	}
	for _, c := range conns {
		if strings.HasPrefix(c.expectEnd(), "HTTP/1.1 503 ") {
			told++
		}
	}
	if told == 0 || told > maxLeaving {
		t.Errorf("%d were told", told)
	}
	await(t, "them to be gone", func() bool { return b.srv.seats.leaving.Load() == 0 })
	if s := b.srv.Stats(); s.Overflow != maxLeaving+10 || b.srv.seats.taken.Load() != 16 {
		t.Errorf("%+v", s)
	}
}
