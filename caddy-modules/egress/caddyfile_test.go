package egress

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
)

var placeIn = regexp.MustCompile(`Caddyfile:\d+`)

// TestFaultsHavePlaces gives every option nothing, too much, a wrong kind, an option it
// does not have, a block it does not take: the error names the line where that stands,
// which ends in `# !`, and no other, and how the line is written.
func TestFaultsHavePlaces(t *testing.T) {
	in := func(lines string) string { return "egress {\nsni log\n" + lines + "\ndns 1.1.1.1\n}" }
	pol := func(lines string) string { return in("policy agent {\n" + lines + "\n}") }
	for _, c := range []struct{ text, want string }{
		{"egress { # !\n}", "the block of egress is empty"},
		{"egress x { # !\nsni log\n}", "want egress { … }"},
		{"egress {\nsni log\n}\negress { # !\nsni log\n}", "egress is given twice"},
		{in("snj log # !"), `unrecognized egress option "snj"; want default_policy, local,`},

		{in("default_policy # !"), "want default_policy NAME"},
		{in("default_policy a b # !"), "want default_policy NAME"},
		{in("default_policy nobody # !\npolicy agent"), `default_policy "nobody" is no policy: name one of agent`},
		{"egress { # !\npolicy a\npolicy b\n}", "default_policy is missing: name one of a, b"},
		{in("default_policy agent { # !\nx\n}"), "default_policy takes no block"},

		{in("local # !"), "want local HOST…"},
		{in("local 10.0.0.1 # !"), "want a name, not an address"},
		{in("local git.internal git.internal # !"), "given twice"},
		{in("local git.internal { # !\nx\n}"), "local takes no block"},

		{in("always_deny # !"), "always_deny needs a block"},
		{in("always_deny x { # !\ny\n}"), "always_deny takes a block, and nothing on its line"},
		{in("always_deny { # !\n}"), "the block of always_deny is empty"},
		{in("always_deny {\na.example 0 # !\n}"), "no port"},

		{in("policy # !"), "want policy NAME [{ … }]"},
		{in("policy a b # !"), "want policy NAME [{ … }]"},
		{in("policy a/b # !"), "is not a policy name"},
		{in("policy agent\npolicy agent # !"), "policy agent is given twice"},
		{in("policy agent { # !\n}"), "the block of policy agent is empty"},
		{in("policy agent { # !\ndeny x.example\n}"), "neither allow nor baseline"},
		{pol("baseline on # !"), "want baseline, and nothing on its line"},
		{pol("baseline\nbasline # !"), `unrecognized policy option "basline"; want baseline, allow, list, deny, ask, always_list, limits or enforce`},
		{pol("ask any\nalways_list # !"), "want always_list FILE"},
		{pol("ask any\nalways_list a.list b.list # !"), "want always_list FILE"},
		{pol("ask any\nalways_list a.list\nalways_list b.list # !"), "always_list is given twice"},
		{pol("allow # !"), "allow needs a block"},
		{pol("allow 443 # !"), "before any host"},
		{pol("allow a.example 70000 # !"), "no port"},
		{pol("allow a*.example # !"), "glued"},
		{pol("allow a.example { # !\nb.example\n}"), "a block, not both"},
		{pol("allow { # !\n}\nbaseline"), "the block of allow is empty"},
		{pol("allow {\na.example b.example # !\n}"), "neither a port nor"},
		{pol("allow {\na.example { # !\nx\n}\n}"), "a.example takes no block"},
		{pol("baseline\ndeny # !"), "deny needs a block"},
		{pol("allow localhost # !"), ""},
		{pol("list # !"), "want list FILE…"},
		{pol("list a.list\nlist b.list a.list # !"), "a.list is given twice"},
		{pol("list a.list { # !\nx\n}"), "list takes no block"},
		{pol("baseline\ndeny {\nlist a.list a.list # !\n}"), "a.list is given twice"},
		{pol("ask # !"), "ask needs a block"},
		{pol("ask any\nask any # !"), "ask any is given twice"},
		{pol("ask *.com # !"), "top-level domain"},
		{pol("ask localhost # !"), "can open nothing"},
		{pol("enforce # !"), "want enforce on|off"},
		{pol("enforce no # !"), "want on or off"},
		{pol("enforce off\nenforce off # !"), "enforce is given twice"},

		{"egress {\ndns # !\n}", "want dns [ADDRESS…] [{ … }], and one of them"},
		{"egress {\ndns resolver.example # !\n}", "named by address"},
		{"egress {\ndns 1.1.1.1:99999 # !\n}", ""},
		{"egress {\ndns 1.1.1.1 { # !\n}\n}", "the block of dns is empty"},
		{"egress {\ndns 1.1.1.1 {\nttl 5m # !\n}\n}", `unrecognized dns option "ttl"; want max_ttl`},
		{"egress {\ndns { # !\nmin_ttl 10m\n}\n}", "above max_ttl"},
		{"egress {\ndns {\nqps 0 # !\n}\n}", "want a number above zero"},
		{"egress {\ndns {\nqps 1 2 # !\n}\n}", "want qps NUMBER"},
		{"egress {\ndns {\nsame_case on # !\n}\n}", "want same_case, and nothing"},
		{"egress {\ndns {\nprivate_for a.example # !\n}\n}", "want private_for HOST CIDR…"},
		{"egress {\ndns { # !\nprivate_for a.example 10.0.0.1/8\n}\n}", "is no network"},
		{"egress {\ndns { # !\nprivate_for *.a.example 10.0.0.0/8\n}\n}", `parse private_for "*.a.example"`},
		{"egress {\ndns { # !\nprivate_for 10.1.2.3 10.0.0.0/8\n}\n}", "private_for 10.1.2.3: it is an address"},
		{"egress {\ndns { # !\npublic 203.0.113.1\n}\n}", "is no network"},
		{"egress {\ndns {\ncname # !\n}\n}", "want cname WORD"},
		{"egress {\ndns { # !\ncname none\n}\n}", "want flatten or strict"},
		{"egress {\ndns 1.1.1.1 {\nmax_ttl # !\n}\n}", "want max_ttl DURATION"},
		{"egress {\ndns 1.1.1.1 {\nmax_ttl 300 # !\n}\n}", `parse max_ttl "300": want a time with its unit`},
		{"egress {\ndns 1.1.1.1 {\nmax_ttl 5m\nmax_ttl 6m # !\n}\n}", "given twice"},

		{in("sessions # !"), "sessions needs a block"},
		{in("sessions 1-2 { # !\nports 1-2\n}"), "nothing on its line"},
		{in("sessions {\nports # !\n}"), "want ports FIRST-LAST"},
		{in("sessions {\nports 20000 # !\n}"), "want FIRST-LAST"},
		{in("sessions {\nports 2-1 # !\n}"), "the lower one first"},
		{in("sessions {\nports 1-70000 # !\n}"), "port"},
		{in("sessions {\nport 1-2 # !\n}"), `unrecognized sessions option "port"; want ports`},

		{in("timeouts # !"), "timeouts needs a block"},
		{in("timeouts {\ndial # !\n}"), "want dial DURATION, as in 10s"},
		{in("timeouts {\ndial 10 # !\nidle 1m\n}"), `parse dial "10": want a time with its unit, as in 500ms, 10s or 2m`},
		{in("timeouts {\ndial 1s 2s # !\n}"), "want dial DURATION"},
		{in("timeouts {\ndial -1s # !\n\n}"), "not a positive time"},
		{in("timeouts {\nread 1s # !\n}"), `unrecognized timeout "read"; want header, hello, dial, idle or total`},
		{in("timeouts {\nidle 1s\nidle 1s # !\n}"), "idle is given twice"},

		{"egress {\nsni # !\n}", "want sni enforce|log|off"},
		{"egress {\nsni on # !\n}", "want enforce, log or off"},
		{"egress {\nsni log off # !\n}", "want sni enforce|log|off"},
		{in("sni off # !"), "sni is given twice"},

		{in("limits # !"), "limits needs a block"},
		{in("limits {\ntunnels 0 # !\n\n}"), "want a number above zero"},
		{in("limits {\nbytes 5 # !\n\n}"), "with its unit"},
		{in("limits {\nbytes # !\n\n}"), "want bytes SIZE"},
		{in("limits {\ntunnels 1\ntunnels 2 # !\n}"), "tunnels is given twice"},
		{in("limits {\nconns 2 # !\n}"), `unrecognized limit "conns"; want tunnels, requests, per_second or bytes`},

		{in("upstream # !"), "want upstream http://HOST:PORT|"},
		{in("upstream ftp://a.example # !"), "is not offered"},
		{in("upstream http://u:p@a.example { # !\nby name\n}"), "credentials do not belong into the URL"},
		{in("upstream http://a.example { # !\n}"), "the block of upstream is empty"},
		{in("upstream http://a.example {\nauth_file # !\n\n}"), "want auth_file FILE"},
		{in("upstream http://a.example {\nauth_file a # !\n\n}"), "name an absolute path"},
		{in("upstream http://a.example {\nno_proxy a.example private # !\n\n}"), "takes hosts and ports, and no flags"},
		{in("upstream http://a.example {\nby port # !\n}"), "want by name|address"},
		{in("upstream http://a.example {\nvia x # !\n}"), `unrecognized upstream option "via"`},

		{in("sandbox # !"), "sandbox needs on, off or a block"},
		{in("sandbox maybe # !"), "on or off"},
		{in("sandbox on off # !"), "want sandbox on|off"},
		{in("sandbox { # !\n}"), "the block of sandbox is empty"},
		{in("sandbox on {\nlauncher # !\n}"), "want launcher PATH"},
		{in("sandbox on {\nlauncher bin/postern # !\n}"), "not an absolute path"},
		{in("sandbox on {\npath /x # !\n}"), `unrecognized sandbox option "path"; want launcher`},
	} {
		text, line := "{\n\tauto_https off\n\t"+c.text+"\n}\n", 0
		for i, l := range strings.Split(text, "\n") {
			if strings.HasSuffix(l, "# !") {
				line = i + 1
			}
		}
		_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
		if err == nil {
			t.Errorf("%s\nwas read", c.text)
			continue
		}
		places := placeIn.FindAllString(err.Error(), -1)
		ok := len(places) > 0 && strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error(), "unexpected line ending")
		for _, p := range places {
			ok = ok && p == fmt.Sprintf("Caddyfile:%d", line)
		}
		if !ok {
			t.Errorf("%s\ngives %v\nwant line %d, %s", c.text, err, line, c.want)
		}
	}
}
