package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Deadlines of the appliance under test. Cases that stall wait for these; they
// are long enough for a busy machine not to be taken for a stalling client.
const (
	headerTimeout = 2 * time.Second
	helloTimeout  = 2 * time.Second
	idleTimeout   = 3 * time.Second
)

// policyName is the policy of a case.
func (c *testCase) policyName() string { return fmt.Sprintf("case-%d", c.index) }

// sessionID goes with the session's ports: the appliance gives a port to one id
// for as long as it runs.
func (c *testCase) sessionID() string { return fmt.Sprintf("session-%d", c.index%portPairs) }

// door is how a case's allow list reaches the appliance.
type door uint8

const (
	doorConfig  door = iota // the rules stand in the configuration
	doorSession             // the session brings them; the configuration refused them
)

// caddyfile is the whole configuration: the policies of these cases, and what
// every appliance has. A case named in revoked keeps its policy's name and
// loses its rules. serial makes two texts differ, so that Caddy loads both.
func caddyfile(cases []*testCase, doors map[*testCase]door, revoked *testCase, dnsServer string, serial int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{
	# load %d
	admin 127.0.0.1:%d
	persist_config off
	auto_https off
	egress {
		default_policy base
		local git.internal
		policy base
		dns %s {
			wildcard_sub 253
		}
		timeouts {
			header %s
			hello %s
			idle %s
		}
`, serial, adminPort, dnsServer, headerTimeout, helloTimeout, idleTimeout)
	for _, c := range cases {
		if c == revoked {
			fmt.Fprintf(&b, "\t\tpolicy %s\n", c.policyName())
			continue
		}
		b.WriteString(c.policy(doors[c]))
	}
	b.WriteString("\t}\n}\n")
	// A gateway on a port of its own does not load; the cases ask whether a tunnel
	// reaches whatever the appliance has there.
	fmt.Fprintf(&b, "http://git.internal {\n\tbind sandbox/git\n\tgit_gateway {\n\t\trepo github.com/acme/*\n\t}\n}\n")
	fmt.Fprintf(&b, "http://127.0.0.1:%d {\n\trespond reached\n}\n", gatewayPort)
	return b.String()
}

// policy is the policy block of one case.
func (c *testCase) policy(d door) string {
	lists := [][2]string{{"allow", c.rules(c.Allow, c.extraPorts())}, {"deny", c.rules(c.Deny, nil)}}
	if d == doorSession {
		// A block must allow something.
		lists[0][1] = "\t\t\t\tunused.conform.example\n"
	}
	if lists[0][1] == "" {
		return "\t\tpolicy " + c.policyName() + "\n" // allows nothing
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\t\tpolicy %s {\n", c.policyName())
	for _, l := range lists {
		if l[1] != "" {
			fmt.Fprintf(&b, "\t\t\t%s {\n%s\t\t\t}\n", l[0], l[1])
		}
	}
	b.WriteString("\t\t}\n")
	return b.String()
}

// rules are the lines of a list: each entry one quoted word as it stands, then
// the ports.
func (c *testCase) rules(entries []string, ports []uint16) string {
	var b strings.Builder
	for _, e := range entries {
		b.WriteString("\t\t\t\t" + quote(e))
		for _, p := range ports {
			b.WriteString(" " + itoa(p))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// sessionRules are the rules for the session's own list. It takes the form of a
// line of a list file.
func (c *testCase) sessionRules() []string {
	out := slices.Clone(c.Allow)
	for i := range out {
		for _, p := range c.extraPorts() {
			out[i] += " " + itoa(p)
		}
	}
	return out
}

// extraPorts are the ports to write into the allow list, nil where the default
// stands. The package's doc says why.
func (c *testCase) extraPorts() []uint16 {
	var ports []uint16
	for _, t := range c.targets() {
		if t.port == 0 || t.port == 443 || t.port == 80 || slices.Contains(ports, t.port) {
			continue
		}
		if c.anyAllowed() || ownPort(t.port) {
			ports = append(ports, t.port)
		}
	}
	if ports == nil {
		return nil
	}
	return append([]uint16{443, 80}, ports...)
}

// quote makes one Caddyfile word of any text. Backquotes take everything but
// themselves; in double quotes a backslash escapes a quote and nothing else.
func quote(s string) string {
	if !strings.Contains(s, "`") {
		return "`" + s + "`"
	}
	return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"`
}
