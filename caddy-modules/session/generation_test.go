package session

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/proxy"
	"postern/caddy-modules/session/lease"
)

// The three things a reload may do to a tunnel that is open.
func TestTunnelsThroughReloads(t *testing.T) {
	for _, c := range []struct {
		name     string
		allowed  bool // by the new generation
		rollback bool
		live     bool // the tunnel, afterwards
	}{
		{"kept when the reload fails", false, true, true},
		{"kept when it is still allowed", true, false, true},
		{"cut when it is revoked", false, false, false},
		{"kept when nothing changed and the reload failed", true, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRegistry(t)
			upstream := echo(t)
			a := generation(t, r, rule(upstream))
			r.Push(a)
			s := open(t, r, lease.Spec{ID: "a"})
			tun := connect(t, "tcp", s.HTTP, upstream)
			if tun.status != http.StatusOK || !tun.alive() {
				t.Fatalf("no tunnel: %s", tun.phrase)
			}

			b := generation(t, r)
			if c.allowed {
				b = generation(t, r, rule(upstream))
			}
			r.Push(b)
			// New connections are under b at once, the open one is under nobody yet.
			want := http.StatusForbidden
			if c.allowed {
				want = http.StatusOK
			}
			if got := connect(t, "tcp", s.HTTP, upstream); got.status != want {
				t.Errorf("new connection after the push: %s", got.phrase)
			}
			if !tun.alive() {
				t.Fatal("the push cut the tunnel")
			}

			if c.rollback {
				r.Drop(b)
				want = http.StatusOK
			} else {
				r.Drop(a)
			}
			if c.live && !tun.alive() {
				t.Error("the tunnel was cut")
			}
			if !c.live {
				tun.cut(t)
			}
			if got := connect(t, "tcp", s.HTTP, upstream); got.status != want {
				t.Errorf("new connection afterwards: %s", got.phrase)
			}
		})
	}
}

func TestPushAndDropAreIdempotent(t *testing.T) {
	r := newRegistry(t)
	upstream := echo(t)
	a, b := generation(t, r, rule(upstream)), generation(t, r)
	r.Drop(a) // was never pushed
	r.Push(nil)
	r.Push(a)
	s := open(t, r, lease.Spec{ID: "a"})
	tun := connect(t, "tcp", s.HTTP, upstream)
	r.Push(b)
	r.Push(b)
	r.Push(a) // is there already, and does not become the newest
	if got := connect(t, "tcp", s.HTTP, upstream); got.status != http.StatusForbidden {
		t.Errorf("pushing the older generation again made it govern: %s", got.phrase)
	}
	r.Drop(b)
	r.Drop(b) // Cleanup after Stop
	if !tun.alive() {
		t.Error("dropping twice is not a rollback any more")
	}
	if got := connect(t, "tcp", s.HTTP, upstream); got.status != http.StatusOK {
		t.Errorf("after the rollback: %s", got.phrase)
	}
}

// Whatever the order of pushes and drops: the newest that is left governs new
// connections, and a tunnel lives exactly as long as no commit found it refused.
func TestAnyOrderOfPushesAndDrops(t *testing.T) {
	const hosts, gens = 3, 4
	var upstreams [hosts]string
	for i := range upstreams {
		upstreams[i] = echo(t)
	}
	rapid.Check(t, func(rt *rapid.T) {
		r := New(Options{RunDir: runDir(t)})
		defer func() { _ = r.Destruct() }()
		// allowed[g][h]: what generation g says of host h.
		var allowed [gens][hosts]bool
		var made [gens]*Generation
		for g := range gens {
			var lines []string
			for h := range hosts {
				if allowed[g][h] = rapid.Bool().Draw(rt, "allowed"); allowed[g][h] {
					lines = append(lines, rule(upstreams[h]))
				}
			}
			made[g] = generation(t, r, lines...)
		}

		// The model: a stack, and the tunnels that should live.
		stack := []int{0}
		type live struct {
			host int
			tun  *tunnel
		}
		var tunnels []live
		r.Push(made[0])
		s := open(t, r, lease.Spec{ID: "a"})

		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			g := rapid.IntRange(0, gens-1).Draw(rt, "generation")
			switch rapid.SampledFrom([]string{"push", "drop", "dial", "dial"}).Draw(rt, "step") {
			case "push":
				r.Push(made[g])
				if !slices.Contains(stack, g) {
					stack = append(stack, g)
				}
			case "drop":
				r.Drop(made[g])
				i := slices.Index(stack, g)
				if i < 0 {
					break
				}
				commit := i < len(stack)-1
				stack = slices.Delete(stack, i, i+1)
				if !commit {
					break
				}
				tunnels = slices.DeleteFunc(tunnels, func(l live) bool {
					refused := !allowed[stack[len(stack)-1]][l.host]
					if refused {
						l.tun.cut(t)
						l.tun.Close()
					}
					return refused
				})
			case "dial":
				h := rapid.IntRange(0, hosts-1).Draw(rt, "host")
				tun := connect(t, "tcp", s.HTTP, upstreams[h])
				want := len(stack) > 0 && allowed[stack[len(stack)-1]][h]
				if got := tun.status == http.StatusOK; got != want {
					rt.Fatalf("host %d under stack %v: %s", h, stack, tun.phrase)
				}
				if want {
					tunnels = append(tunnels, live{h, tun})
				} else {
					tun.Close()
				}
			}
			for _, l := range tunnels {
				if !l.tun.alive() {
					rt.Fatalf("the tunnel to host %d was cut under stack %v", l.host, stack)
				}
			}
		}
		for _, l := range tunnels {
			l.tun.Close()
		}
	})
}

// Statement: a session whose policy left the configuration refuses everything and
// says why; it works again when the policy is back.
func TestPolicyVanishes(t *testing.T) {
	r := newRegistry(t)
	upstream := echo(t)
	with := generation(t, r, rule(upstream))
	with.Policies["review"] = set(t, r, rule(upstream))
	r.Push(with)
	s := open(t, r, lease.Spec{ID: "a", Policy: "review"})
	events := r.hub.subscribe("a", 10)
	defer events.cancel()
	tun := connect(t, "tcp", s.HTTP, upstream)

	without := generation(t, r, rule(upstream))
	r.Push(without)
	got := connect(t, "tcp", s.HTTP, upstream)
	if got.status != http.StatusForbidden || got.reason != "policy_gone" || !strings.Contains(got.body, `no policy "review"`) {
		t.Errorf("got %s, %s, %q", got.phrase, got.reason, got.body)
	}
	if e := <-events.ch; e.Type != lease.EventPolicy || !strings.Contains(e.Text("refusing"), "review") {
		t.Errorf("event %+v", e)
	}
	if info, _ := r.Lookup("a"); !strings.Contains(info.Refusing, "review") || info.Policy != "review" {
		t.Errorf("info says %q", info.Refusing)
	}
	r.Drop(with)
	tun.cut(t)

	r.Push(with)
	r.Drop(without)
	if got := connect(t, "tcp", s.HTTP, upstream); got.status != http.StatusOK {
		t.Errorf("after the policy came back: %s", got.phrase)
	}
	if info, _ := r.Lookup("a"); info.Refusing != "" {
		t.Errorf("info still says %q", info.Refusing)
	}
}

// A session without a policy of its own follows the default, whichever it is.
func TestDefaultPolicyChanges(t *testing.T) {
	r := newRegistry(t)
	upstream := echo(t)
	a := generation(t, r, rule(upstream))
	r.Push(a)
	s := open(t, r, lease.Spec{ID: "a"})
	b := generation(t, r, rule(upstream))
	b.DefaultPolicy = "other"
	r.Push(b)
	r.Drop(a)
	if got := connect(t, "tcp", s.HTTP, upstream); got.status != http.StatusForbidden {
		t.Errorf("got %s", got.phrase)
	}
	if info, _ := r.Lookup("a"); info.Policy != "other" {
		t.Errorf("the policy is %q", info.Policy)
	}
}

// Nothing governs between the last drop and the end: closed, with a reason.
func TestNothingGoverns(t *testing.T) {
	r := newRegistry(t)
	if _, err := r.Open(t.Context(), lease.Spec{ID: "a"}, 0); codeOf(err) != lease.CodeNotConfigured {
		t.Errorf("opened before any configuration: %v", err)
	}
	upstream := echo(t)
	g := generation(t, r, rule(upstream))
	r.Push(g)
	s := open(t, r, lease.Spec{ID: "a", EgressAllowlist: []string{rule(upstream)}})
	r.Drop(g)
	got := connect(t, "tcp", s.HTTP, upstream)
	if got.status != http.StatusForbidden || !strings.Contains(got.body, "no configuration governs") {
		t.Errorf("got %s %q", got.phrase, got.body)
	}
	if _, err := r.Open(t.Context(), lease.Spec{ID: "b"}, 0); codeOf(err) != lease.CodeNotConfigured {
		t.Errorf("opened after the last configuration: %v", err)
	}
}

// Limits and the SNI mode of a generation hold for the connections made under it,
// on the same listeners; those made before keep theirs.
func TestLimitsChangeWithTheGeneration(t *testing.T) {
	r := newRegistry(t)
	upstream := echo(t)
	a := generation(t, r, rule(upstream))
	r.Push(a)
	s := open(t, r, lease.Spec{ID: "a"})
	old := connect(t, "tcp", s.HTTP, upstream)

	b := generation(t, r, rule(upstream))
	b.Limits = proxy.Limits{Idle: 100 * time.Millisecond}
	b.SNI = proxy.SNIOff
	r.Push(b)
	r.Drop(a)
	if !old.alive() {
		t.Fatal("the change of limits cut a tunnel")
	}
	short := connect(t, "tcp", s.HTTP, upstream)
	if short.status != http.StatusOK {
		t.Fatalf("after the change: %s", short.phrase)
	}
	short.cut(t) // idle for 100 ms
	if !old.alive() {
		t.Error("the old tunnel got the new limit")
	}
	eventually(t, "one tunnel is left", func() bool { info, _ := r.Lookup("a"); return info.Tunnels == 1 && info.HTTP == s.HTTP })

	// A commit reaches what an earlier server still holds.
	c := generation(t, r)
	c.Limits = b.Limits
	r.Push(c)
	r.Drop(b)
	old.cut(t)
	// And a server without connections does not stay for ever.
	front := &r.find("a").front
	eventually(t, "the retired server is closed", func() bool {
		front.update()
		front.mu.Lock()
		defer front.mu.Unlock()
		return len(front.retired) == 0
	})
}

// No connection is lost or refused while the listeners change hands.
func TestHandoverUnderLoad(t *testing.T) {
	r := newRegistry(t)
	upstream := echo(t)
	g := generation(t, r, rule(upstream))
	r.Push(g)
	s := open(t, r, lease.Spec{ID: "a"})
	stop, failed := make(chan struct{}), make(chan error, 1)
	done := make(chan int, 1)
	go func() {
		n := 0
		defer func() { done <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			c, err := net.DialTimeout("tcp", s.HTTP, patience)
			if err == nil {
				_ = c.SetDeadline(time.Now().Add(patience))
				fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", upstream, upstream)
				buf := make([]byte, 12)
				_, err = c.Read(buf)
				c.Close()
				if err == nil && string(buf) != "HTTP/1.1 200" {
					err = fmt.Errorf("answer %q", buf)
				}
			}
			if err != nil {
				failed <- err
				return
			}
			n++
		}
	}()
	for i := range 30 {
		next := generation(t, r, rule(upstream))
		next.Limits = proxy.Limits{Idle: time.Duration(i+1) * time.Minute}
		r.Push(next)
		r.Drop(g)
		g = next
		time.Sleep(2 * time.Millisecond)
	}
	close(stop)
	n := <-done
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	if n == 0 {
		t.Error("nothing was dialled")
	}
	t.Logf("%d connections through 30 hand-overs", n)
}

// A rule set of a generation never depends on whose session asks first.
func TestSessionsDoNotShareRules(t *testing.T) {
	r := newRegistry(t)
	x, y := echo(t), echo(t)
	r.Push(generation(t, r))
	a := open(t, r, lease.Spec{ID: "a", EgressAllowlist: []string{rule(x)}})
	check := func(when string, s Info, target string, want int) {
		t.Helper()
		if got := connect(t, "tcp", s.HTTP, target); got.status != want {
			t.Errorf("%s: %s", when, got.phrase)
		}
	}
	b := open(t, r, lease.Spec{ID: "b", EgressAllowlist: []string{rule(y)}})
	check("a to x", a, x, 200)
	check("a to y", a, y, 403)
	check("b to x", b, x, 403)
	check("b to y", b, y, 200)
	old := r.governing.Load()
	r.Push(generation(t, r))
	r.Drop(old)
	check("a to x after a reload", a, x, 200)
	check("b to x after a reload", b, x, 403)
	if err := r.Close("a"); err != nil {
		t.Fatal(err)
	}
	check("b to x after a's end", b, x, 403)
	check("b to y after a's end", b, y, 200)
}

func TestUnknownPolicyNamesTheOthers(t *testing.T) {
	g := &Generation{Policies: map[string]*policy.Set{"b": nil, "a": nil}}
	if got := unknownPolicy(g, "c"); got != `the configuration has no policy "c"; it has a, b` {
		t.Error(got)
	}
	if got := unknownPolicy(&Generation{}, "c"); !strings.Contains(got, "nor any other") {
		t.Error(got)
	}
}
