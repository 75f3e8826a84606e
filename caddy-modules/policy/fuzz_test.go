package policy

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func FuzzParseHost(f *testing.F) {
	for _, c := range corpus(f, "match") {
		f.Add(c.Input)
	}
	for _, seed := range []string{"[::1%25.allowed.com]", "0x7f.1", "①②⑦.0.0.1", "a.0x", "fe80::1%eth0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		checkHost(t, text)
		// A name for SOCKS is a host, and the same one.
		if n, err := ParseName(text); err == nil {
			if h, err := ParseHost(text); err != nil || h != n {
				t.Fatalf("%q is the name %v and the host %v, %v", text, n, h, err)
			}
		}
	})
}

func FuzzParseTarget(f *testing.F) {
	for _, c := range corpus(f, "connect") {
		line, _, _ := strings.Cut(fillIn(c.Input), "\r\n")
		_, line, _ = strings.Cut(line, " ")
		authority, _, _ := strings.Cut(line, " HTTP/")
		f.Add(authority)
	}
	f.Fuzz(func(t *testing.T, authority string) {
		target, err := ParseTarget(authority, SchemeTCP)
		if err != nil {
			if !target.IsZero() || err.Error() != printable(err.Error()) {
				t.Fatalf("%q: %v, %q", authority, target, err)
			}
			return
		}
		again, err := ParseTarget(target.String(), SchemeTCP)
		if err != nil || again != target || target.Port() == 0 {
			t.Fatalf("%q gives %v, which reads back as %v, %v", authority, target, again, err)
		}
		if or, err := ParseTargetOr(authority, 80, SchemeTCP); err != nil || or != target {
			t.Fatalf("%q is %v, as part of a URI %v, %v", authority, target, or, err)
		}
		// An independent reader of HOST:PORT must see the same address.
		if ap, err := netip.ParseAddrPort(authority); err == nil {
			if a, ok := target.Host().Addr(); !ok || a != canonical(ap.Addr()) || ap.Port() != target.Port() {
				t.Fatalf("%q is %v here and %v to netip", authority, target, ap)
			}
		}
	})
}

func FuzzParseRule(f *testing.F) {
	for _, c := range corpus(f, "match") {
		for _, line := range append(c.Allow, c.Deny...) {
			f.Add(line, c.Input)
		}
	}
	f.Add("a.*.com 22 443 private tcp", "a.b.com")
	f.Add("a.*.com 80 8080 http private", "a.b.com")
	f.Add("*.a.com https", "b.a.com")
	f.Add("*.A..", "b.a")
	f.Add("10.0.0.0/8 5432", "10.1.2.3")
	f.Add("::ffff:10.0.0.0/104", "::ffff:10.1.2.3")
	f.Fuzz(func(t *testing.T, line, text string) {
		r, err := ParseRule(line, Origin{File: "fuzz", Line: 1})
		if quick, ok := quickRule(line, Origin{File: "fuzz", Line: 1}); ok && (err != nil || !reflect.DeepEqual(quick, r)) {
			t.Fatalf("%q is %+v read quickly, and %+v, %v", line, quick, r, err)
		}
		if err != nil {
			if r.String() != "" || err.Error() != printable(err.Error()) {
				t.Fatalf("%q: %q, %q", line, r, err)
			}
			return
		}
		again, err := ParseRule(r.String(), r.Origin)
		if err != nil || again.String() != r.String() {
			t.Fatalf("%q gives %q, which reads back as %q, %v", line, r, again, err)
		}
		s, err := Compile(Lists{Allow: []Rule{r}}, nil)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		h, err := ParseHost(text)
		if err != nil {
			return
		}
		for _, port := range []uint16{22, 80, 443} {
			scheme := []Scheme{SchemeTCP, SchemeHTTP, SchemeTLS}[len(line)%3]
			target, err := NewTarget(h, port, scheme)
			if err != nil {
				t.Fatal(err)
			}
			d := s.Decide(target)
			if d.Allowed != (d.Code == Allow) || d.Reason() != printable(d.Reason()) {
				t.Fatalf("%q for %v: %+v", line, target, d)
			}
			if !d.Allowed {
				continue
			}
			pattern := strings.Fields(r.String())[0]
			switch a, isAddr := h.Addr(); {
			case isAddr:
				p, err := netip.ParsePrefix(pattern)
				if err != nil {
					p = netip.PrefixFrom(netip.MustParseAddr(pattern), a.BitLen())
				}
				if !p.Contains(a) {
					t.Fatalf("%q allows %v", line, a)
				}
			case !matches(pattern, h.Name()):
				t.Fatalf("%q allows %v", line, h)
			}
			// The same rule on the deny list beats itself.
			if denying := strings.NewReplacer(" private", "", " tcp", "").Replace(r.String()); !strings.Contains(denying, "private") {
				no, err := ParseRule(denying, r.Origin)
				if err != nil {
					t.Fatal(err)
				}
				both, err := Compile(Lists{Allow: []Rule{r}, Deny: []Rule{no}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if d := both.Decide(target); d.Allowed {
					t.Fatalf("%q beats its denial for %v", line, target)
				}
			}
		}
	})
}

func FuzzParseList(f *testing.F) {
	f.Add("# a\ngithub.com 443\n*.golang.org\t443 # b\r\n")
	f.Add("\ufeffa.com\n\n10.0.0.0/8")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := ParseList(strings.NewReader(text), "x.list")
		if err != nil {
			if rules != nil || !strings.HasPrefix(err.Error(), "x.list:") {
				t.Fatalf("%q: %v, %v", text, rules, err)
			}
			return
		}
		for _, r := range rules {
			if r.Origin.Line < 1 || r.Origin.Line > strings.Count(text, "\n")+1 {
				t.Fatalf("%q: %q at %v", text, r, r.Origin)
			}
		}
	})
}
