package sandbox

import (
	"net"
	"net/netip"
)

// ReasonLowPorts is why a sandbox stands without the sockets of Options.Low.
const ReasonLowPorts Reason = "low_ports_denied"

// maxLow bounds Options.Low: all of them come in one message.
const maxLow = 16

// LowPort is a socket that exists inside from before the command runs, and whose
// traffic is the caller's: a resolver's, say, or that of a transparent proxy. Its port
// may be below 1024, which nobody inside can bind. The only addresses there are
// loopback's, and those of Options.Any, so that an unspecified one is every address of
// them. One of IPv6 is left out where the system has none.
type LowPort struct {
	Network string // "tcp" or "udp"
	Addr    netip.AddrPort
}

// LowSocket is what became of a LowPort: one of the two.
type LowSocket struct {
	LowPort
	Listener *net.TCPListener
	Packets  *net.UDPConn
}

// Close closes the caller's end, which is the only one.
func (s *LowSocket) Close() error {
	if s.Listener != nil {
		return s.Listener.Close()
	}
	if s.Packets != nil {
		return s.Packets.Close()
	}
	return nil
}
