package session

import (
	"context"
	"errors"
	"net"
	"path/filepath"

	"postern/caddy-modules/session/lease"
)

// listeners takes the lent pair or makes one, and makes their ports own: before
// the first connection, or the run could reach its own proxy through itself.
func (s *session) listeners(ctx context.Context, pair *lease.Pair) (http, socks net.Listener, err error) {
	if pair != nil {
		http, socks = pair.HTTP, pair.SOCKS
		var own []net.Listener
		if lease.OnHost(pair.HTTP) || lease.OnHost(pair.SOCKS) {
			own = append(own, http, socks)
		}
		for _, l := range s.more {
			if l.Listener != nil && lease.OnHost(l.Listener) {
				own = append(own, l.Listener)
			}
		}
		s.ownPorts(own...)
		return http, socks, nil
	}
	listen := lease.Listen{Network: lease.NetworkTCP}
	if s.spec.Listen != nil {
		listen = *s.spec.Listen
	}
	if http, err = s.listen(ctx, listen.Network, listen.HTTP, "http"); err != nil {
		return nil, nil, unavailable(err)
	}
	if socks, err = s.listen(ctx, listen.Network, listen.SOCKS, "socks"); err != nil {
		return nil, nil, unavailable(errors.Join(err, http.Close()))
	}
	if listen.Network == lease.NetworkTCP {
		s.ownPorts(http, socks)
	}
	return http, socks, nil
}

func (s *session) listen(ctx context.Context, network, address, name string) (net.Listener, error) {
	if network == lease.NetworkTCP {
		ln, err := s.registry.ports.listen(ctx, s.spec.ID, address)
		if err != nil {
			return nil, err
		}
		return ln, nil
	}
	if address == "" {
		address = filepath.Join(s.registry.options.RunDir, s.spec.ID+"."+name)
	}
	ln, err := listenUnix(ctx, address)
	if err != nil {
		return nil, err
	}
	return ln, nil
}

func (s *session) ownPorts(lns ...net.Listener) {
	s.registry.own.set(s, tcpAddrs(lns))
}
