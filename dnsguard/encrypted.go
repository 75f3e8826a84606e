package dnsguard

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// RFC 7766 §6.2.3 has servers close idle connections after seconds, so a kept one
// is used soon or not at all.
const (
	maxIdleTLS = 4 // connections kept to one resolver
	idleTLS    = 8 * time.Second
	dohType    = "application/dns-message"
)

// overTLS is a resolver asked over TLS (RFC 7858). A handshake costs two round
// trips, so connections are kept for a while and used again, one query at a
// time each.
type overTLS struct {
	addr netip.AddrPort
	conf *tls.Config
	dial dialFunc

	mu     sync.Mutex
	idle   []idleConn
	closed bool
}

// idleConn is a connection between two queries.
type idleConn struct {
	net.Conn
	since time.Time
}

// newOverTLS demands the certificate of spec.name, or of the address where the
// operator gave no name: the strict profile of RFC 8310. There is no opportunistic
// one, since a resolver that cannot prove itself is as good as plain UDP and should
// then be configured as such.
func newOverTLS(spec upstreamSpec, roots *x509.CertPool, dial dialFunc) *overTLS {
	return &overTLS{addr: spec.addr, dial: dial, conf: &tls.Config{
		ServerName:         spec.name,
		RootCAs:            roots,
		MinVersion:         tls.VersionTLS12,
		ClientSessionCache: tls.NewLRUClientSessionCache(maxIdleTLS),
	}}
}

// String is the address in the form it is configured in.
func (t *overTLS) String() string { return "tls://" + t.addr.String() + "#" + t.conf.ServerName }

// exchange does not mix letter case and accepts any in the reply: TLS vouches for
// the peer, and some resolvers answer in lower case.
func (t *overTLS) exchange(ctx context.Context, name string, qtype uint16) (*dns.Msg, error) {
	// A kept connection may have been closed by the peer meanwhile; that is no
	// failure of the resolver, so a new one is tried at once.
	if conn := t.take(); conn != nil {
		if reply, err := overStream(ctx, conn, newQuery(name, qtype, false)); err == nil {
			t.keep(conn)
			return reply, nil
		}
		conn.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	raw, err := t.dial(ctx, "tcp", t.addr.String())
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, t.conf)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, fmt.Errorf("start TLS: %w", err)
	}
	reply, err := overStream(ctx, conn, newQuery(name, qtype, false))
	if err != nil {
		conn.Close()
		return nil, err
	}
	t.keep(conn)
	return reply, nil
}

// take returns a connection that is likely to be still open, or nil.
func (t *overTLS) take() net.Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.idle) > 0 {
		last := t.idle[len(t.idle)-1]
		t.idle = t.idle[:len(t.idle)-1]
		if time.Since(last.since) < idleTLS {
			return last.Conn
		}
		last.Close()
	}
	return nil
}

// keep puts a connection aside for the next query. The newest is taken first, so
// that after a burst the others grow old and are closed.
func (t *overTLS) keep(conn net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.idle) == maxIdleTLS || conn.SetDeadline(time.Time{}) != nil {
		conn.Close()
		return
	}
	t.idle = append(t.idle, idleConn{conn, time.Now()})
}

func (t *overTLS) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, conn := range t.idle {
		conn.Close()
	}
	t.idle = nil
}

// overHTTPS is a resolver asked over HTTPS (RFC 8484), by POST: a GET would
// write the name into every log on the way.
type overHTTPS struct {
	url    *url.URL
	client *http.Client
	tr     *http.Transport
}

// newOverHTTPS gives the resolver a transport of its own: http.DefaultTransport
// belongs to whoever changes it last, and takes a proxy from the environment.
func newOverHTTPS(spec upstreamSpec, roots *x509.CertPool, dial dialFunc) *overHTTPS {
	if len(spec.boot) > 0 {
		dial = dialFixed(spec.boot, dial)
	}
	tr := &http.Transport{
		Proxy:               nil, // never by this process's environment
		DialContext:         dial,
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:   true,
		DisableCompression:  true,
		MaxIdleConnsPerHost: maxIdleTLS,
		MaxConnsPerHost:     16,
		IdleConnTimeout:     30 * time.Second,
	}
	return &overHTTPS{url: spec.url, tr: tr, client: &http.Client{
		Transport: tr,
		// A resolver that sends us elsewhere is not the configured one.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// dialFixed reaches a host at the operator's addresses, whatever its name.
func dialFixed(addrs []netip.Addr, dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		var failures []error
		for _, addr := range addrs {
			conn, err := dial(ctx, network, net.JoinHostPort(addr.String(), port))
			if err == nil {
				return conn, nil
			}
			failures = append(failures, err)
		}
		return nil, errors.Join(failures...)
	}
}

func (h *overHTTPS) String() string { return h.url.String() }
func (h *overHTTPS) close()         { h.tr.CloseIdleConnections() }

// exchange takes nothing on trust that the status line, the content type and the
// length do not say: a captive portal answers 200 with a page.
func (h *overHTTPS) exchange(ctx context.Context, name string, qtype uint16) (*dns.Msg, error) {
	query := newQuery(name, qtype, false)
	query.Id = 0 // RFC 8484 §4.1: the exchange itself pairs reply and query
	wire, err := query.Pack()
	if err != nil {
		return nil, fmt.Errorf("pack query: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url.String(), bytes.NewReader(wire))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", dohType)
	req.Header.Set("Accept", dohType)
	req.Header.Set("User-Agent", "") // which program asks is nobody's business
	res, err := h.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered HTTP status %d", res.StatusCode)
	}
	if kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err != nil || kind != dohType {
		return nil, fmt.Errorf("it answered with a body that is not %s", dohType)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, dns.MaxMsgSize+1))
	if err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	if len(body) > dns.MaxMsgSize {
		return nil, errors.New("its answer is longer than a DNS message")
	}
	reply := new(dns.Msg)
	if err := reply.Unpack(body); err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	if matchReply(reply, query, false) != matchFull && !bareFailure(reply, query) {
		return nil, errors.New("the reply does not match the question")
	}
	return reply, nil
}
