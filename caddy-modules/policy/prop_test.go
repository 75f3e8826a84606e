package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Few labels, so that rules and hosts often meet, nearly meet and overlap.
var (
	genLabel = rapid.SampledFrom([]string{"a", "b", "ab", "com", "x-1", "_u"})
	genName  = rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(genLabel, 1, 5).Draw(t, "labels"), ".")
	})
	genPattern = rapid.Custom(func(t *rapid.T) string {
		labels := rapid.SliceOfN(genLabel, 2, 4).Draw(t, "labels")
		switch rapid.IntRange(0, 2).Draw(t, "form") {
		case 0:
			return strings.Join(labels, ".")
		case 1:
			return "*." + strings.Join(labels, ".")
		default:
			at := rapid.IntRange(1, len(labels)-1).Draw(t, "star")
			return strings.Join(slices.Insert(labels, at, "*"), ".")
		}
	})
	genV4 = rapid.Custom(func(t *rapid.T) netip.Addr {
		first := rapid.SampledFrom([]byte{0, 8, 10, 100, 127, 169, 172, 192, 198, 224, 255}).Draw(t, "first")
		rest := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 16, 63, 64, 129, 168, 254, 255}), 3, 3).Draw(t, "rest")
		return netip.AddrFrom4([4]byte{first, rest[0], rest[1], rest[2]})
	})
	genPort = rapid.SampledFrom([]uint16{22, 80, 443, 8080})
)

// matches says by the words of the rules, label by label, what the index finds by
// hashing. It is the specification of the matcher.
func matches(pattern, host string) bool {
	p, h := strings.Split(pattern, "."), strings.Split(host, ".")
	if p[0] == "*" {
		return len(h) > len(p)-1 && slices.Equal(h[len(h)-len(p)+1:], p[1:])
	}
	if len(p) != len(h) {
		return false
	}
	for i := range p {
		if p[i] != "*" && p[i] != h[i] {
			return false
		}
	}
	return true
}

func mustRules(t *rapid.T, lines []string, file string) []Rule {
	rules, err := ParseList(strings.NewReader(strings.Join(lines, "\n")), file)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func mustSet(t *rapid.T, l Lists) *Set {
	s, err := Compile(l, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustTarget(t *rapid.T, host string, port uint16) Target {
	h, err := ParseHost(host)
	if err != nil {
		t.Fatal(err)
	}
	target, err := NewTarget(h, port, SchemeTCP)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// The verdict is the one that a reader of the lists would come to: deny beats
// allow, labels are whole, and nothing that no rule matches is opened.
func TestPropNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		denied := rapid.SliceOfN(genPattern, 0, 3).Draw(t, "deny")
		allowed := rapid.SliceOfN(genPattern, 0, 6).Draw(t, "allow")
		extra := rapid.SliceOfN(genPattern, 0, 2).Draw(t, "extra")
		host := rapid.OneOf(genName, rapid.Custom(func(t *rapid.T) string {
			return strings.ReplaceAll(genPattern.Draw(t, "from"), "*", "b")
		})).Draw(t, "host")
		s := mustSet(t, Lists{Deny: mustRules(t, denied, "deny"), Allow: mustRules(t, allowed, "allow")})
		s, err := s.Extend(mustRules(t, extra, "session"))
		if err != nil {
			t.Fatal(err)
		}
		by := func(list []string) bool {
			return slices.ContainsFunc(list, func(p string) bool { return matches(p, host) })
		}
		want := NotAllowed
		switch {
		case by(denied):
			want = Denied
		case by(allowed), by(extra):
			want = Allow
		}
		d := s.Decide(mustTarget(t, host, 443))
		if d.Code != want || d.Allowed != (want == Allow) {
			t.Fatalf("deny %q allow %q and %q: %s is %v by %q, want %v", denied, allowed, extra, host, d.Code, d.Rule, want)
		}
		if d.Rule != "" && !matches(d.Rule, host) {
			t.Fatalf("%s is decided by %q, which does not match it", host, d.Rule)
		}
	})
}

// No name outside the label boundary of a suffix ever matches.
func TestPropLabelBoundary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		suffix := genName.Draw(t, "suffix") + ".example"
		s := mustSet(t, Lists{Allow: mustRules(t, []string{"*." + suffix}, "allow")})
		glue := rapid.StringMatching(`[a-z0-9]([a-z0-9.]*[a-z0-9])?`).Draw(t, "glue")
		if h, err := ParseHost(glue + suffix); err == nil && h.Name() != "" && !strings.HasSuffix(h.Name(), "."+suffix) {
			target, err := NewTarget(h, 443, SchemeTCP)
			if err != nil {
				t.Fatal(err)
			}
			if d := s.Decide(target); d.Allowed {
				t.Fatalf("%s passes *.%s", h, suffix)
			}
		}
		for _, host := range []string{suffix, suffix + ".evil.test", "a." + suffix + "x"} {
			if d := s.Decide(mustTarget(t, host, 443)); d.Allowed {
				t.Fatalf("%s passes *.%s", host, suffix)
			}
		}
		if d := s.Decide(mustTarget(t, "a."+suffix, 443)); !d.Allowed {
			t.Fatalf("a.%s does not pass *.%s", suffix, suffix)
		}
	})
}

// Case and the root dot never change a verdict.
func TestPropSpelling(t *testing.T) {
	s, err := Compile(Lists{
		Deny:  []Rule{mustRule(t, "b.ab.com"), mustRule(t, "*.b.com")},
		Allow: []Rule{mustRule(t, "*.ab.com"), mustRule(t, "a.*.com"), mustRule(t, "ab.com")},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := genName.Draw(t, "name") + ".com"
		odd := []byte(name)
		for i := range odd {
			if rapid.Bool().Draw(t, "upper") {
				odd[i] = strings.ToUpper(name)[i]
			}
		}
		spelt := string(odd)
		if rapid.Bool().Draw(t, "dot") {
			spelt += "."
		}
		a, b := s.Decide(mustTarget(t, name, 443)), s.Decide(mustTarget(t, spelt, 443))
		if a.Code != b.Code || a.Rule != b.Rule || a.Target() != b.Target() {
			t.Fatalf("%s is %v, %s is %v", name, a.Code, spelt, b.Code)
		}
	})
}

func mustRule(tb testing.TB, line string) Rule {
	tb.Helper()
	r, err := ParseRule(line, Origin{File: "test"})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// spellings are the ways to write an IPv4 address as IPv6.
func spellings(a netip.Addr) []netip.Addr {
	v4 := a.As4()
	at := func(prefix string, place int, flip byte) netip.Addr {
		b := netip.MustParseAddr(prefix).As16()
		for i := range v4 {
			b[place+i] = v4[i] ^ flip
		}
		return netip.AddrFrom16(b)
	}
	out := []netip.Addr{
		a,
		at("::ffff:0:0", 12, 0),
		at("::ffff:0:0:0", 12, 0),
		at("64:ff9b::", 12, 0),
		at("64:ff9b:1::", 12, 0),
		at("64:ff9b:1:7::", 9, 0),
		at("2002::1", 2, 0),
		at("2001::", 4, 0),
		at("2001::", 12, 0xff),
	}
	// ::0.0.0.0 and ::0.0.0.1 are :: and ::1.
	if compatible := at("::", 12, 0); compatible != netip.IPv6Unspecified() && compatible != netip.IPv6Loopback() {
		out = append(out, compatible)
	}
	return out
}

// Any spelling of a denied address is refused, as a target and as an answer, even
// where everything is allowed, with and without a zone.
func TestPropDeniedSpellings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := genV4.Draw(t, "address")
		bits := rapid.IntRange(8, 32).Draw(t, "bits")
		prefix := netip.PrefixFrom(a, bits).Masked().String()
		always := rapid.Bool().Draw(t, "always")
		l := Lists{Allow: mustRules(t, []string{"0.0.0.0/0 443", "::/0 443", "name.example 443 private", a.String() + " 443"}, "allow")}
		rule := mustRules(t, []string{prefix}, "deny")
		if always {
			l.AlwaysDeny = rule
		} else {
			l.Deny = rule
		}
		s := mustSet(t, l)
		name := mustTarget(t, "name.example", 443)
		for _, spelt := range spellings(a) {
			literal, err := NewTarget(HostFromAddr(spelt), 443, SchemeTCP)
			if err != nil {
				t.Fatal(err)
			}
			if d := s.Decide(literal); d.Allowed || d.Code != Denied && d.Code != AlwaysDenied {
				t.Fatalf("%v denied by %s: target %v is %v", a, prefix, spelt, d.Code)
			}
			answers := []netip.Addr{spelt}
			if spelt.Is6() {
				answers = append(answers, spelt.WithZone(".name.example"))
			}
			for _, answer := range answers {
				if d := s.DecideAddr(name, answer); d.Allowed || d.Code != Denied && d.Code != AlwaysDenied {
					t.Fatalf("%v denied by %s: answer %v is %v", a, prefix, answer, d.Code)
				}
			}
		}
	})
}

// A name without the flag private reaches public addresses alone, however they
// are spelt, and with it never metadata or this machine's listeners.
func TestPropAnswers(t *testing.T) {
	own := func(a netip.AddrPort) bool { return a.Port() == 8080 && a.Addr().IsLoopback() }
	rapid.Check(t, func(t *rapid.T) {
		s, err := Compile(Lists{Allow: mustRules(t, []string{"plain.example 443 8080", "inside.example 443 8080 private"}, "allow")}, own)
		if err != nil {
			t.Fatal(err)
		}
		a := genV4.Draw(t, "address")
		port := rapid.SampledFrom([]uint16{443, 8080}).Draw(t, "port")
		class, _ := Classify(a)
		for _, spelt := range spellings(a) {
			if d := s.DecideAddr(mustTarget(t, "plain.example", port), spelt); d.Allowed && class != Public {
				t.Fatalf("%v (%v) passes as %v", a, class, spelt)
			}
			d := s.DecideAddr(mustTarget(t, "inside.example", port), spelt)
			if d.Allowed && (class == Metadata || class.never() || class == Loopback && port == 8080) {
				t.Fatalf("%v (%v) port %d passes the flag private as %v", a, class, port, spelt)
			}
		}
		if d := s.DecideAddr(mustTarget(t, "plain.example", port), a); d.Allowed != (class == Public) {
			t.Fatalf("%v (%v) is %v", a, class, d.Code)
		}
	})
}

// The prefix table agrees with a scan of all prefixes.
func TestPropPrefixTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := map[netip.Prefix]netip.Prefix{}
		for range rapid.IntRange(0, 12).Draw(t, "n") {
			p := netip.PrefixFrom(genV4.Draw(t, "network"), rapid.IntRange(0, 32).Draw(t, "bits")).Masked()
			of[p] = p
		}
		table := newPrefixTable(of)
		a := genV4.Draw(t, "address")
		found := map[netip.Prefix]bool{}
		last := 33
		for i := table.longest(a); i >= 0; i = table.spans[i].parent {
			p := table.spans[i].value
			if p.Bits() >= last {
				t.Fatalf("%v follows one of %d bits", p, last)
			}
			last = p.Bits()
			found[p] = true
		}
		for p := range of {
			if p.Contains(a) != found[p] {
				t.Fatalf("%v in %v: found %v", a, p, found[p])
			}
		}
	})
}

// Another allowing rule never takes anything away.
func TestPropRulesAddUp(t *testing.T) {
	line := rapid.Custom(func(t *rapid.T) string {
		text := rapid.OneOf(genPattern, rapid.Map(genV4, netip.Addr.String)).Draw(t, "host")
		for range rapid.IntRange(0, 2).Draw(t, "ports") {
			text += fmt.Sprint(" ", genPort.Draw(t, "port"))
		}
		return text + rapid.SampledFrom([]string{"", " private", " tcp", " private tcp"}).Draw(t, "flags")
	})
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(line, 0, 5).Draw(t, "allow")
		more := line.Draw(t, "more")
		s := mustSet(t, Lists{Allow: mustRules(t, lines, "allow")})
		together := mustSet(t, Lists{Allow: mustRules(t, append(slices.Clone(lines), more), "allow")})
		extended, err := s.Extend(mustRules(t, []string{more}, "session"))
		if err != nil {
			t.Fatal(err)
		}
		host := rapid.OneOf(genName, rapid.Map(genV4, netip.Addr.String)).Draw(t, "host")
		target := mustTarget(t, host, genPort.Draw(t, "port"))
		answer := genV4.Draw(t, "answer")
		if a, ok := target.Host().Addr(); ok {
			answer = a
		}
		for _, wider := range []*Set{together, extended} {
			for i, before := range []Decision{s.Decide(target), s.DecideAddr(target, answer)} {
				after := []Decision{wider.Decide(target), wider.DecideAddr(target, answer)}[i]
				if before.Allowed && !after.Allowed || before.TCP && !after.TCP {
					t.Fatalf("%q and %q: %v was %v (TCP %v), is %v (TCP %v)", lines, more, target, before.Code, before.TCP, after.Code, after.TCP)
				}
			}
		}
		if a, b := together.DecideAddr(target, answer), extended.DecideAddr(target, answer); a.Code != b.Code || a.TCP != b.TCP {
			t.Fatalf("%q and %q: %v is %v compiled and %v extended", lines, more, target, a.Code, b.Code)
		}
	})
}

// Text that ParseHost takes has one canonical form, which is made of plain bytes.
func TestPropHostText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkHost(t, rapid.StringOf(rapid.RuneFrom([]rune("aA0.-_:%[]x*@/\\\x00\r\n \u3002\uff0e\u00ad"))).Draw(t, "text"))
	})
}

// checkHost holds for any text at all; the fuzz targets use it too.
func checkHost(t interface{ Fatalf(string, ...any) }, text string) {
	h, err := ParseHost(text)
	if err != nil {
		if !h.IsZero() {
			t.Fatalf("%q: an error and the host %v", text, h)
		}
		if msg := err.Error(); msg != printable(msg) || len(msg) > 600 {
			t.Fatalf("%q: error text %q", text, msg)
		}
		return
	}
	again, err := ParseHost(h.String())
	if err != nil || again != h {
		t.Fatalf("%q gives %v, which reads back as %v, %v", text, h, again, err)
	}
	if a, ok := h.Addr(); ok {
		if h.Name() != "" || a.Zone() != "" || a.Is4In6() {
			t.Fatalf("%q gives the address %v", text, a)
		}
		return
	}
	name := h.Name()
	if name == "" || len(name) > maxName || badByte(name) != "" || name != strings.ToLower(name) || strings.HasSuffix(name, ".") {
		t.Fatalf("%q gives the name %q", text, name)
	}
	// What no resolver may take for an address.
	if _, err := netip.ParseAddr(name); err == nil || endsInNumber(name) {
		t.Fatalf("%q gives the name %q, which is an address", text, name)
	}
	if !strings.EqualFold(strings.TrimSuffix(text, "."), name) {
		t.Fatalf("%q was changed to %q", text, name)
	}
}
