package policy

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestShadowed(t *testing.T) {
	s := setOf(t, "", "", `*.corp.example
a.corp.example
a.corp.example 8443
*.b.corp.example 443
in.corp.example private
plain.corp.example http
x.example 443
x.example
y.example tcp
y.example
api.*.cloud.example
api.eu.cloud.example
api.eu.west.cloud.example
10.0.0.0/8
10.1.0.0/16 443
10.1.2.3
0.0.0.0/0
8.8.0.0/16
`)
	var got []string
	for _, d := range s.Shadowed(100) {
		got = append(got, d.Rule.String()+" < "+d.By)
	}
	want := []string{
		"a.corp.example < *.corp.example",
		"*.b.corp.example 443 < *.corp.example",
		"plain.corp.example http < *.corp.example",
		"y.example < y.example tcp",
		"api.eu.cloud.example < api.*.cloud.example",
		"10.1.0.0/16 443 < 10.0.0.0/8",
		"8.8.0.0/16 < 0.0.0.0/0",
	}
	// The order in which rules for one host come decides which of them is named.
	got = slices.DeleteFunc(got, func(s string) bool { return s == "x.example 443 < x.example" })
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	if got := s.Shadowed(2); len(got) != 2 || got[0].Reason != `allow:2: the rule "a.corp.example" opens nothing more than the rule "*.corp.example" (allow:1) does` {
		t.Errorf("got %v", got)
	}
}

// A rule that stands twice counts once, and is told of.
func TestRepeated(t *testing.T) {
	list := newList("a.example\nb.example\nb.example\n", "x.list")
	s, err := Compile(Lists{Allow: rulesOf(t, "allow", "c.example 443\n\nC.example. 443\n"), AllowLists: []*List{list}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range s.Shadowed(100) {
		got = append(got, d.Reason)
	}
	want := []string{
		`allow:3: the rule "c.example 443" stands at allow:1 already`,
		`x.list:3: the rule "b.example" stands at x.list:2 already`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// What is called covered can be taken out, and no decision changes.
func TestPropShadowed(t *testing.T) {
	line := rapid.Custom(func(t *rapid.T) string {
		return genLine.Draw(t, "rule") + rapid.SampledFrom([]string{"", " 443", " 80 http", " private", " tcp"}).Draw(t, "rest")
	})
	rapid.Check(t, func(t *rapid.T) {
		rules := mustRules(t, rapid.SliceOfN(line, 0, 6).Draw(t, "allow"), "allow")
		s := mustSet(t, Lists{Allow: rules})
		target := mustTarget(t, rapid.OneOf(genName, rapid.Map(genV4, netip.Addr.String)).Draw(t, "host"), genPort.Draw(t, "port"))
		for _, d := range s.Shadowed(100) {
			less := mustSet(t, Lists{Allow: slices.DeleteFunc(slices.Clone(rules), func(r Rule) bool { return r.Origin == d.Rule.Origin })})
			for _, scheme := range []Scheme{SchemeTCP, SchemeHTTP, SchemeTLS} {
				target.scheme = scheme
				answer := genV4.Draw(t, "answer")
				a, b := s.DecideAddr(target, answer), less.DecideAddr(target, answer)
				if a.Allowed != b.Allowed || a.TCP != b.TCP {
					t.Fatalf("without %q, %v is %v and was %v", d.Reason, target, b.Code, a.Code)
				}
			}
		}
	})
}
