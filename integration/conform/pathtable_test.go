package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// pathPolicy is the policy that the targets are asked about.
const pathPolicy = `		policy table {
			allow {
				api.example.com
				*.wild.example
				a.ads.example
				port.example 8443
				ssh.example 22
				many.example 22 8443
				web.example http
				tls.example https
				priv.example private
				shared.example
				93.184.216.0/24
				8.8.8.8 443
				10.20.0.0/16 private
				fc00:1::/32 private
			}
			deny {
				bad.wild.example
				*.ads.example
				93.184.216.66
				tracker.example
			}
		}
`

// pathNames is what names answer that do not answer with a public address.
var pathNames = map[string]string{
	"priv.example": "10.1.2.3", "shared.example": "10.1.2.4", "lan.wild.example": "192.168.1.1", "loop.wild.example": "127.0.0.1",
	"zero.wild.example": "0.0.0.0", "meta.wild.example": "169.254.169.254", "denied.wild.example": "93.184.216.66",
}

// pathRow is one target, and what every path is to say of it.
type pathRow struct {
	target string // HOST:PORT
	code   string
	rule   string // that decided, or came nearest; "" for none

	// late is the rule that allows a name whose addresses are refused: who looks
	// nothing up is told of that one.
	late string
}

var pathRows = []pathRow{
	{target: "api.example.com:443", code: "allowed", rule: "api.example.com"},
	{target: "api.example.com:80", code: "allowed", rule: "api.example.com"},
	{target: "api.example.com:8443", code: "port_not_allowed", rule: "api.example.com"},
	{target: "api.example.com:22", code: "port_not_allowed", rule: "api.example.com"},
	{target: "x.api.example.com:443", code: "not_allowed"},
	{target: "example.com:443", code: "not_allowed"},
	{target: "a.wild.example:443", code: "allowed", rule: "*.wild.example"},
	{target: "a.b.wild.example:80", code: "allowed", rule: "*.wild.example"},
	{target: "wild.example:443", code: "not_allowed"},
	{target: "evilwild.example:443", code: "not_allowed"},
	{target: "bad.wild.example:443", code: "denied", rule: "bad.wild.example"},
	{target: "bad.wild.example:80", code: "denied", rule: "bad.wild.example"},
	{target: "bad.wild.example:8443", code: "denied", rule: "bad.wild.example"},
	{target: "a.ads.example:443", code: "denied", rule: "*.ads.example"},
	{target: "tracker.example:443", code: "denied", rule: "tracker.example"},
	{target: "port.example:8443", code: "allowed", rule: "port.example 8443"},
	{target: "port.example:443", code: "port_not_allowed", rule: "port.example 8443"},
	{target: "port.example:80", code: "port_not_allowed", rule: "port.example 8443"},
	{target: "ssh.example:22", code: "allowed", rule: "ssh.example 22"},
	{target: "ssh.example:443", code: "port_not_allowed", rule: "ssh.example 22"},
	{target: "many.example:8443", code: "allowed", rule: "many.example 22 8443"},
	{target: "many.example:80", code: "port_not_allowed", rule: "many.example 22 8443"},
	{target: "web.example:80", code: "allowed", rule: "web.example http"},
	{target: "tls.example:443", code: "allowed", rule: "tls.example https"},
	{target: "priv.example:443", code: "allowed", rule: "priv.example private"},
	{target: "shared.example:443", code: "address_class", rule: "shared.example", late: "shared.example"},
	{target: "lan.wild.example:80", code: "address_class", rule: "*.wild.example", late: "*.wild.example"},
	{target: "loop.wild.example:443", code: "address_class", rule: "*.wild.example", late: "*.wild.example"},
	{target: "zero.wild.example:443", code: "address_class", rule: "*.wild.example", late: "*.wild.example"},
	{target: "meta.wild.example:443", code: "always_denied", rule: "169.254.169.254", late: "*.wild.example"},
	{target: "denied.wild.example:443", code: "denied", rule: "93.184.216.66", late: "*.wild.example"},
	{target: "metadata.goog:80", code: "always_denied", rule: "metadata.goog"},
	{target: "93.184.216.7:443", code: "allowed", rule: "93.184.216.0/24"},
	{target: "93.184.216.66:443", code: "denied", rule: "93.184.216.66"},
	{target: "8.8.8.8:80", code: "port_not_allowed", rule: "8.8.8.8 443"},
	{target: "9.9.9.10:443", code: "not_allowed"},
	{target: "10.20.3.4:443", code: "allowed", rule: "10.20.0.0/16"},
	{target: "169.254.169.254:80", code: "always_denied", rule: "169.254.169.254"},
	{target: "127.0.0.1:2019", code: "own_listener"},
	{target: "[fc00:1::7]:443", code: "allowed", rule: "fc00:1::/32"},
}

// The paths. Where a path differs from the others by what it is, want says how.
const (
	pathConnect     = "connect"     // CONNECT
	pathPlain       = "plain"       // absolute-form
	pathSOCKS       = "socks"       // SOCKS5 with the name
	pathSOCKSAddr   = "socksaddr"   // SOCKS5 with the address that DNS gave
	pathDNS         = "dns"         // the stub server, with the addresses of names
	pathTransparent = "transparent" // the address that DNS made up, without any proxy
	pathCheck       = "check"       // caddy egress check
	pathGrant       = "grant"       // CONNECT, after a grant for the target
)

// judged is what one path says of a target. A reason that is empty is one that is
// not told there.
type judged struct {
	code, rule, source, reason string
}

func (j judged) String() string {
	return fmt.Sprintf("%s by %q (%s): %s", j.code, j.rule, j.source, j.reason)
}

// want is what a path is to say of the row, as the first path said it.
func (r pathRow) want(path string, first judged) judged {
	w := judged{code: r.code, rule: r.rule, source: first.source, reason: first.reason}
	name, port, _ := cutPort(r.target)
	schemeless := path == pathPlain && strings.HasSuffix(r.rule, " https")
	switch {
	case schemeless:
		return judged{code: "scheme_not_allowed", rule: r.rule, source: first.source}
	case path == pathCheck && r.late != "":
		// Nothing is looked up.
		return judged{code: "allowed", rule: r.late}
	case path == pathCheck:
		// Nor is an address told, where it is that of a name.
		if at, after, there := strings.Cut(w.reason, " (at "); there {
			_, rest, _ := strings.Cut(after, ")")
			w.reason = at + rest
		}
	case path == pathGrant && slices.Contains([]string{"not_allowed", "port_not_allowed"}, r.code):
		return judged{code: "allowed", rule: name + " " + port, source: "grant g"}
	case path == pathDNS && r.code == "port_not_allowed":
		// A name has no port: one that is allowed on any is answered.
		return judged{code: "allowed", rule: r.rule, source: first.source}
	case path == pathDNS || path == pathTransparent || path == pathSOCKSAddr:
		// Where DNS refuses already, it speaks of the first port that it tries.
		if r.late == "" && r.code != "port_not_allowed" && r.code != "allowed" || path == pathDNS {
			w.reason = strings.Replace(w.reason, r.target, name+":443", 1)
		}
	}
	return w
}

// paths are those on which one can ask for the target: DNS answers for names alone, and
// only what it answers can be gone to by its address.
func (r pathRow) paths() []string {
	all := []string{pathConnect, pathPlain, pathSOCKS, pathCheck, pathGrant}
	if _, _, literal := cutPort(r.target); !literal {
		all = append(all, pathDNS, pathSOCKSAddr, pathTransparent)
	}
	return all
}

// lacks says on which paths nothing was said of the target that should have been, or no
// reason for a refusal was given.
func (r pathRow) lacks(said map[string]judged) []string {
	var out []string
	for _, path := range r.paths() {
		switch got, asked := said[path]; {
		case !asked:
			out = append(out, fmt.Sprintf("%s: %s says nothing", r.target, path))
		case got.code == "":
			out = append(out, fmt.Sprintf("%s: %s says no code", r.target, path))
		case got.code != "allowed" && got.reason == "":
			out = append(out, fmt.Sprintf("%s: %s says %s and not why", r.target, path, got.code))
		}
	}
	return out
}

// disagreements compares what the paths say of a target.
func (r pathRow) disagreements(said map[string]judged) []string {
	var out []string
	first := said[pathConnect]
	for _, path := range slices.Sorted(maps.Keys(said)) {
		got, want := said[path], r.want(path, first)
		same := got.code == want.code && got.rule == want.rule
		if want.source != "" {
			same = same && strings.HasPrefix(got.source, want.source)
		}
		if want.reason != "" && got.reason != "" {
			same = same && got.reason == want.reason
		}
		if !same {
			out = append(out, fmt.Sprintf("%s: %s says %s\nwant %s", r.target, path, got, want))
		}
	}
	return out
}

// cutPort cuts HOST:PORT; a literal loses its brackets.
func cutPort(target string) (host, port string, literal bool) {
	i := strings.LastIndexByte(target, ':')
	host, port = strings.Trim(target[:i], "[]"), target[i+1:]
	last := host[strings.LastIndexAny(host, ".:")+1:]
	return host, port, strings.Trim(last, "0123456789abcdef") == "" && strings.ContainsAny(last, "0123456789")
}

// A path on which a target was not asked for is found, and so is one that gives no reason;
// what it cannot be asked for is not missed.
func TestSilentPathsAreFound(t *testing.T) {
	for _, c := range []struct {
		target string
		paths  int
	}{{"bad.wild.example:443", 8}, {"93.184.216.66:443", 5}, {"[fc00:1::7]:443", 5}} {
		row := pathRow{target: c.target, code: "denied"}
		paths := row.paths()
		if len(paths) != c.paths {
			t.Errorf("%s has the paths %q", c.target, paths)
		}
		good, said := judged{code: "denied", reason: "it is denied"}, map[string]judged{}
		for _, p := range paths {
			said[p] = good
		}
		if got := row.lacks(said); len(got) > 0 {
			t.Errorf("all say why, and %q", got)
		}
		for _, p := range paths {
			delete(said, p)
			if got := row.lacks(said); len(got) != 1 {
				t.Errorf("%s may say nothing of %s: %q", p, c.target, got)
			}
			for _, bad := range []judged{{}, {code: "denied"}, {reason: "it is denied"}} {
				said[p] = bad
				if got := row.lacks(said); len(got) != 1 {
					t.Errorf("%s may say %s of %s: %q", p, bad, c.target, got)
				}
			}
			said[p] = judged{code: "allowed"}
			if got := row.lacks(said); len(got) > 0 {
				t.Errorf("%s allows %s, and %q", p, c.target, got)
			}
			said[p] = good
		}
	}
}

// One path that says something else is found, whichever it is and whatever it says.
func TestDisagreementsAreFound(t *testing.T) {
	row := pathRow{target: "bad.wild.example:443", code: "denied", rule: "bad.wild.example"}
	paths := []string{pathConnect, pathPlain, pathSOCKS, pathSOCKSAddr, pathDNS, pathTransparent, pathCheck, pathGrant}
	good := judged{code: "denied", rule: "bad.wild.example", source: "Caddyfile:9", reason: "bad.wild.example:443 is denied"}
	said := map[string]judged{}
	for _, p := range paths {
		said[p] = good
	}
	if got := row.disagreements(said); len(got) > 0 {
		t.Errorf("all say the same, and %q", got)
	}
	for _, p := range paths {
		for _, bad := range []judged{
			{"allowed", good.rule, good.source, good.reason},
			{"not_allowed", good.rule, good.source, good.reason},
			{good.code, "*.wild.example", good.source, good.reason},
			{good.code, good.rule, "Caddyfile:4", good.reason},
			{good.code, good.rule, good.source, "bad.wild.example:443 is denied by another"},
		} {
			said[p] = bad
			if got := row.disagreements(said); len(got) == 0 {
				t.Errorf("%s may say %s", p, bad)
			}
		}
		said[p] = good
	}
}
