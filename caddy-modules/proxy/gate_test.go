package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"postern/caddy-modules/policy"
)

// stubResolver answers from a map and notes what it was asked.
type stubResolver struct {
	answers map[string][]string
	err     error
	asked   []string
}

func (r *stubResolver) Resolve(_ context.Context, name string) ([]netip.Addr, error) {
	r.asked = append(r.asked, name)
	var out []netip.Addr
	for _, text := range r.answers[name] {
		a, err := netip.ParseAddr(text)
		if err != nil {
			a = netip.Addr{}
		}
		out = append(out, a)
	}
	return out, r.err
}

func compile(tb testing.TB, own policy.OwnFunc, allow ...string) *policy.Set {
	tb.Helper()
	set, err := policy.Compile(policy.Lists{Allow: rules(tb, allow...)}, own)
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

func target(tb testing.TB, authority string) policy.Target {
	tb.Helper()
	out, err := tunnelTarget(authority)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// refusesToDial fails the test when an address gets as far as the dialler.
func refusesToDial(tb testing.TB) func(context.Context, policy.Target, netip.Addr) (*net.TCPConn, error) {
	tb.Helper()
	return func(_ context.Context, to policy.Target, a netip.Addr) (*net.TCPConn, error) {
		tb.Errorf("dialled %v for %v", a, to)
		return nil, errors.New("dialled")
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		name, target string
		allow        []string
		answer       []string
		asked        bool
		code         policy.Code
	}{
		{"not on the list", "b.example:443", []string{"a.example"}, nil, false, policy.NotAllowed},
		{"another port", "a.example:25", []string{"a.example"}, nil, false, policy.PortNotAllowed},
		{"loopback literal", "127.0.0.1:443", []string{"a.example"}, nil, false, policy.NotAllowed},
		{"mapped loopback literal", "[::ffff:127.0.0.1]:443", []string{"a.example"}, nil, false, policy.NotAllowed},
		{"private answer", "a.example:443", []string{"a.example"}, []string{"10.0.0.1"}, true, policy.AddressClass},
		{"private after public", "a.example:443", []string{"a.example"}, []string{"93.184.216.34", "10.0.0.1"}, true, policy.AddressClass},
		{"private before public", "a.example:443", []string{"a.example"}, []string{"10.0.0.1", "93.184.216.34"}, true, policy.AddressClass},
		{"private in the other family", "a.example:443", []string{"a.example"}, []string{"93.184.216.34", "::1"}, true, policy.AddressClass},
		{"link-local with a zone", "a.example:443", []string{"a.example"}, []string{"fe80::1%eth0"}, true, policy.AlwaysDenied},
		{"mapped loopback with a zone", "a.example:443", []string{"a.example"}, []string{"::ffff:127.0.0.1%eth0"}, true, policy.AddressClass},
		{"mapped private", "a.example:443", []string{"a.example"}, []string{"::ffff:10.0.0.1"}, true, policy.AddressClass},
		{"invalid address in the answer", "a.example:443", []string{"a.example"}, []string{"nonsense"}, true, policy.AddressClass},
		{"metadata despite private", "a.example:80", []string{"a.example private"}, []string{"169.254.169.254"}, true, policy.AlwaysDenied},
	} {
		t.Run(c.name, func(t *testing.T) {
			resolver := &stubResolver{answers: map[string][]string{"a.example": c.answer}}
			set := compile(t, nil, c.allow...)
			g := &Gate{Policy: func() *policy.Set { return set }, Resolver: resolver, dial: refusesToDial(t)}
			conn, _, err := g.Open(t.Context(), target(t, c.target))
			var denied *Denied
			if conn != nil || !errors.As(err, &denied) {
				t.Fatalf("got %v, %v", conn, err)
			}
			if denied.Decision.Code != c.code || denied.Target != target(t, c.target) {
				t.Errorf("denied with %v: %v", denied.Decision.Code, denied)
			}
			if !strings.Contains(err.Error(), "denied by policy") {
				t.Errorf("error %q", err)
			}
			if (len(resolver.asked) > 0) != c.asked {
				t.Errorf("looked up %v", resolver.asked)
			}
		})
	}
}

func TestOpenWithoutPolicy(t *testing.T) {
	closed := policy.Closed("the policy left the configuration")
	off := policy.Off()
	for name, g := range map[string]*Gate{
		"no function":   {},
		"nil set":       {Policy: func() *policy.Set { return nil }},
		"closed":        {Policy: func() *policy.Set { return closed }},
		"network off":   {Policy: func() *policy.Set { return off }},
		"nothing added": {Policy: func() *policy.Set { s, _ := policy.Compile(policy.Lists{}, nil); return s }},
	} {
		t.Run(name, func(t *testing.T) {
			g.dial = refusesToDial(t)
			for _, to := range []string{"a.example:443", "93.184.216.34:443", "127.0.0.1:80"} {
				if _, _, err := g.Open(t.Context(), target(t, to)); !isDenied(err) {
					t.Errorf("%s: %v", to, err)
				}
			}
		})
	}
}

func TestOpenFails(t *testing.T) {
	set := compile(t, nil, "a.example", "93.184.216.34")
	policyNow := func() *policy.Set { return set }
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		name     string
		resolver Resolver
		dial     error
		op       Op
		code     string
	}{
		{"no resolver", nil, nil, OpLookup, "lookup_failed"},
		{"lookup fails", &stubResolver{err: errors.New("SERVFAIL")}, nil, OpLookup, "lookup_failed"},
		{"no such name", &stubResolver{err: &net.DNSError{IsNotFound: true}}, nil, OpLookup, "name_not_found"},
		{"no address", &stubResolver{}, nil, OpLookup, "name_not_found"},
		{"lookup too slow", &stubResolver{err: context.DeadlineExceeded}, nil, OpLookup, "lookup_timeout"},
		{"refused", &stubResolver{answers: map[string][]string{"a.example": {"93.184.216.34"}}}, refused, OpConnect, "connection_refused"},
		{"refused by all", &stubResolver{answers: map[string][]string{"a.example": {"93.184.216.34", "93.184.216.35"}}}, refused, OpConnect, "connection_refused"},
		{"no route", &stubResolver{answers: map[string][]string{"a.example": {"93.184.216.34"}}}, syscall.ENETUNREACH, OpConnect, "network_unreachable"},
		{"host unreachable", &stubResolver{answers: map[string][]string{"a.example": {"93.184.216.34"}}}, syscall.EHOSTUNREACH, OpConnect, "host_unreachable"},
		{"too slow", &stubResolver{answers: map[string][]string{"a.example": {"93.184.216.34"}}}, context.DeadlineExceeded, OpConnect, "connect_timeout"},
		{"something else", &stubResolver{answers: map[string][]string{"a.example": {"93.184.216.34"}}}, errors.New("odd"), OpConnect, "connect_failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &Gate{Policy: policyNow, Resolver: c.resolver}
			g.dial = func(context.Context, policy.Target, netip.Addr) (*net.TCPConn, error) { return nil, c.dial }
			_, _, err := g.Open(t.Context(), target(t, "a.example:443"))
			var failed *DialError
			if !errors.As(err, &failed) {
				t.Fatalf("got %v", err)
			}
			if failed.Op != c.op || failed.code() != c.code || !strings.HasPrefix(failed.sentence(), "a.example:443 is allowed, but ") {
				t.Errorf("got %s %s: %s", failed.Op, failed.code(), failed.sentence())
			}
		})
	}
	t.Run("a resolver that refuses by policy", func(t *testing.T) {
		inner := &Denied{Target: target(t, "a.example:443")}
		g := &Gate{Policy: policyNow, Resolver: &stubResolver{err: fmt.Errorf("guard: %w", inner)}, dial: refusesToDial(t)}
		if _, _, err := g.Open(t.Context(), target(t, "a.example:443")); !errors.Is(err, inner) {
			t.Errorf("got %v", err)
		}
	})
}

// An answer is vetted once and dialled as vetted: what a second lookup would say
// (DNS rebinding) does not matter, and each address is tried once.
func TestOpenDialsWhatItVetted(t *testing.T) {
	set := compile(t, nil, "a.example")
	resolver := &stubResolver{answers: map[string][]string{"a.example": {"93.184.216.34", "::ffff:93.184.216.34", "2606:4700::1", "93.184.216.35"}}}
	var dialled []netip.Addr
	g := &Gate{Policy: func() *policy.Set { return set }, Resolver: resolver}
	g.dial = func(_ context.Context, _ policy.Target, a netip.Addr) (*net.TCPConn, error) {
		dialled = append(dialled, a)
		return nil, syscall.ECONNREFUSED
	}
	if _, _, err := g.Open(t.Context(), target(t, "a.example:443")); err == nil {
		t.Fatal("opened")
	}
	want := addrs(t, []string{"93.184.216.34", "2606:4700::1", "93.184.216.35"})
	if !slices.Equal(dialled, want) || len(resolver.asked) != 1 {
		t.Errorf("dialled %v after the lookups %v, want %v", dialled, resolver.asked, want)
	}
}

// The real dialler: the last check sees what the kernel would connect to.
func TestControl(t *testing.T) {
	own := false
	set := compile(t, func(netip.AddrPort) bool { return own }, "127.0.0.1", "a.example private", "b.example")
	g := &Gate{Policy: func() *policy.Set { return set }}
	loop := netip.MustParseAddr("127.0.0.1")
	for _, c := range []struct {
		name, target, address string
		vetted                netip.Addr
		denied, ok            bool
	}{
		{"the literal", "127.0.0.1:80", "127.0.0.1:80", loop, false, true},
		{"mapped spelling of it", "127.0.0.1:80", "[::ffff:127.0.0.1]:80", loop, false, true},
		{"mapped with a zone", "127.0.0.1:80", "[::ffff:127.0.0.1%eth0]:80", loop, false, true},
		{"mapped with a zone, of a public name", "b.example:80", "[::ffff:127.0.0.1%.b.example]:80", loop, true, false},
		{"a private name", "a.example:80", "127.0.0.1:80", loop, false, true},
		{"a public name", "b.example:80", "127.0.0.1:80", loop, true, false},
		{"another address than vetted", "a.example:80", "10.0.0.1:80", loop, false, false},
		{"another port than asked for", "a.example:80", "127.0.0.1:81", loop, false, false},
		{"no port", "a.example:80", "127.0.0.1", loop, true, false},
		{"a name", "a.example:80", "localhost:80", loop, true, false},
		{"nothing", "a.example:80", "", loop, true, false},
		{"IPv6 loopback", "b.example:80", "[::1]:80", netip.IPv6Loopback(), true, false},
		{"metadata", "a.example:80", "169.254.169.254:80", netip.MustParseAddr("169.254.169.254"), true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := g.control(t.Context(), target(t, c.target), c.vetted)("tcp", c.address, nil)
			if (err == nil) != c.ok || isDenied(err) != c.denied {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("the policy of that moment", func(t *testing.T) {
		check := g.control(t.Context(), target(t, "a.example:80"), loop)
		own = true
		defer func() { own = false }()
		var denied *Denied
		if err := check("tcp", "127.0.0.1:80", nil); !errors.As(err, &denied) || denied.Decision.Code != policy.OwnListener {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the extra hook", func(t *testing.T) {
		veto := errors.New("veto")
		g := &Gate{Policy: g.Policy, Control: func(_, address string, _ syscall.RawConn) error {
			if address != "127.0.0.1:80" {
				t.Errorf("address %q", address)
			}
			return veto
		}}
		if err := g.control(t.Context(), target(t, "127.0.0.1:80"), loop)("tcp", "127.0.0.1:80", nil); !errors.Is(err, veto) {
			t.Errorf("got %v", err)
		}
	})
}

func TestOpenForReal(t *testing.T) {
	o := newOrigin(t, echo)
	set := compile(t, nil, "127.0.0.1", "a.example private "+fmt.Sprint(o.addr.Port()))
	calls := 0
	g := &Gate{
		Policy:   func() *policy.Set { return set },
		Resolver: &stubResolver{answers: map[string][]string{"a.example": {"127.0.0.1"}}},
		Control:  func(string, string, syscall.RawConn) error { calls++; return nil },
	}
	for _, to := range []string{o.addr.String(), fmt.Sprintf("a.example:%d", o.addr.Port())} {
		conn, opened, err := g.Open(t.Context(), target(t, to))
		if err != nil {
			t.Fatal(err)
		}
		if opened.Addr != o.addr || !opened.Decision.Allowed || opened.Decision.Rule == "" {
			t.Errorf("opened %+v", opened)
		}
		_ = conn.Close()
	}
	if calls != 2 {
		t.Errorf("the hook ran %d times", calls)
	}

	// A refusal inside the dialler comes back as one, not as a network error.
	sealed := compile(t, nil, "a.example private "+fmt.Sprint(o.addr.Port()))
	asked := 0
	g.Policy = func() *policy.Set {
		if asked++; asked == 1 {
			return sealed
		}
		return policy.Closed("changed between vetting and connect")
	}
	_, _, err := g.Open(t.Context(), target(t, fmt.Sprintf("a.example:%d", o.addr.Port())))
	var denied *Denied
	if !errors.As(err, &denied) || denied.Decision.Code != policy.PolicyGone {
		t.Errorf("got %v", err)
	}
}

// The race of addresses, with time that passes only when everybody waits.
func TestRace(t *testing.T) {
	type plan struct {
		after time.Duration
		err   error
	}
	refused := errors.New("refused")
	for _, c := range []struct {
		name  string
		plans map[string]plan
		order []string
		won   string
		took  time.Duration
	}{
		{"the first wins", map[string]plan{"1.1.1.1": {100 * time.Millisecond, nil}}, []string{"1.1.1.1", "1.0.0.1"}, "1.1.1.1", 100 * time.Millisecond},
		{"the second after a failure", map[string]plan{"1.1.1.1": {10 * time.Millisecond, refused}, "1.0.0.1": {10 * time.Millisecond, nil}}, []string{"1.1.1.1", "1.0.0.1"}, "1.0.0.1", 20 * time.Millisecond},
		{"the second when the first is silent", map[string]plan{"1.1.1.1": {time.Hour, nil}, "1.0.0.1": {10 * time.Millisecond, nil}}, []string{"1.1.1.1", "1.0.0.1"}, "1.0.0.1", attemptDelay + 10*time.Millisecond},
		{"the first when the second fails", map[string]plan{"1.1.1.1": {400 * time.Millisecond, nil}, "1.0.0.1": {10 * time.Millisecond, refused}}, []string{"1.1.1.1", "1.0.0.1"}, "1.1.1.1", 400 * time.Millisecond},
		{"the other family comes second", map[string]plan{"1.1.1.1": {time.Hour, nil}, "1.0.0.1": {time.Hour, nil}, "2606:4700::1": {0, nil}}, []string{"1.1.1.1", "1.0.0.1", "2606:4700::1"}, "2606:4700::1", attemptDelay},
		{"all fail", map[string]plan{"1.1.1.1": {time.Millisecond, refused}, "1.0.0.1": {time.Millisecond, refused}}, []string{"1.1.1.1", "1.0.0.1"}, "", 2 * time.Millisecond},
		{"all are silent", map[string]plan{"1.1.1.1": {time.Hour, nil}, "1.0.0.1": {time.Hour, nil}}, []string{"1.1.1.1", "1.0.0.1"}, "", 20 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := compile(t, nil, "a.example")
				g := &Gate{Policy: func() *policy.Set { return set }, Resolver: &stubResolver{answers: map[string][]string{"a.example": c.order}}}
				g.dial = func(ctx context.Context, _ policy.Target, a netip.Addr) (*net.TCPConn, error) {
					p := c.plans[a.String()]
					select {
					case <-time.After(p.after):
						if p.err != nil {
							return nil, p.err
						}
						return new(net.TCPConn), nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				begun := time.Now()
				_, opened, err := g.Open(t.Context(), target(t, "a.example:443"))
				if took := time.Since(begun); took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
				if c.won == "" {
					var failed *DialError
					if !errors.As(err, &failed) || failed.Late != (c.took == 20*time.Second) {
						t.Errorf("got %v", err)
					}
					return
				}
				if err != nil || opened.Addr.Addr().String() != c.won {
					t.Errorf("got %v %v, want %s", opened.Addr, err, c.won)
				}
			})
		})
	}
}

func TestRaceIsBounded(t *testing.T) {
	set := compile(t, nil, "a.example")
	var answer []string
	for i := range 200 {
		answer = append(answer, fmt.Sprintf("93.184.216.%d", i+1))
	}
	tried := 0
	g := &Gate{Policy: func() *policy.Set { return set }, Resolver: &stubResolver{answers: map[string][]string{"a.example": answer}}}
	g.dial = func(context.Context, policy.Target, netip.Addr) (*net.TCPConn, error) {
		tried++
		return nil, syscall.ECONNREFUSED
	}
	if _, _, err := g.Open(t.Context(), target(t, "a.example:443")); err == nil || tried != maxAttempts {
		t.Errorf("%d attempts, %v", tried, err)
	}
}
