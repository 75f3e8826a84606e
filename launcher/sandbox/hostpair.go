package sandbox

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"postern/caddy-modules/session/lease"
)

// hostPair is a run's pair of listeners where it shares the host's loopback. The profile
// lets the run connect to localhost:PORT, which is 127.0.0.1 and ::1 alike: whoever else
// had the port on ::1 could be talked to past the proxies. So that is ours as well, and
// nobody is served there.
type hostPair struct {
	pair     lease.Pair
	guards   []net.Listener
	resolver resolver
}

// maxTries is how often another port is taken because this one is in use on ::1.
const maxTries = 32

// listenLoopback makes the pair and the guards.
func listenLoopback() (*hostPair, error) {
	l := &hostPair{}
	for _, ln := range []**net.TCPListener{&l.pair.HTTP, &l.pair.SOCKS} {
		if err := l.one(ln); err != nil {
			l.close()
			return nil, fmt.Errorf("listen on loopback: %w", err)
		}
	}
	for _, g := range l.guards {
		go turnAway(g)
	}
	return l, nil
}

// one makes one listener and its guard.
func (l *hostPair) one(into **net.TCPListener) error {
	var last error
	for range maxTries {
		ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return err
		}
		guard, err := net.Listen("tcp6", net.JoinHostPort("::1", strconv.Itoa(portOf(ln))))
		switch {
		case err == nil:
			l.guards = append(l.guards, guard)
		case errors.Is(err, syscall.EADDRINUSE):
			last = errors.Join(err, ln.Close())
			continue
		case noSuchAddress(err):
		default:
			return errors.Join(err, ln.Close())
		}
		*into = ln
		return nil
	}
	return fmt.Errorf("no port is free on 127.0.0.1 and ::1 alike: %w", last)
}

func portOf(ln *net.TCPListener) int {
	addr, _ := ln.Addr().(*net.TCPAddr)
	return addr.Port
}

// ports are those of the pair, HTTP first.
func (l *hostPair) ports() []int { return []int{portOf(l.pair.HTTP), portOf(l.pair.SOCKS)} }

// turnAway closes every connection, until the listener is closed.
func turnAway(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond) // out of descriptors, mostly
			continue
		}
		_ = c.Close()
	}
}

func (l *hostPair) close() {
	if l == nil {
		return
	}
	_ = l.pair.Close()
	l.resolver.close()
	for _, g := range l.guards {
		_ = g.Close()
	}
}
