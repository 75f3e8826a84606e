package policy

import "net/netip"

// builtinOrigin is the source of the rules below in a Decision.
var builtinOrigin = Origin{File: "built-in"}

// metadataAddrs hand out credentials or take orders for the machine. Some are
// public addresses or lie in ranges that are otherwise harmless, so no range
// check knows them.
var metadataAddrs = []netip.Prefix{
	netip.MustParsePrefix("169.254.169.254/32"),     // AWS, Azure, Google, DigitalOcean, Hetzner, OpenStack
	netip.MustParsePrefix("169.254.169.123/32"),     // AWS time
	netip.MustParsePrefix("169.254.169.249/32"),     // AWS instance connect
	netip.MustParsePrefix("169.254.169.250/32"),     // Rancher
	netip.MustParsePrefix("169.254.169.253/32"),     // AWS resolver
	netip.MustParsePrefix("169.254.170.2/32"),       // AWS ECS task credentials
	netip.MustParsePrefix("169.254.170.23/32"),      // AWS EKS pod identity
	netip.MustParsePrefix("169.254.42.42/32"),       // Scaleway
	netip.MustParsePrefix("169.254.0.23/32"),        // Tencent
	netip.MustParsePrefix("168.63.129.16/32"),       // Azure WireServer, a public address
	netip.MustParsePrefix("100.100.100.200/32"),     // Alibaba, inside shared space
	netip.MustParsePrefix("192.0.0.192/32"),         // Oracle Classic
	netip.MustParsePrefix("fd00:ec2::/32"),          // AWS: metadata, resolver, time, pod identity
	netip.MustParsePrefix("fd20:ce::254/128"),       // Google
	netip.MustParsePrefix("fd00:42::42/128"),        // Scaleway
	netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), // Oracle
	netip.MustParsePrefix("fe80::a9fe:a9fe/128"),    // OpenStack
}

// linkLocal is closed as a whole: providers keep adding endpoints there, and
// nothing a sandbox needs lives in it.
var linkLocal = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("fe80::/10"),
}

// metadataNames resolve to the addresses above where they resolve at all.
var metadataNames = []string{
	"metadata.google.internal",
	"metadata.goog",
	"metadata",
	"instance-data",
	"instance-data.ec2.internal",
	"metadata.tencentyun.com",
	"metadata.azure.internal",
	"api.metadata.cloud.ibm.com",
	"metadata.platformequinix.com",
}

// builtins are the always-deny rules of every Set.
func builtins() []Rule {
	rules := make([]Rule, 0, len(metadataAddrs)+len(linkLocal)+len(metadataNames))
	for _, p := range metadataAddrs {
		rules = append(rules, Rule{Origin: builtinOrigin, shape: shapeAddr, prefix: p, text: prefixText(p)})
	}
	for _, p := range linkLocal {
		rules = append(rules, Rule{Origin: builtinOrigin, shape: shapeAddr, prefix: p, text: prefixText(p)})
	}
	for _, name := range metadataNames {
		rules = append(rules, Rule{Origin: builtinOrigin, shape: shapeExact, name: name, text: name})
	}
	return rules
}

// thisMachine says that a name means this machine by RFC 6761 section 6.3,
// whatever a resolver says of it.
func thisMachine(name string) bool {
	const local = "localhost"
	if len(name) < len(local) || name[len(name)-len(local):] != local {
		return false
	}
	return len(name) == len(local) || name[len(name)-len(local)-1] == '.'
}

// Builtins are the rules that every policy's always-deny list begins with.
func Builtins() []Rule { return builtins() }
