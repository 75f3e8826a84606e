package session

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"postern/caddy-modules/session/lease"
)

// A launcher may lead its run to any port of this host but ours: another session's
// proxies, past or present, and the sites.
func TestHostPorts(t *testing.T) {
	r, _, _, path := leased(t)
	site := netip.MustParseAddrPort("127.0.0.1:8443")
	r.SetOwn("site", []netip.AddrPort{site})
	info := open(t, r, lease.Spec{ID: "api"})
	http, socks := netip.MustParseAddrPort(info.HTTP).Port(), netip.MustParseAddrPort(info.SOCKS).Port()
	if err := r.Close("api"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the session is gone", func() bool { _, ok := r.Lookup("api"); return !ok })
	other := open(t, r, lease.Spec{ID: "other"})
	live := netip.MustParseAddrPort(other.HTTP).Port()

	for _, port := range []uint16{site.Port(), http, socks, live} {
		_, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "run"}, HostPorts: []uint16{5432, port}}, pair(t))
		if no, ok := errors.AsType[*lease.RefusedError](err); !ok || no.Code != lease.CodeOwnPort {
			t.Errorf("port %d: got %v, want %s", port, err, lease.CodeOwnPort)
		}
	}

	l, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "run"}, HostPorts: []uint16{5432, 8444}}, pair(t))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := l.Answer().Session.HostPorts; !slices.Equal(got, []uint16{5432, 8444}) {
		t.Errorf("the answer says %v", got)
	}
	if e := <-l.Events(); e.Type != lease.EventSessionOpen || e.Fields["hostPorts"] == nil {
		t.Errorf("first event %+v", e)
	}
}

// A port that a run was led to is no session's from then on: it would be led to that
// session's proxy.
func TestNoSessionGetsAHostPort(t *testing.T) {
	p := newPorts("30100-30103")
	for _, port := range []uint16{30100, 30102, 80} {
		for range 2 { // a run that is lent again, or another run
			if !p.giveAway(port) {
				t.Errorf("port %d is refused", port)
			}
		}
	}
	for range 2 {
		ln, err := p.listen(t.Context(), "a", "")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		got := netip.MustParseAddrPort(ln.Addr().String()).Port()
		if got != 30101 && got != 30103 {
			t.Errorf("a session got port %d", got)
		}
		if p.giveAway(got) {
			t.Errorf("port %d of a session is given away", got)
		}
	}
	if ln, err := p.listen(t.Context(), "a", "127.0.0.1:30100"); err == nil {
		ln.Close()
		t.Error("a session got a host port that it named")
	}
}
