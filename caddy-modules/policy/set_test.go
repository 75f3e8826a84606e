package policy

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

func texts(rules []Rule) string {
	var out []string
	for _, r := range rules {
		out = append(out, r.String())
	}
	return strings.Join(out, ", ")
}

func TestCompileFolds(t *testing.T) {
	s := setOf(t, "b.example\nB.example.\n", "c.example 25\nc.example 25 25\n", "a.example 443\nA.example. 443\na.example 22\n*.a.example\n")
	l := s.Lists()
	if got := texts(l.AlwaysDeny); got != "b.example" {
		t.Errorf("always deny: %s", got)
	}
	if got := texts(l.Deny); got != "c.example 25" {
		t.Errorf("deny: %s", got)
	}
	if got := texts(l.Allow); got != "a.example 443, a.example 22, *.a.example" {
		t.Errorf("allow: %s", got)
	}
	// Rules for one host add up, and each port names its rule.
	for in, want := range map[string]string{"a.example:443": "allow:1", "a.example:22": "allow:3", "x.a.example:80": "allow:4"} {
		if d := s.Decide(targetOf(t, in)); !d.Allowed || d.Source != want {
			t.Errorf("%s: %s", in, d.Reason())
		}
	}
	// So do their flags, on the ports that both name.
	flags := setOf(t, "", "", "b.example 443\nb.example 443 tcp\nb.example 443 80 private\n")
	d := flags.DecideAddr(targetOf(t, "b.example:443"), netip.MustParseAddr("10.0.0.1"))
	if !d.Allowed || !d.TCP {
		t.Errorf("port 443 has lost a flag: %s", d.Reason())
	}
	if d := flags.Decide(targetOf(t, "b.example:80")); !d.Allowed || d.TCP {
		t.Errorf("port 80 has a flag of port 443: %s", d.Reason())
	}
	// The slices are the caller's.
	l.Allow[0] = Rule{}
	if got := texts(s.Lists().Allow); !strings.HasPrefix(got, "a.example 443") {
		t.Errorf("a caller changed the set: %s", got)
	}
}

func TestCompileRefuses(t *testing.T) {
	for name, l := range map[string]Lists{
		"empty rule":             {Allow: []Rule{{}}},
		"empty deny rule":        {Deny: []Rule{{Origin: Origin{File: "x"}}}},
		"private in deny":        {Deny: rulesOf(t, "deny", "a.example private")},
		"tcp in deny":            {Deny: rulesOf(t, "deny", "a.example 22 tcp")},
		"private in always deny": {AlwaysDeny: rulesOf(t, "always", "a.example private")},
	} {
		s, err := Compile(l, nil)
		if err == nil || s != nil {
			t.Errorf("%s: got %v, %v", name, s, err)
		}
	}
	_, err := Compile(Lists{Deny: rulesOf(t, "deny.list", "ok.example\na.example 22 tcp")}, nil)
	if want := `deny.list:2: compile policy: rule "a.example 22 tcp" denies: the flags private and tcp belong to rules that allow`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Without an OwnFunc nothing is an own listener, and the rest stands.
func TestCompileWithoutOwn(t *testing.T) {
	s, err := Compile(Lists{Allow: rulesOf(t, "allow", "127.0.0.1")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := s.Decide(targetOf(t, "127.0.0.1:2019")); !d.Allowed {
		t.Error(d.Reason())
	}
	if d := s.Decide(targetOf(t, "169.254.169.254:80")); d.Code != AlwaysDenied {
		t.Error(d.Reason())
	}
}

func TestExtend(t *testing.T) {
	base := setOf(t, "", "*.sentry.io\n10.9.0.0/16", "api.github.com 443\n*.corp.example 443")
	first, err := base.Extend(rulesOf(t, "session", "extra.example 8443\no1.sentry.io\n10.9.0.1\n10.8.0.1\n*.corp.example 443 private\nmetadata.google.internal\n169.254.169.254"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := first.Extend(rulesOf(t, "grant", "more.example\nextra.example 8443"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		in                  string
		base, first, second Code
	}{
		{"api.github.com:443", Allow, Allow, Allow},
		{"extra.example:8443", NotAllowed, Allow, Allow},
		{"extra.example:443", NotAllowed, PortNotAllowed, PortNotAllowed},
		{"more.example:443", NotAllowed, NotAllowed, Allow},
		{"o1.sentry.io:443", Denied, Denied, Denied},
		{"10.9.0.1:443", Denied, Denied, Denied},
		{"10.8.0.1:443", NotAllowed, Allow, Allow},
		{"metadata.google.internal:80", AlwaysDenied, AlwaysDenied, AlwaysDenied},
		{"169.254.169.254:80", AlwaysDenied, AlwaysDenied, AlwaysDenied},
		{"127.0.0.1:20001", OwnListener, OwnListener, OwnListener},
	} {
		for i, s := range []*Set{base, first, second} {
			want := []Code{c.base, c.first, c.second}[i]
			if d := s.Decide(targetOf(t, c.in)); d.Code != want {
				t.Errorf("%s in set %d: got %v, want %v", c.in, i, d.Code, want)
			}
		}
	}
	// A flag that a session adds to a rule of the base holds in the session only.
	x, inside := targetOf(t, "x.corp.example:443"), netip.MustParseAddr("10.8.0.1")
	if d := base.DecideAddr(x, inside); d.Allowed {
		t.Errorf("base: %s", d.Reason())
	}
	if d := second.DecideAddr(x, inside); !d.Allowed || d.Source != "session:5" {
		t.Errorf("session: %s", d.Reason())
	}
	if second.base != base.base {
		t.Error("the base was copied")
	}
	if got := texts(second.Lists().Allow); !strings.HasSuffix(got, "169.254.169.254, more.example") || strings.Count(got, "extra.example") != 1 {
		t.Errorf("rules in force: %s", got)
	}
	if same, err := second.Extend(rulesOf(t, "grant", "more.example")); err != nil || same != second {
		t.Errorf("nothing new: got %p, %v, want the same set", same, err)
	}
	if _, err := base.Extend([]Rule{{}}); err == nil {
		t.Error("an empty rule passes")
	}
}

func TestExtendOpensNoClosedSet(t *testing.T) {
	rules := rulesOf(t, "session", "a.example")
	for name, s := range map[string]*Set{"off": Off(), "gone": Closed("gone"), "nil": nil} {
		wider, err := s.Extend(rules)
		if err != nil {
			t.Fatal(err)
		}
		if d := wider.Decide(targetOf(t, "a.example:443")); d.Allowed {
			t.Errorf("%s: allowed", name)
		}
		if l := wider.Lists(); len(l.Allow)+len(l.Deny)+len(l.AlwaysDeny) != 0 || wider.Dead() != nil {
			t.Errorf("%s: has rules %v", name, l)
		}
	}
}

func TestDead(t *testing.T) {
	s := setOf(t, "closed.example\n", "*.sentry.io\nmail.example.com 25\n10.9.0.0/16\n10.0.0.0/16\na.*.example.net\nxy.example 80 443\n", `
alive.example
169.254.169.254
169.254.0.0/16 80
168.63.129.16
metadata.google.internal
closed.example 9
o1.sentry.io
*.ingest.sentry.io
x.*.sentry.io
sentry.io
mail.example.com 25
mail.example.com 25 443
10.9.1.0/24
10.9.0.7
10.0.0.0/8
a.*.example.net
*.example.net
xy.example
xy.example 8080
0.0.0.0
224.0.0.0/4
localhost
localhost 3000 private
64:ff9b::a09:1
::ffff:10.9.0.8
`)
	want := map[string]string{
		"169.254.169.254":          "169.254.169.254",
		"169.254.0.0/16 80":        "169.254.0.0/16",
		"168.63.129.16":            "168.63.129.16",
		"metadata.google.internal": "metadata.google.internal",
		"closed.example 9":         "closed.example",
		"o1.sentry.io":             "*.sentry.io",
		"*.ingest.sentry.io":       "*.sentry.io",
		"x.*.sentry.io":            "*.sentry.io",
		"mail.example.com 25":      "mail.example.com 25",
		"10.9.1.0/24":              "10.9.0.0/16",
		"10.9.0.7":                 "10.9.0.0/16",
		"10.9.0.8":                 "10.9.0.0/16",
		"64:ff9b::a09:1":           "10.9.0.0/16",
		"a.*.example.net":          "a.*.example.net",
		"xy.example":               "xy.example 80 443",
		"0.0.0.0":                  "",
		"224.0.0.0/4":              "",
		"localhost":                "",
	}
	for _, d := range s.Dead() {
		by, ok := want[d.Rule.String()]
		if !ok || d.By != by {
			t.Errorf("%q is dead by %q, want %q: %s", d.Rule, d.By, by, d.Reason)
		}
		delete(want, d.Rule.String())
		if !strings.HasPrefix(d.Reason, d.Rule.Origin.String()+": the rule ") {
			t.Errorf("reason names no place: %s", d.Reason)
		}
		wantOneLine(t, d.Reason)
	}
	for rule := range want {
		t.Errorf("%q is not reported", rule)
	}
}

// Many ports of one host are searched, not scanned, and decide the same.
func TestManyGrants(t *testing.T) {
	var allowed, denied strings.Builder
	for port := 1; port <= 60; port++ {
		if port%3 != 0 {
			fmt.Fprintf(&allowed, "a.example %d\n*.b.example %d tcp\n10.0.0.0/24 %d\n", port, port, port)
		}
		if port%5 == 0 {
			fmt.Fprintf(&denied, "a.example %d\nx.b.example %d\n10.0.0.0/24 %d\n", port, port, port)
		}
	}
	s := setOf(t, "", denied.String(), allowed.String())
	for port := 1; port <= 70; port++ {
		want := Allow
		switch {
		case port <= 60 && port%5 == 0:
			want = Denied
		case port > 60 || port%3 == 0:
			want = PortNotAllowed
		}
		for _, host := range []string{"a.example", "x.b.example", "10.0.0.9"} {
			d := s.Decide(targetOf(t, fmt.Sprintf("%s:%d", host, port)))
			if d.Code != want {
				t.Errorf("%s: got %v, want %v", d.Target(), d.Code, want)
			}
			if d.TCP != (want == Allow && host == "x.b.example") {
				t.Errorf("%s: TCP is %v", d.Target(), d.TCP)
			}
		}
	}
}

// Every rule of a long list is found again: the table loses none to collisions.
func TestLongList(t *testing.T) {
	const n = 20_000
	s, err := Compile(benchLists(t, n), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		var in string
		switch i % 10 {
		case 0, 1:
			in = fmt.Sprintf("a.b.zone%d.example.com:443", i)
		case 2:
			in = fmt.Sprintf("api%d.eu.example.net:443", i)
		case 3:
			in = fmt.Sprintf("198.%d.%d.%d:443", i>>16, i>>8&0xff, i&0xff)
		case 4:
			in = fmt.Sprintf("[20%02x:%x::7]:443", i>>16, i&0xffff)
		default:
			in = fmt.Sprintf("host%d.svc.example.org:443", i)
		}
		d := s.Decide(targetOf(t, in))
		if want := fmt.Sprintf("bench:%d", i+1); d.Source != want {
			t.Fatalf("rule %d: %s", i, d.Reason())
		}
		if i%10 > 4 {
			if d := s.Decide(targetOf(t, "not-"+in)); d.Allowed {
				t.Fatalf("rule %d matches too much: %s", i, d.Reason())
			}
		}
	}
}

func TestDecideAllocatesNothing(t *testing.T) {
	s := setOf(t, testAlways, testDeny, testAllow)
	wider, err := s.Extend(rulesOf(t, "session", "extra.example\n*.more.example"))
	if err != nil {
		t.Fatal(err)
	}
	public, private := netip.MustParseAddr("140.82.112.5"), netip.MustParseAddr("64:ff9b::a00:5")
	for _, in := range []string{
		"api.github.com:443", "a.b.c.anthropic.com:443", "bedrock.us-east-1.amazonaws.com:443",
		"evil.example:443", "o1.sentry.io:443", "10.0.0.5:443", "[64:ff9b::a09:1]:443", "127.0.0.1:20001", "extra.example:443",
	} {
		target := targetOf(t, in)
		allocs := testing.AllocsPerRun(100, func() {
			_ = wider.Decide(target)
			_ = wider.DecideAddr(target, public)
			_ = wider.DecideAddr(target, private)
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations", in, allocs)
		}
	}
}

// A name of the most labels costs the lookups of the depths that rules have.
func TestDeepNames(t *testing.T) {
	deep := "*." + strings.Repeat("a.", 124) + "b"
	s := setOf(t, "", "", deep+"\nx.*."+strings.Repeat("c.", 100)+"d")
	if d := s.Decide(targetOf(t, strings.Repeat("a.", 126)+"b:443")); !d.Allowed {
		t.Error(d.Reason())
	}
	if d := s.Decide(targetOf(t, "x.y."+strings.Repeat("c.", 100)+"d:443")); !d.Allowed {
		t.Error(d.Reason())
	}
	if d := s.Decide(targetOf(t, "x.y."+strings.Repeat("c.", 99)+"d:443")); d.Allowed {
		t.Error(d.Reason())
	}
}

// Two names with one hash are two names.
func TestNameTableCollision(t *testing.T) {
	table := newNameTable(2)
	table.put("a.example")
	table.put("b.example")
	if n := table.find("a.example"); n == nil || n.name != "a.example" {
		t.Fatalf("got %v", n)
	}
	// Let the hash of a third name point at the first.
	h := maphash.String(table.seed, "c.example")
	last := uint64(len(table.slots)) - 1
	at := h & last
	for table.slots[at] != 0 {
		at = (at + 1) & last
	}
	table.slots[at] = h&^0xffffffff | 1
	if n := table.find("c.example"); n != nil {
		t.Errorf("c.example finds %s", n.name)
	}
}

func TestConcurrentUse(t *testing.T) {
	base := setOf(t, testAlways, testDeny, testAllow)
	target := targetOf(t, "api.github.com:443")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			rules, err := ParseList(strings.NewReader(fmt.Sprintf("x%d.example", i)), "session")
			if err != nil {
				t.Error(err)
				return
			}
			s, err := base.Extend(rules)
			if err != nil {
				t.Error(err)
				return
			}
			for range 200 {
				if d := s.Decide(target); !d.Allowed {
					t.Error(d.Reason())
				}
				_ = s.Dead()
			}
		})
	}
	wg.Wait()
}

func TestSyntaxErrorsAreTyped(t *testing.T) {
	_, err := ParseList(strings.NewReader("a.com\n*.com\n"), "x.list")
	var syntax *SyntaxError
	if !errors.As(err, &syntax) || syntax.Input != "*.com" {
		t.Errorf("got %v", err)
	}
}
