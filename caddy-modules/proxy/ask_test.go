package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"postern/caddy-modules/policy"
)

// asker answers the questions of a gate, and counts them.
type asker struct {
	answer func(context.Context, policy.Decision) (policy.Decision, error)
	mu     sync.Mutex
	asked  []policy.Decision
	protos []Proto
}

func (a *asker) ask(ctx context.Context, d policy.Decision, p Proto) (policy.Decision, error) {
	a.mu.Lock()
	a.asked = append(a.asked, d)
	a.protos = append(a.protos, p)
	a.mu.Unlock()
	return a.answer(ctx, d)
}

func (a *asker) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.asked)
}

// yes is what an approver's consent to one connection looks like.
func yes(_ context.Context, d policy.Decision) (policy.Decision, error) {
	d.Allowed, d.Code, d.Source = true, policy.Allow, "approved by ann"
	return d, nil
}

// askLab is a lab whose policy asks about the hosts in ask.
func askLab(t *testing.T, a *asker, lists policy.Lists, options ...labOption) *lab {
	t.Helper()
	options = append(options, func(b *lab) { b.srv.Gate.Ask = a.ask })
	b := newLab(t, nil, options...)
	b.lists(lists)
	return b
}

func (b *lab) lists(lists policy.Lists) {
	b.t.Helper()
	set, err := policy.Compile(lists, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.set.Store(set)
}

// Nothing is looked up before the yes, and after it the connection goes on in every
// front end, for this connection alone.
func TestAskHoldsAndGoesOn(t *testing.T) {
	for proto, open := range doors {
		t.Run(string(proto), func(t *testing.T) {
			release := make(chan struct{})
			a := &asker{answer: func(ctx context.Context, d policy.Decision) (policy.Decision, error) {
				<-release
				return yes(ctx, d)
			}}
			b := askLab(t, a, policy.Lists{Ask: rules(t, "a.example 22")})
			go func() {
				defer close(release)
				await(t, "the question", func() bool { return a.count() == 1 })
				if lookups, dials := b.touched(); len(lookups)+len(dials) > 0 {
					t.Errorf("looked up %v, dialled %v", lookups, dials)
				}
			}()
			c := open(b, "a.example:22")
			c.send("hello")
			c.expect("hello")
			if a.protos[0] != proto || a.asked[0].Target().String() != "a.example:22" || a.asked[0].Code != policy.AskFirst {
				t.Errorf("asked %+v by %s", a.asked, a.protos)
			}
			if r := b.one(); !r.Allowed() || r.Decision.Source != "approved by ann" {
				t.Errorf("%+v: %s", r, r.Reason())
			}
			// A policy of the same kind leaves the connection; one that denies ends it.
			b.lists(policy.Lists{Ask: rules(t, "a.example 22", "c.example")})
			b.srv.Recheck()
			c.send("again")
			c.expect("again")
			b.lists(policy.Lists{Ask: rules(t, "a.example 22"), Deny: rules(t, "a.example")})
			b.srv.Recheck()
			c.expectEnd()
			if r := b.awaitClose(); r.Cause != CauseRevoked || r.Decision.Code != policy.Denied {
				t.Errorf("%+v", r)
			}
		})
	}
}

// The yes is for one connection and target: requests on it are not asked about
// again, another connection is.
func TestAskOnceIsOneConnection(t *testing.T) {
	a := &asker{answer: yes}
	b := askLab(t, a, policy.Lists{AskAny: true}, withOrigin(newOrigin(t, answering("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"))))
	conn := b.connectTo(b.http)
	for i, c := range []struct {
		host  string
		asked int
	}{{"a.example", 1}, {"a.example", 1}, {"b.example", 2}} {
		conn.send(get("http://"+c.host+"/", c.host))
		if resp, body := conn.response(http.MethodGet); resp.StatusCode != http.StatusOK || a.count() != c.asked {
			t.Fatalf("request %d: %s %s, asked %d times", i, resp.Status, body, a.count())
		}
	}
	other := b.connectTo(b.http)
	other.send(get("http://a.example/", "a.example"))
	if resp, _ := other.response(http.MethodGet); resp.StatusCode != http.StatusOK || a.count() != 3 {
		t.Errorf("%s, asked %d times", resp.Status, a.count())
	}
}

// An answer that went further than the connection is in the policy by the time it
// comes. What takes it back there cuts the connection that had asked, as any other.
func TestRevokedAnswerCutsWhoAsked(t *testing.T) {
	asks := func(b *lab, allow ...string) policy.Lists {
		return policy.Lists{Ask: rules(b.t, "a.example 22 80"), Allow: rules(b.t, allow...)}
	}
	for proto, open := range doors {
		t.Run(string(proto), func(t *testing.T) {
			var b *lab
			a := &asker{answer: func(ctx context.Context, d policy.Decision) (policy.Decision, error) {
				b.lists(asks(b, "a.example 22"))
				return yes(ctx, d)
			}}
			b = askLab(t, a, policy.Lists{})
			b.lists(asks(b))
			c := open(b, "a.example:22")
			c.send("hello")
			c.expect("hello")
			b.srv.Recheck()
			c.send("again")
			c.expect("again")
			b.lists(asks(b))
			b.srv.Recheck()
			c.expectEnd()
			if r := b.awaitClose(); r.Cause != CauseRevoked || r.Decision.Code != policy.AskFirst {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Run("the next request", func(t *testing.T) {
		var b *lab
		a := &asker{}
		a.answer = func(ctx context.Context, d policy.Decision) (policy.Decision, error) {
			if a.count() > 1 {
				return policy.Refuse(d.Target(), policy.AskRefused, "ann said no"), nil
			}
			b.lists(asks(b, "a.example 80"))
			return yes(ctx, d)
		}
		b = askLab(t, a, policy.Lists{}, withOrigin(newOrigin(t, answering(okAnswer))))
		b.lists(asks(b))
		conn := b.connectTo(b.http)
		for _, want := range []int{http.StatusOK, http.StatusOK} {
			conn.send(get(aURL, "a.example"))
			if resp, body := conn.response(http.MethodGet); resp.StatusCode != want {
				t.Fatalf("%s %s", resp.Status, body)
			}
		}
		b.lists(asks(b))
		b.srv.Recheck()
		conn.send(get(aURL, "a.example"))
		if resp, _ := conn.response(http.MethodGet); resp.Header.Get(reasonField) != "ask_refused" || a.count() != 2 {
			t.Errorf("%s, asked %d times", resp.Status, a.count())
		}
	})
}

func TestAskRefusals(t *testing.T) {
	refuse := func(code policy.Code) func(context.Context, policy.Decision) (policy.Decision, error) {
		return func(_ context.Context, d policy.Decision) (policy.Decision, error) {
			return policy.Refuse(d.Target(), code, "ann said no"), nil
		}
	}
	fail := func(err error) func(context.Context, policy.Decision) (policy.Decision, error) {
		return func(context.Context, policy.Decision) (policy.Decision, error) {
			return policy.Decision{Allowed: true}, err
		}
	}
	for _, c := range []struct {
		name, code string
		answer     func(context.Context, policy.Decision) (policy.Decision, error)
	}{
		{"no", "ask_refused", refuse(policy.AskRefused)},
		{"nobody", "ask_nobody", refuse(policy.AskNobody)},
		{"late", "ask_timeout", fail(context.DeadlineExceeded)},
		{"broken", "ask_nobody", fail(errors.New("the approver is gone"))},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := askLab(t, &asker{answer: c.answer}, policy.Lists{AskAny: true})
			conn := b.connectTo(b.http)
			conn.send(connectTo("a.example:443"))
			resp, body := conn.response(http.MethodConnect)
			if resp.StatusCode != http.StatusForbidden || resp.Header.Get(reasonField) != c.code {
				t.Errorf("%s %s", resp.Status, body)
			}
			if r := b.one(); r.Allowed() || r.Code() != c.code {
				t.Errorf("%+v", r)
			}
			if lookups, dials := b.touched(); len(lookups)+len(dials) > 0 {
				t.Errorf("looked up %v, dialled %v", lookups, dials)
			}
		})
	}
}

// What no approval opens is not even asked about.
func TestAskLiftsNothingElse(t *testing.T) {
	a := &asker{answer: yes}
	own := func(ap netip.AddrPort) bool { return ap.Port() == 7777 }
	b := askLab(t, a, policy.Lists{AskAny: true, Deny: rules(t, "denied.example"), AlwaysDeny: rules(t, "never.example")})
	set, err := policy.Compile(policy.Lists{AskAny: true, Deny: rules(t, "denied.example"), AlwaysDeny: rules(t, "never.example")}, own)
	if err != nil {
		t.Fatal(err)
	}
	b.set.Store(set)
	for target, code := range map[string]string{
		"denied.example:443": "denied", "never.example:443": "always_denied", "169.254.169.254:80": "always_denied",
		"10.0.0.1:80": "not_allowed", "93.184.216.34:7777": "own_listener",
	} {
		conn := b.connectTo(b.http)
		conn.send(connectTo(target))
		if resp, _ := conn.response(http.MethodConnect); resp.StatusCode != http.StatusForbidden || resp.Header.Get(reasonField) != code {
			t.Errorf("%s: %s %s", target, resp.Status, resp.Header.Get(reasonField))
		}
	}
	if a.count() != 0 {
		t.Errorf("asked %v", a.asked)
	}
	// An approved name that turns out to live at a private address.
	b.answers["inside.example"] = [][]netip.Addr{{netip.MustParseAddr("10.0.0.1")}}
	conn := b.connectTo(b.http)
	conn.send(connectTo("inside.example:443"))
	if resp, _ := conn.response(http.MethodConnect); resp.StatusCode != http.StatusForbidden || resp.Header.Get(reasonField) != "address_class" {
		t.Errorf("%s %s", resp.Status, resp.Header.Get(reasonField))
	}
	if _, dials := b.touched(); len(dials) > 0 {
		t.Errorf("dialled %v", dials)
	}
}

// The policy may change while somebody thinks: a deny wins over the yes.
func TestAskLosesToADenyOfMeanwhile(t *testing.T) {
	var b *lab
	a := &asker{answer: func(ctx context.Context, d policy.Decision) (policy.Decision, error) {
		b.lists(policy.Lists{AskAny: true, Deny: rules(b.t, "a.example")})
		return yes(ctx, d)
	}}
	b = askLab(t, a, policy.Lists{AskAny: true})
	conn := b.connectTo(b.http)
	conn.send(connectTo("a.example:443"))
	if resp, _ := conn.response(http.MethodConnect); resp.Header.Get(reasonField) != "denied" {
		t.Errorf("%s %s", resp.Status, resp.Header.Get(reasonField))
	}
}

// A client that leaves takes its question back, in every front end and whatever it
// had sent before.
func TestClientGoneWithdrawsTheQuestion(t *testing.T) {
	for _, ahead := range []string{"", "SSH-2.0-x\r\n"} {
		for _, proto := range []Proto{ProtoConnect, ProtoSOCKS5, ProtoTransparent} {
			t.Run(string(proto)+" "+strings.TrimSpace(ahead), func(t *testing.T) {
				var withdrawn atomic.Bool
				a := &asker{answer: func(ctx context.Context, _ policy.Decision) (policy.Decision, error) {
					<-ctx.Done()
					withdrawn.Store(true)
					return policy.Decision{}, ctx.Err()
				}}
				b := askLab(t, a, policy.Lists{AskAny: true})
				var c *client
				switch proto {
				case ProtoConnect:
					c = b.connectTo(b.http)
					c.send(connectTo("a.example:22") + ahead)
				case ProtoSOCKS5:
					c = b.connectTo(b.socks)
					c.send(noAuth + socksRequest("a.example", 22) + ahead)
				default:
					c = b.transparentTo("a.example:22")
					c.send(ahead)
				}
				await(t, "the question", func() bool { return a.count() == 1 })
				_ = c.Close()
				await(t, "the end of the question", withdrawn.Load)
				if r := b.one(); r.Allowed() || r.Code() != "ask_timeout" {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

// The end of a session does not wait for its approver.
func TestCloseEndsTheQuestion(t *testing.T) {
	a := &asker{answer: func(ctx context.Context, _ policy.Decision) (policy.Decision, error) {
		<-ctx.Done()
		return policy.Decision{}, ctx.Err()
	}}
	b := askLab(t, a, policy.Lists{AskAny: true})
	c := b.connectTo(b.http)
	c.send(connectTo("a.example:443"))
	await(t, "the question", func() bool { return a.count() == 1 })
	if err := b.srv.Close(); err != nil {
		t.Fatal(err)
	}
	c.expectEnd()
}

// Held keeps an address from before the tunnel until after it, and no connection
// goes to one that it does not know.
func TestHeldLivesAsLongAsTheConnection(t *testing.T) {
	var held, released atomic.Int64
	b := newLab(t, []string{"a.example 22", "b.example 22", "93.184.216.34"}, func(b *lab) {
		b.srv.Gate.Held = func(name string, a netip.Addr) (func(), bool) {
			if name != "a.example" || a != public {
				return func() {}, false
			}
			held.Add(1)
			return sync.OnceFunc(func() { released.Add(1) }), true
		}
	})
	c := b.tunnel("a.example:22")
	c.send("hello")
	c.expect("hello")
	if held.Load() != 1 || released.Load() != 0 {
		t.Errorf("held %d, released %d", held.Load(), released.Load())
	}
	_ = c.Close()
	await(t, "the release", func() bool { return released.Load() == 1 })
	c = b.connectTo(b.http)
	c.send(connectTo("b.example:22"))
	if resp, _ := c.response(http.MethodConnect); resp.Header.Get(reasonField) != "name_refused" {
		t.Errorf("%s", resp.Status)
	}
	// An address that a rule names was looked up by nobody.
	b.tunnel("93.184.216.34:22").send("x")
	c = b.tunnel("a.example:22")
	b.allow(nil, nil, nil)
	b.srv.Recheck()
	c.expectEnd()
	await(t, "the release of what was cut", func() bool { return released.Load() == held.Load() && held.Load() == 2 })
}
