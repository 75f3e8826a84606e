package policy

import (
	"fmt"
	"net/netip"
	"testing"
)

// benchLists makes n allowing rules of the mix that lists have, and a deny rule
// for every tenth.
func benchLists(tb testing.TB, n int) Lists {
	tb.Helper()
	var l Lists
	for i := range n {
		var line string
		switch i % 10 {
		case 0, 1:
			line = fmt.Sprintf("*.zone%d.example.com", i)
		case 2:
			line = fmt.Sprintf("api%d.*.example.net", i)
		case 3:
			line = netip.AddrFrom4([4]byte{198, byte(i >> 16), byte(i >> 8), byte(i)}).String()
		case 4:
			line = fmt.Sprintf("20%02x:%x::/48", i>>16, i&0xffff)
		default:
			line = fmt.Sprintf("host%d.svc.example.org 443", i)
		}
		r, err := ParseRule(line, Origin{File: "bench", Line: i + 1})
		if err != nil {
			tb.Fatal(err)
		}
		l.Allow = append(l.Allow, r)
		if i%10 == 9 {
			r, err := ParseRule(fmt.Sprintf("*.blocked%d.example.org", i), Origin{File: "bench-deny", Line: i + 1})
			if err != nil {
				tb.Fatal(err)
			}
			l.Deny = append(l.Deny, r)
		}
	}
	return l
}

// benchTargets are spread over the whole list, so that caches are as cold as they
// are in service.
func benchTargets(tb testing.TB, n int, format string, step int) []Target {
	tb.Helper()
	var targets []Target
	for i := step; len(targets) < 1024; i = (i + 7919*10) % n {
		i = i/10*10 + step
		t, err := ParseTarget(fmt.Sprintf(format, i), SchemeTCP)
		if err != nil {
			tb.Fatal(err)
		}
		targets = append(targets, t)
	}
	return targets
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{500, 100_000} {
		s, err := Compile(benchLists(b, n), nil)
		if err != nil {
			b.Fatal(err)
		}
		for _, q := range []struct {
			name, format string
			step         int
			allowed      bool
		}{
			{"exact", "host%d.svc.example.org:443", 5, true},
			{"wildcard", "a.b.zone%d.example.com:443", 0, true},
			{"middle", "api%d.eu-west-1.example.net:443", 2, true},
			{"refused", "unknown%d.evil.example:443", 6, false},
			{"denied", "x.blocked%d.example.org:443", 9, false},
		} {
			targets := benchTargets(b, n, q.format, q.step)
			b.Run(fmt.Sprintf("rules=%d/%s", n, q.name), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if d := s.Decide(targets[i%len(targets)]); d.Allowed != q.allowed {
						b.Fatal(d.Reason())
					}
				}
			})
		}
	}
}

func BenchmarkDecideAddress(b *testing.B) {
	for _, n := range []int{500, 100_000} {
		s, err := Compile(benchLists(b, n), nil)
		if err != nil {
			b.Fatal(err)
		}
		var literals []Target
		for i := 3; len(literals) < 1024; i = ((i+7919*10)%n)/10*10 + 3 {
			a := netip.AddrFrom4([4]byte{198, byte(i >> 16), byte(i >> 8), byte(i)})
			t, err := NewTarget(HostFromAddr(a), 443, SchemeTCP)
			if err != nil {
				b.Fatal(err)
			}
			literals = append(literals, t)
		}
		names := benchTargets(b, n, "host%d.svc.example.org:443", 5)
		answer := netip.MustParseAddr("140.82.112.5")
		b.Run(fmt.Sprintf("rules=%d/literal", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if d := s.Decide(literals[i%len(literals)]); !d.Allowed {
					b.Fatal(d.Reason())
				}
			}
		})
		b.Run(fmt.Sprintf("rules=%d/answer", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if d := s.DecideAddr(names[i%len(names)], answer); !d.Allowed {
					b.Fatal(d.Reason())
				}
			}
		})
	}
}
