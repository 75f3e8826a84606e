package policy_test

import (
	"fmt"
	"log"
	"net/netip"
	"strings"

	"postern/caddy-modules/policy"
)

func ExampleCompile() {
	allow, err := policy.ParseList(strings.NewReader(`
# Model providers.
*.anthropic.com 443
bedrock.*.amazonaws.com 443

# Git over SSH.
github.com 22 443
`), "agent.list")
	if err != nil {
		log.Fatal(err)
	}
	deny, err := policy.ParseList(strings.NewReader("statsig.anthropic.com\n"), "telemetry.list")
	if err != nil {
		log.Fatal(err)
	}
	set, err := policy.Compile(policy.Lists{Deny: deny, Allow: allow}, nil)
	if err != nil {
		log.Fatal(err)
	}

	for _, authority := range []string{
		"API.Anthropic.com.:443",
		"statsig.anthropic.com:443",
		"github.com:22",
		"github.com:25",
		"169.254.169.254:80",
	} {
		target, err := policy.ParseTarget(authority, policy.SchemeTCP)
		if err != nil {
			log.Fatal(err)
		}
		d := set.Decide(target)
		fmt.Println(target, d.Code, d.Source)
	}
	// Output:
	// api.anthropic.com:443 allowed agent.list:3
	// statsig.anthropic.com:443 denied telemetry.list:1
	// github.com:22 allowed agent.list:7
	// github.com:25 port_not_allowed agent.list:7
	// 169.254.169.254:80 always_denied built-in
}

func ExampleSet_DecideAddr() {
	rule, err := policy.ParseRule("api.example.com", policy.Origin{File: "session"})
	if err != nil {
		log.Fatal(err)
	}
	set, err := policy.Compile(policy.Lists{Allow: []policy.Rule{rule}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	target, err := policy.ParseTarget("api.example.com:443", policy.SchemeTCP)
	if err != nil {
		log.Fatal(err)
	}
	// Every answer of a lookup is judged, and so is the peer of the socket.
	for _, answer := range []string{"140.82.112.5", "10.0.0.5", "::ffff:169.254.169.254"} {
		d := set.DecideAddr(target, netip.MustParseAddr(answer))
		fmt.Println(d.Allowed, d.Code)
	}
	// Output:
	// true allowed
	// false address_class
	// false always_denied
}

func ExampleDecision_Reason() {
	rule, err := policy.ParseRule("*.example.com 443", policy.Origin{File: "configs/allow/baseline.list", Line: 3})
	if err != nil {
		log.Fatal(err)
	}
	set, err := policy.Compile(policy.Lists{Allow: []policy.Rule{rule}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	target, err := policy.ParseTarget("www.example.com:8443", policy.SchemeTCP)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(set.Decide(target).Reason())
	// Output:
	// www.example.com:8443 is refused: the rule "*.example.com 443" (configs/allow/baseline.list:3) allows port 443 only; add the rule "www.example.com 8443" to open this one
}

func ExampleParseHost() {
	for _, text := range []string{"API.GitHub.com.", "[::ffff:10.0.0.5]", "0x7f.1", "::1%.github.com"} {
		host, err := policy.ParseHost(text)
		if err != nil {
			fmt.Println("malformed:", err)
			continue
		}
		fmt.Println(host)
	}
	// Output:
	// api.github.com
	// 10.0.0.5
	// malformed: "0x7f.1" ends in a number but is no dotted decimal IPv4 address (four parts of 0 to 255, no leading zeros)
	// malformed: "::1%.github.com" has an IPv6 zone on an address that is not link-local
}

func ExampleParseRule() {
	for _, line := range []string{"GitHub.com. 443 22", "*example.com", "bücher.example"} {
		rule, err := policy.ParseRule(line, policy.Origin{File: "session"})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(rule)
	}
	// Output:
	// github.com 22 443
	// parse rule: "*example.com" has a star glued to text: a wildcard is a whole label, as in *.example.com
	// parse rule: "b\u00fccher.example" is not ASCII: rules and hosts are A-labels; write "xn--bcher-kva.example"
}
