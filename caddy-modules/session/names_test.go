package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/proxy"
	"postern/caddy-modules/session/lease"
	"postern/dnsguard"
)

// zone is a resolver that answers A questions with an address that is another one each
// time it is asked for the name, so that what is remembered shows.
type zone struct {
	addr string

	mu    sync.Mutex
	asked map[string]int
	hold  chan struct{} // nil: answers at once; closed: does so from then on
	down  bool
}

func newZone(t *testing.T) *zone {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z := &zone{addr: pc.LocalAddr().String(), asked: map[string]int{}}
	srv := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(z.serve)}
	var serving sync.WaitGroup
	started := make(chan struct{})
	srv.NotifyStartedFunc = func() { close(started) }
	serving.Go(func() { _ = srv.ActivateAndServe() })
	<-started
	t.Cleanup(func() {
		_ = srv.Shutdown()
		serving.Wait()
	})
	return z
}

func (z *zone) serve(w dns.ResponseWriter, req *dns.Msg) {
	name := strings.ToLower(req.Question[0].Name)
	z.mu.Lock()
	hold, down := z.hold, z.down
	isA := req.Question[0].Qtype == dns.TypeA
	if isA {
		z.asked[name]++
	}
	n := z.asked[name]
	z.mu.Unlock()
	if hold != nil {
		<-hold
	}
	reply := new(dns.Msg).SetReply(req)
	switch {
	case down:
		reply.Rcode = dns.RcodeServerFailure
	case isA:
		rr, _ := dns.NewRR(fmt.Sprintf("%s 60 IN A 9.9.9.%d", req.Question[0].Name, n))
		reply.Answer = append(reply.Answer, rr)
	}
	_ = w.WriteMsg(reply)
}

func (z *zone) count(name string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked[name+"."]
}

func (z *zone) set(f func()) {
	z.mu.Lock()
	defer z.mu.Unlock()
	f()
}

// guarded is a generation whose names come from a guard over z.
func guarded(t *testing.T, r *Registry, store *dnsguard.Store, z *zone, lines ...string) *Generation {
	t.Helper()
	return guardedBy(t, r, dnsguard.Config{Upstreams: []string{z.addr}, Store: store}, lines...)
}

func guardedBy(t *testing.T, r *Registry, conf dnsguard.Config, lines ...string) *Generation {
	t.Helper()
	guard, err := dnsguard.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = guard.Close() })
	g := generation(t, r, lines...)
	g.Guard, g.Resolver = guard, nil
	return g
}

// named resolves a name as the session's proxies do.
func named(t *testing.T, r *Registry, id, name string) string {
	t.Helper()
	addrs, err := r.find(id).Resolve(t.Context(), name)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(addrs)
}

// One session's answers never serve another, nor the next one with its id.
func TestSessionsShareNoAnswers(t *testing.T) {
	r, z := newRegistry(t), newZone(t)
	r.Push(guarded(t, r, new(dnsguard.Store), z, "a.example"))
	open(t, r, lease.Spec{ID: "one"})
	open(t, r, lease.Spec{ID: "two"})
	for _, step := range []struct{ id, want string }{
		{"one", "[9.9.9.1]"},
		{"one", "[9.9.9.1]"},
		{"two", "[9.9.9.2]"},
		{"one", "[9.9.9.1]"},
	} {
		if got := named(t, r, step.id, "a.example"); got != step.want {
			t.Errorf("session %s got %s, want %s", step.id, got, step.want)
		}
	}
	if err := r.Close("one"); err != nil {
		t.Fatal(err)
	}
	open(t, r, lease.Spec{ID: "one"})
	if got := named(t, r, "one", "a.example"); got != "[9.9.9.3]" {
		t.Errorf("the next session with the id got %s from the one before", got)
	}
}

// What was pinned before a reload is pinned after it, and stands in for trouble.
func TestPinsOutliveAReload(t *testing.T) {
	r, z, store := newRegistry(t), newZone(t), new(dnsguard.Store)
	first := guarded(t, r, store, z, "a.example")
	r.Push(first)
	open(t, r, lease.Spec{ID: "one"})
	if got := named(t, r, "one", "a.example"); got != "[9.9.9.1]" {
		t.Fatal(got)
	}
	next := guarded(t, r, store, z, "a.example", "b.example")
	r.Push(next)
	r.Drop(first)
	pinned := r.find("one").names.view.Load().Pinned("a.example")
	if !slices.Equal(pinned, []netip.Addr{netip.MustParseAddr("9.9.9.1")}) {
		t.Errorf("pinned after the reload: %v", pinned)
	}
	if got, n := named(t, r, "one", "a.example"), z.count("a.example"); got != "[9.9.9.1]" || n != 1 {
		t.Errorf("got %s after the reload, asked upstream %d times", got, n)
	}
	// A reload that fails goes back to the guard before.
	failed := guarded(t, r, store, z, "a.example")
	r.Push(failed)
	r.Drop(failed)
	if got := named(t, r, "one", "b.example"); got != "[9.9.9.1]" {
		t.Errorf("after a reload that failed: %s", got)
	}
	// With nothing to govern the session keeps what it knows.
	r.Drop(next)
	r.Push(guarded(t, r, store, z, "a.example"))
	if got := named(t, r, "one", "a.example"); got != "[9.9.9.1]" {
		t.Errorf("after a time without a configuration: %s", got)
	}
}

// A budget that is spent stays spent, whatever the operator edits.
func TestBudgetIsNotRefilledByAReload(t *testing.T) {
	r, z, store := newRegistry(t), newZone(t), new(dnsguard.Store)
	conf := dnsguard.Config{Upstreams: []string{z.addr}, Store: store, WildcardNames: 2}
	before := guardedBy(t, r, conf, "*.w.example")
	r.Push(before)
	open(t, r, lease.Spec{ID: "one"})
	open(t, r, lease.Spec{ID: "two"})
	for i := range 2 {
		if got := named(t, r, "one", fmt.Sprintf("n%d.w.example", i)); got != "[9.9.9.1]" {
			t.Fatal(got)
		}
	}
	spent := func(when string) {
		t.Helper()
		_, err := r.find("one").Resolve(t.Context(), "another.w.example")
		if denied, ok := errors.AsType[*proxy.Denied](err); !ok || denied.Decision.Code != policy.NameRefused || !strings.Contains(denied.Error(), "used up") {
			t.Errorf("%s: %v, want a refusal by the budget", when, err)
		}
	}
	spent("before a reload")
	next := guardedBy(t, r, conf, "*.w.example", "b.example")
	r.Push(next)
	r.Drop(before)
	spent("after it")
	if got := named(t, r, "two", "another.w.example"); got != "[9.9.9.1]" {
		t.Errorf("another session: %s", got)
	}
}

// A lookup that a reload meets in the middle is made again, and fails nobody.
func TestReloadInTheMiddleOfALookup(t *testing.T) {
	r, z, store := newRegistry(t), newZone(t), new(dnsguard.Store)
	before := guarded(t, r, store, z, "a.example")
	r.Push(before)
	open(t, r, lease.Spec{ID: "one"})
	release := make(chan struct{})
	z.set(func() { z.hold = release })
	got := make(chan string, 1)
	go func() {
		addrs, err := r.find("one").Resolve(context.Background(), "a.example")
		got <- fmt.Sprint(addrs, err)
	}()
	eventually(t, "the question", func() bool { return z.count("a.example") > 0 })
	r.Push(guarded(t, r, store, z, "a.example"))
	r.Drop(before)
	close(release)
	if answer := <-got; !strings.HasPrefix(answer, "[9.9.9.") || !strings.HasSuffix(answer, "<nil>") {
		t.Errorf("got %s", answer)
	}
}

// What a guard refuses is 403 and not 502, with the rule that says so; what nobody
// answers is no refusal.
func TestNamesTellRefusalsFromFailures(t *testing.T) {
	r, z := newRegistry(t), newZone(t)
	r.Push(guarded(t, r, new(dnsguard.Store), z, "dns.google", "nas.local", "a.example"))
	open(t, r, lease.Spec{ID: "one"})
	s := r.find("one")
	for _, name := range []string{"nas.local", "dns.google"} {
		_, err := s.Resolve(t.Context(), name)
		denied, ok := errors.AsType[*proxy.Denied](err)
		if !ok || denied.Decision.Code != policy.NameRefused || denied.Decision.Reason() == "" {
			t.Errorf("%s: %v, want a refusal with the code %s", name, err, policy.NameRefused)
		}
	}
	z.set(func() { z.down = true })
	_, err := s.Resolve(t.Context(), "a.example")
	if _, denied := errors.AsType[*proxy.Denied](err); err == nil || denied {
		t.Errorf("nobody answers: %v, want a failure that is no refusal", err)
	}
}

// The gate must see which addresses were refused: it names the target.
func TestRefusedAddressesAreGivenOn(t *testing.T) {
	private := netip.MustParseAddr("10.0.0.5")
	got, err := refusedNames(nil, &dnsguard.RefusedError{Name: "a.example", Addrs: []netip.Addr{private}})
	if err != nil || len(got) != 1 || got[0] != private {
		t.Fatalf("got %v, %v", got, err)
	}
}

// What was handed out for a name is all that is dialled under it, until the connection
// ends, over a reload as well.
func TestConnectionsHoldTheirPins(t *testing.T) {
	r, z, store := newRegistry(t), newZone(t), new(dnsguard.Store)
	before := guarded(t, r, store, z, "a.example")
	r.Push(before)
	open(t, r, lease.Spec{ID: "one"})
	open(t, r, lease.Spec{ID: "two"})
	s, told, other := r.find("one"), netip.MustParseAddr("9.9.9.1"), netip.MustParseAddr("9.9.9.2")
	if _, ok := s.held("a.example", told); ok {
		t.Error("held before anything was answered")
	}
	if got := named(t, r, "one", "a.example"); got != "[9.9.9.1]" {
		t.Fatal(got)
	}
	release, ok := s.held("a.example", told)
	if !ok {
		t.Fatal("what was answered is not held")
	}
	r.Push(guarded(t, r, store, z, "a.example"))
	r.Drop(before)
	if _, ok := s.held("a.example", told); !ok {
		t.Error("not held after a reload")
	}
	if _, ok := s.held("a.example", other); ok {
		t.Error("an address that was never answered is held")
	}
	if _, ok := r.find("two").held("a.example", told); ok {
		t.Error("what another session was told is held")
	}
	release()
	if _, ok := s.held("localhost", netip.MustParseAddr("127.0.0.1")); !ok {
		t.Error("localhost is not held")
	}
}
