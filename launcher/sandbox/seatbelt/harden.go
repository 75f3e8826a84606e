package seatbelt

import (
	"maps"
	"slices"
)

// hardening is a way out that (allow default) leaves: acting through another
// process that is not in the sandbox.
type hardening struct {
	why        string
	unfiltered []string // operations that are denied as a whole
	services   []string // mach services that may not be looked up
	rules      []string // further filtered rules
}

var hardenings = map[string]hardening{
	"appleevents": {
		why:        "scripts other applications, which run outside",
		unfiltered: []string{"appleevent-send"},
		services:   []string{"com.apple.coreservices.appleevents"},
	},
	"launchservices": {
		why:        "opens files and applications outside",
		unfiltered: []string{"lsopen"},
		services: []string{
			"com.apple.coreservices.launchservicesd", "com.apple.coreservices.quarantine-resolver", "com.apple.lsd.mapdb", "com.apple.lsd.modifydb",
		},
	},
	"jobs": {
		why:        "has launchd start a process outside",
		unfiltered: []string{"job-creation"},
	},
	"transfers": {
		why:      "transfers run in a process of their own, past the proxies",
		services: []string{"com.apple.nsurlsessiond", "com.apple.nsurlsessiond.NSURLSessionProxyService"},
	},
	"pasteboard": {
		why:      "reads what the user copied",
		services: []string{"com.apple.pasteboard.1"},
	},
	"tasks": {
		why:        "takes over other processes",
		unfiltered: []string{"mach-priv-task-port"},
	},
	"signals": {
		why:        "stops other processes",
		unfiltered: []string{"signal"},
		rules:      []string{"(allow signal (target self))", "(allow signal (target same-sandbox))", "(allow signal (target children))"},
	},
	"processes": {
		why:        "reads the environment of other runs through their process information",
		unfiltered: []string{"process-info*"},
		rules:      []string{"(allow process-info* (target self))", "(allow process-info* (target same-sandbox))", "(allow process-info* (target children))"},
	},
	"keychain": {
		why:      "the security services hand out secrets though their files are hidden",
		services: []string{"com.apple.SecurityServer", "com.apple.securityd.xpc", "com.apple.security.agent", "com.apple.secd"},
	},
}

// Hardenings lists the names that Policy.Open takes, sorted.
func Hardenings() []string { return slices.Sorted(maps.Keys(hardenings)) }

// resolvers are the two doors to names: a mach service and a socket. Closing one
// leaves the other.
var (
	resolverServices = []string{"com.apple.dnssd.service", "com.apple.mDNSResponder", "com.apple.mDNSResponderHelper", "com.apple.mDNSResponder_Helper"}
	resolverSockets  = []string{"/private/var/run/mDNSResponder", "/var/run/mDNSResponder"}
)
