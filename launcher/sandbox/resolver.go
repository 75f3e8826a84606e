package sandbox

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// resolver is where a run that shares the host's loopback asks for names: one port for
// both protocols, at 127.0.0.1. On ::1, which the profile cannot tell from it, the port is
// taken as well, and nobody is served.
type resolver struct {
	packets  *net.UDPConn
	listener *net.TCPListener
	guards   []interface{ Close() error }
}

// listenResolver makes one.
func listenResolver() (resolver, error) {
	var last error
	for range maxTries {
		r, err := tryResolver()
		if err == nil {
			return r, nil
		}
		r.close()
		if last = err; !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return resolver{}, fmt.Errorf("listen for lookups on loopback: %w", last)
}

// tryResolver takes a port that is free for TCP, if it is for the rest.
func tryResolver() (r resolver, err error) {
	if r.listener, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		return r, err
	}
	port := portOf(r.listener)
	if r.packets, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}); err != nil {
		return r, err
	}
	tcp, err := net.ListenTCP("tcp6", &net.TCPAddr{IP: net.IPv6loopback, Port: port})
	if noSuchAddress(err) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	r.guards = append(r.guards, tcp)
	go turnAway(tcp)
	udp, err := net.ListenUDP("udp6", &net.UDPAddr{IP: net.IPv6loopback, Port: port})
	if err != nil {
		return r, err
	}
	r.guards = append(r.guards, udp)
	return r, nil
}

// noSuchAddress says that there is no ::1 on this host, for nobody.
func noSuchAddress(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EPROTONOSUPPORT)
}

// port is 0 where there is no resolver.
func (r *resolver) port() int {
	if r.listener == nil {
		return 0
	}
	return portOf(r.listener)
}

// sockets are nil where there is none.
func (r *resolver) sockets() []LowSocket {
	if r.listener == nil {
		return nil
	}
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(r.port())) //nolint:gosec // a port
	return []LowSocket{
		{LowPort: LowPort{"udp", at}, Packets: r.packets},
		{LowPort: LowPort{"tcp", at}, Listener: r.listener},
	}
}

func (r *resolver) close() {
	if r.packets != nil {
		_ = r.packets.Close()
	}
	if r.listener != nil {
		_ = r.listener.Close()
	}
	for _, g := range r.guards {
		_ = g.Close()
	}
}
