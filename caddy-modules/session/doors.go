package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"postern/caddy-modules/session/lease"
)

// Names of the two sockets in the run directory.
const (
	ControlSocket = "control.sock"
	LeaseSocket   = "lease.sock"
)

// credentials asks who is at the other end of a connection.
type credentials func(*net.UnixConn) (lease.Peer, error)

// doors are the two sockets through which sessions are opened.
type doors struct {
	control, lease *socketFile
	server         *http.Server

	mu     sync.Mutex
	conns  map[*net.UnixConn]struct{} // launchers' connections
	closed bool
}

// Listen opens control.sock and lease.sock in the run directory. They stay open
// until Destruct, whatever is configured; a second call does nothing. Socket
// files of a process that was killed are replaced, those of one that lives are
// an error which names it.
func (r *Registry) Listen() error {
	r.reload.Lock() // one Listen at a time, and none during Destruct's preparations
	defer r.reload.Unlock()
	r.mu.Lock()
	closing, open := r.closing, r.doors != nil
	r.mu.Unlock()
	switch {
	case closing:
		return errors.New("open the sockets: the registry is closed")
	case open:
		return nil
	}
	if r.ports.err != nil {
		return r.ports.err
	}
	control, err := listenUnix(r.ctx, filepath.Join(r.options.RunDir, ControlSocket))
	if err != nil {
		return err
	}
	leases, err := listenUnix(r.ctx, filepath.Join(r.options.RunDir, LeaseSocket))
	if err != nil {
		return errors.Join(err, control.Close())
	}
	d := &doors{control: control, lease: leases, conns: map[*net.UnixConn]struct{}{}}
	d.server = &http.Server{
		Handler:           r.checkPeer(r.Handler()),
		ConnContext:       r.withPeer,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return r.ctx },
	}
	r.mu.Lock()
	if r.closing {
		r.mu.Unlock()
		return errors.Join(errors.New("open the sockets: the registry is closed"), d.shut(), control.Close())
	}
	r.doors = d
	r.tasks.Add(2)
	r.mu.Unlock()
	go func() {
		defer r.tasks.Done()
		if err := d.server.Serve(d.control); !errors.Is(err, http.ErrServerClosed) {
			r.log.LogAttrs(r.ctx, slog.LevelError, "control socket failed", slog.Any("error", err))
		}
	}()
	go func() {
		defer r.tasks.Done()
		r.serveLeases(d)
	}()
	return nil
}

// shut closes both sockets, so that nobody comes in any more. Requests under way
// and leases go on: they are still to hear how their sessions end.
func (d *doors) shut() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	// Shutdown closes the listener at once and then waits for who is inside;
	// hangUp ends that wait.
	down, stop := context.WithCancel(context.Background())
	stop()
	if err := d.server.Shutdown(down); err != nil && !errors.Is(err, context.Canceled) {
		return errors.Join(err, d.lease.Close())
	}
	return d.lease.Close()
}

// hangUp closes every connection that is left.
func (d *doors) hangUp() error {
	down, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	err := d.server.Shutdown(down)
	if err != nil {
		err = d.server.Close() // somebody does not read what he asked for
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		_ = c.Close()
	}
	return err
}

// enter notes a launcher's connection; false means that the doors are shut.
func (d *doors) enter(c *net.UnixConn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.conns[c] = struct{}{}
	}
	return !d.closed
}

func (d *doors) leave(c *net.UnixConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
}

// peerKey is the context key under which a control connection keeps its peer.
type peerKey struct{}

// known is who is at the other end of a control connection, or why not.
type known struct {
	peer lease.Peer
	err  error
}

func (r *Registry) withPeer(ctx context.Context, c net.Conn) context.Context {
	k := known{err: errors.New("not a Unix connection")}
	if uc, ok := c.(*net.UnixConn); ok {
		if k.peer, k.err = r.credentials(uc); k.err == nil {
			k.err = lease.CheckPeer(k.peer)
		}
	}
	return context.WithValue(ctx, peerKey{}, k)
}

// checkPeer lets this process's own user in and nobody else.
func (r *Registry) checkPeer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		k, ok := req.Context().Value(peerKey{}).(known)
		if !ok || k.err != nil {
			r.log.LogAttrs(req.Context(), slog.LevelWarn, "control connection refused", slog.Any("error", k.err))
			WriteError(w, &lease.Error{Code: lease.CodeNotPermitted, Message: fmt.Sprintf("control socket: %v", k.err)})
			return
		}
		next.ServeHTTP(w, req)
	})
}

// peerUID is who asks; this process's user where nobody came through the door.
func peerUID(ctx context.Context) int {
	if k, ok := ctx.Value(peerKey{}).(known); ok {
		return k.peer.UID
	}
	return os.Geteuid()
}
