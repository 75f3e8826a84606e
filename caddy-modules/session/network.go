package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
)

// Network connects the sessions' proxies with listeners of this process that
// have a name and no port. It is safe for concurrent use.
//
// Of several listeners with one name the newest takes the connections; when it is
// closed the one before it does again. That is the overlap of a reload: the new
// configuration listens before the old one closes, and closes again if it fails.
type Network struct {
	mu    sync.Mutex
	names map[string][]*inListener // oldest first; none is empty
}

func newNetwork() *Network { return &Network{names: map[string][]*inListener{}} }

// inAddr is an address of the network. Its text looks like host:port, for that is
// how HTTP servers and their logs take addresses apart.
type inAddr string

func (inAddr) Network() string  { return "sandbox" }
func (a inAddr) String() string { return string(a) + ":0" }

// Listen makes a listener with a name. The remote address of its connections is
// the id of the session they come from, followed by ":0".
func (n *Network) Listen(name string) (net.Listener, error) {
	if name == "" {
		return nil, errors.New("listen on the sandbox network: the name is empty")
	}
	l := &inListener{network: n, name: name, conns: make(chan net.Conn), done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names[name] = append(n.names[name], l)
	return l, nil
}

// Dial connects to the newest listener with that name, as a session. It waits for
// the listener to accept until ctx is done; a listener that closes meanwhile
// passes the connection on to its successor.
func (n *Network) Dial(ctx context.Context, name, sessionID string) (net.Conn, error) {
	client, server := net.Pipe()
	client, server = inConn{client, inAddr(sessionID), inAddr(name)}, inConn{server, inAddr(name), inAddr(sessionID)}
	for {
		l := n.newest(name)
		if l == nil {
			return nil, errors.Join(fmt.Errorf("dial sandbox/%s: nothing in the configuration listens there", name), client.Close(), server.Close())
		}
		select {
		case l.conns <- server:
			return client, nil
		case <-l.done:
			// Closed between the look and the offer, or while it did not accept.
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("dial sandbox/%s: %w", name, context.Cause(ctx)), client.Close(), server.Close())
		}
	}
}

func (n *Network) newest(name string) *inListener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if all := n.names[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// listening returns the names that can be dialled.
func (n *Network) listening() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.names))
}

type inListener struct {
	network *Network
	name    string
	conns   chan net.Conn // unbuffered: an offer that is taken has been accepted
	done    chan struct{}
}

// Accept implements net.Listener.
func (l *inListener) Accept() (net.Conn, error) {
	select {
	case <-l.done: // a closed listener accepts nothing, even if someone offers
		return nil, l.closed("accept")
	default:
	}
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, l.closed("accept")
	}
}

// Close implements net.Listener. It may be called again, and says so as other
// listeners do.
func (l *inListener) Close() error {
	n := l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.names[l.name]
	i := slices.Index(all, l)
	if i < 0 {
		return l.closed("close")
	}
	if all = slices.Delete(all, i, i+1); len(all) > 0 {
		n.names[l.name] = all
	} else {
		delete(n.names, l.name)
	}
	close(l.done)
	return nil
}

func (l *inListener) closed(op string) error {
	return &net.OpError{Op: op, Net: "sandbox", Addr: l.Addr(), Err: net.ErrClosed}
}

// Addr implements net.Listener.
func (l *inListener) Addr() net.Addr { return inAddr(l.name) }

// inConn is one end of a pipe with addresses that say who is at either end.
type inConn struct {
	net.Conn
	local, remote net.Addr
}

func (c inConn) LocalAddr() net.Addr  { return c.local }
func (c inConn) RemoteAddr() net.Addr { return c.remote }
