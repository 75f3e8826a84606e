package policy

import (
	"testing"
)

// A rule for one scheme opens that one; a denial of one scheme closes it, and what may
// carry it unseen.
func TestScheme(t *testing.T) {
	s := setOf(t, "", "open.example http\n*.no.example 443 https\nodd.example 8080 http\n", `
open.example
odd.example 8080
plain.example http
tls.example https
port.example 8080 http
both.example http
both.example https
two.example 80
two.example http
*.no.example
10.1.0.0/16 http
inside.example http private
`)
	for _, c := range []struct {
		in   string
		as   Scheme
		want Code
	}{
		{"plain.example:80", SchemeHTTP, Allow},
		{"plain.example:80", SchemeTCP, SchemeNotAllowed},
		{"plain.example:80", SchemeTLS, SchemeNotAllowed},
		{"plain.example:443", SchemeTLS, PortNotAllowed},
		{"tls.example:443", SchemeTLS, Allow},
		{"tls.example:443", SchemeHTTP, SchemeNotAllowed},
		{"tls.example:443", SchemeTCP, SchemeNotAllowed},
		{"tls.example:80", SchemeHTTP, PortNotAllowed},
		{"port.example:8080", SchemeHTTP, Allow},
		{"port.example:8080", SchemeTCP, SchemeNotAllowed},
		{"both.example:80", SchemeHTTP, Allow},
		{"both.example:443", SchemeTLS, Allow},
		{"both.example:443", SchemeHTTP, SchemeNotAllowed},
		{"two.example:80", SchemeTLS, Allow},
		{"two.example:80", SchemeTCP, Allow},
		{"open.example:80", SchemeHTTP, Denied},
		{"open.example:80", SchemeTCP, Denied},
		{"open.example:443", SchemeTLS, Allow},
		{"odd.example:8080", SchemeTCP, Denied},
		{"odd.example:8080", SchemeTLS, Allow},
		{"a.no.example:443", SchemeTLS, Denied},
		{"a.no.example:80", SchemeHTTP, Allow},
		{"a.no.example:80", SchemeTLS, Allow},
		{"10.1.2.3:80", SchemeHTTP, Allow},
		{"10.1.2.3:80", SchemeTCP, SchemeNotAllowed},
		{"inside.example:80", SchemeHTTP, Allow},
	} {
		target := targetOf(t, c.in)
		target.scheme = c.as
		if d := s.Decide(target); d.Code != c.want || d.Allowed != (c.want == Allow) {
			t.Errorf("%s as %v: got %v, want %v: %s", c.in, c.as, d.Code, c.want, d.Reason())
		}
	}
	target := targetOf(t, "tls.example:443")
	target.scheme = SchemeHTTP
	want := `tls.example:443 in plain HTTP is refused: the rule "tls.example https" (allow:5) is for another scheme; add the rule "tls.example 443" to open it for all`
	if got := s.Decide(target).Reason(); got != want {
		t.Errorf("got %s", got)
	}
}

func TestParseScheme(t *testing.T) {
	for in, want := range map[string]string{
		"a.example http":                 "a.example http",
		"a.example private http 8080 80": "a.example 80 8080 http private",
		"a.example https 443":            "a.example 443 https",
		"10.0.0.1 https":                 "10.0.0.1 https",
		"a.example http http":            "a.example http",
	} {
		r, err := ParseRule(in, Origin{File: "x"})
		if err != nil || r.String() != want {
			t.Errorf("%s: got %q, %v", in, r, err)
			continue
		}
		if again, err := ParseRule(want, Origin{File: "x"}); err != nil || again.String() != want {
			t.Errorf("%s reads back as %q, %v", want, again, err)
		}
	}
	for _, in := range []string{"a.example http https", "a.example https http", "a.example tcp https", "a.example http tcp", "a.example 8443 https", "a.example 443 8443 https"} {
		if r, err := ParseRule(in, Origin{File: "x"}); err == nil {
			t.Errorf("%s: got %q", in, r)
		}
	}
}

// Only a denial of every scheme that a rule opens makes it useless.
func TestDeadScheme(t *testing.T) {
	s := setOf(t, "", "a.example http\nb.example 80 http\nb.example https\nc.example http\nd.example 80\n", "a.example\nb.example\nc.example http\nd.example http\na.example 80\n")
	var got []string
	for _, d := range s.Dead() {
		got = append(got, d.Rule.String()+" by "+d.By)
	}
	if len(got) != 2 || got[0] != "c.example http by c.example http" || got[1] != "d.example http by d.example 80" {
		t.Errorf("got %q", got)
	}
}
