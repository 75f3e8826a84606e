package dnsguard

import "strings"

// resolvers are public resolvers that speak DNS over HTTPS, TLS or QUIC, and the
// canary names by which a client asks whether it should use one. They are
// denied with everything below them whatever the lists say: a session that
// reaches one has a second DNS that no rule sees. `*.com` style wildcards would
// otherwise let them in unnoticed.
var resolvers = set(
	// Canaries: answering that they do not exist keeps the client on us.
	"use-application-dns.net", // Firefox
	"mask.icloud.com",         // iCloud Private Relay
	"mask-h2.icloud.com",
	"mask-api.icloud.com",
	"mask-canary.icloud.com",
	"mask.apple-dns.net",
	"resolver.arpa", // Discovery of Designated Resolvers, RFC 9462 §6.4

	"cloudflare-dns.com", "one.one.one.one", "cloudflare-gateway.com",
	"dns.google", "dns.google.com", "dns64.dns.google", "8888.google",
	"dns.quad9.net", "dns9.quad9.net", "dns10.quad9.net", "dns11.quad9.net", "dns12.quad9.net", "dns-nosec.quad9.net",
	"dns.opendns.com", "doh.opendns.com", "familyshield.opendns.com", "doh.familyshield.opendns.com", "sandbox.opendns.com",
	"dns.umbrella.com", "doh.umbrella.com",
	"dns.nextdns.io", "anycast.dns.nextdns.io", "doh.nextdns.io",
	"adguard-dns.com", "dns.adguard.com", "dns-family.adguard.com", "dns-unfiltered.adguard.com", "dns.adguard.io",
	"doh.cleanbrowsing.org", "dns.cleanbrowsing.org", "family-filter-dns.cleanbrowsing.org",
	"adult-filter-dns.cleanbrowsing.org", "security-filter-dns.cleanbrowsing.org",
	"dns.mullvad.net", "doh.mullvad.net", "adblock.dns.mullvad.net",
	"dns.controld.com", "freedns.controld.com",
	"dns0.eu", "dns4all.eu", "joindns4.eu",
	"dns.sb", "doh.sb",
	"dns.alidns.com", "doh.pub", "dot.pub", "dns.pub", "doh.360.cn", "dot.360.cn", "dns.twnic.tw",
	"dns.switch.ch", "odvr.nic.cz", "ordns.he.net", "public.dns.iij.jp",
	"dns.digitale-gesellschaft.ch", "doh.applied-privacy.net", "dot1.applied-privacy.net",
	"wikimedia-dns.org", "dnsforge.de", "dns.njal.la", "doh.libredns.gr", "dot.libredns.gr",
	"doh.tiar.app", "dot.tiar.app", "doh.tiarap.org", "jp.tiar.app", "jp.tiarap.org",
	"rethinkdns.com", "ahadns.net", "uncensoreddns.org", "doh.dnslify.com", "doh.securedns.eu", "dot.securedns.eu",
	"doh.xfinity.com", "dot.xfinity.com", "doh.cox.net", "dot.cox.net", "doh.safesurfer.io", "dns.aa.net.uk",
	"doh.li", "resolver-eu.lelux.fi", "dns.oszx.co", "dns.pumplex.com", "dns.decloudus.com", "dns.brahma.world",
	"doh.quickline.ch", "doh.crypto.sx", "dns.flatuslifir.is", "chewbacca.meganerd.nl",
	"dns-doh.dnsforfamily.com", "dns-dot.dnsforfamily.com", "doh.bortzmeyer.fr", "dot.bortzmeyer.fr",
	"doh.ffmuc.net", "dot.ffmuc.net", "dns.artikel10.org", "getdnsapi.net", "dns.cmrg.net", "dns.larsdebruin.net",
	"dns.hinet.net", "dns.circl.lu", "dns.seby.io", "dns.therifleman.name",
	"dns.surfsharkdns.com", "dns.comss.one", "basic.bravedns.com", "bravedns.com",
)

func set(names ...string) map[string]struct{} {
	m := make(map[string]struct{}, len(names))
	for _, name := range names {
		m[name] = struct{}{}
	}
	return m
}

// publicResolver reports whether the canonical name is, or is below, one of
// [resolvers], and which.
func publicResolver(name string) (string, bool) {
	for suffix := name; suffix != ""; {
		if _, ok := resolvers[suffix]; ok {
			return suffix, true
		}
		_, parent, found := strings.Cut(suffix, ".")
		if !found {
			break
		}
		suffix = parent
	}
	return "", false
}
