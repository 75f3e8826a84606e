// Package netlab gives a program the whole Internet on its own loopback.
//
// It runs inside a user and network namespace where every IPv4 and IPv6
// address is local (Linux calls it AnyIP): what listens on 0.0.0.0 answers for
// any public address, and nothing leaves the machine. A real appliance with a
// real resolver and a real dialler can so be tested against origins, rebinding
// names and cloud metadata with nothing mocked inside it. Watch sees every
// connection attempt, also to ports where nobody listens; DNS is a name server
// with programmed answers and a log.
//
//	func main() {
//		lab, err := netlab.Enter() // runs this program again, inside; returns there
//		…
//		watch, err := lab.Watch()
//		dns, err := netlab.ListenDNS(netip.MustParseAddr("9.9.9.9"))
//	}
//
// Tests use Run. No privilege is needed where the kernel lets users make
// namespaces, and no tool: links and routes are set over rtnetlink. A process
// namespace is made as well, so that nothing started inside outlives it.
package netlab
