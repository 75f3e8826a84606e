package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/textproto"
	"strconv"
	"strings"
	"time"
)

// client is one connection to a listener of the session. Its reader goes on
// from the answers into the tunnel.
type client struct {
	*net.TCPConn
	r *bufio.Reader
}

// connect dials a listener. The connection is cut when the case's time is up.
func (w *world) connect(ctx context.Context, addr string) (*client, func(), error) {
	conn, err := w.dial(ctx, addr)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return &client{conn, bufio.NewReader(conn)}, func() {
		stop()
		_ = conn.Close()
	}, nil
}

// send writes in the background: an appliance that refuses before it has read
// everything must not be met by a client that still writes. Errors show at the
// answer.
func (c *client) send(p []byte, each bool) {
	if !each {
		go func() { _, _ = c.Write(p) }()
		return
	}
	go func() {
		for i := range p {
			if _, err := c.Write(p[i : i+1]); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
}

// wait is how long an answer may take: the appliance's longest deadline and some
// air for a busy machine.
const wait = idleTimeout + 4*time.Second

// response is an answer, ours or an origin's.
type response struct {
	status  int
	phrase  string
	header  textproto.MIMEHeader
	body    []byte
	interim []int // 1xx answers before it
}

// read reads the answer to a request of this method: after a CONNECT, 2xx begins
// a tunnel, and HEAD has no content. after100 is called when a 100 comes.
func (c *client) read(method string, after100 func()) (*response, error) {
	out := new(response)
	_ = c.SetReadDeadline(time.Now().Add(wait))
	for {
		tp := textproto.NewReader(c.r)
		line, err := tp.ReadLine()
		if err != nil {
			return nil, err
		}
		proto, rest, _ := strings.Cut(line, " ")
		code, phrase, _ := strings.Cut(rest, " ")
		out.status, err = strconv.Atoi(code)
		if err != nil || !strings.HasPrefix(proto, "HTTP/1.") {
			return nil, fmt.Errorf("not an HTTP answer: %q", line)
		}
		out.phrase = phrase
		if out.header, err = tp.ReadMIMEHeader(); err != nil {
			return nil, err
		}
		if out.status/100 != 1 || out.status == http.StatusSwitchingProtocols {
			break
		}
		out.interim = append(out.interim, out.status)
		if after100 != nil && out.status == http.StatusContinue {
			after100()
		}
	}
	if method == http.MethodConnect && out.status/100 == 2 || method == http.MethodHead || out.status == http.StatusSwitchingProtocols || out.status == 204 || out.status == 304 {
		return out, nil
	}
	var body io.Reader = c.r
	if strings.EqualFold(out.header.Get("Transfer-Encoding"), "chunked") {
		body = httputil.NewChunkedReader(c.r)
	} else if n, err := strconv.ParseInt(out.header.Get("Content-Length"), 10, 64); err == nil {
		body = io.LimitReader(c.r, n)
	}
	var err error
	out.body, err = io.ReadAll(body)
	return out, err
}

// askHTTP replays `connect` and `http` cases.
func (w *world) askHTTP(ctx context.Context, c *testCase, info sessionInfo, o *outcome) error {
	conn, done, err := w.connect(ctx, info.HTTP)
	if err != nil {
		return err
	}
	defer done()
	input := []byte(c.Input)
	o.sent = headEnd(c.Input) > 0
	connect := strings.HasPrefix(strings.ToUpper(c.Input), "CONNECT")
	plan, early := c.payload()
	if connect && early {
		input = append(input, plan.bytes()...)
	}
	conn.send(input, c.Timing == timingBytes)
	sent := clientRequests(c.Input)
	for i, n := 0, len(c.want()); i < n; i++ {
		method := ""
		if connect {
			method = http.MethodConnect
		} else if i < len(sent) {
			method = sent[i].method
		}
		resp, err := conn.read(method, c.bodyAfter(conn))
		if err != nil {
			o.add(fault, "%s", lost(err))
			return nil
		}
		if c.Timing == timingContinue {
			w.checkContinue(resp, o)
		}
		v, how := classify(resp)
		if connect && v == allow {
			return w.tunnel(ctx, c, conn, info, plan, early, o)
		}
		if v == allow && resp.status == http.StatusSwitchingProtocols {
			if err := echoes(conn, []byte("\x81\x02hi")); err != nil {
				o.fault("the upgraded connection does not relay: %v", err)
			}
		}
		if v == allow && c.UpstreamResponse != nil {
			w.checkVerbatim(c, resp, o)
		}
		o.add(v, "%s", how)
	}
	if !connect && c.Timing != timingStall {
		c.checkRequests(w.origins.requests(), o)
	}
	return nil
}

// bodyAfter sends the content that an Expect: 100-continue has held back.
func (c *testCase) bodyAfter(conn *client) func() {
	if c.Timing != timingContinue {
		return nil
	}
	return func() {
		head := c.Input[:headEnd(c.Input)]
		for line := range strings.Lines(head) {
			name, value, _ := strings.Cut(line, ":")
			if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && strings.EqualFold(name, "Content-Length") {
				conn.send([]byte(strings.Repeat("x", max(0, n-(len(c.Input)-len(head))))), false)
			}
		}
	}
}

// checkContinue wants the 100 to be the origin's: it sends one only when it has
// the head, and a body can only have come after it.
func (w *world) checkContinue(resp *response, o *outcome) {
	reqs := w.origins.requests()
	switch {
	case resp.status/100 != 2:
	case len(resp.interim) == 0:
		o.fault("no 100 was relayed")
	case len(reqs) == 0 || !reqs[0].complete:
		o.fault("the content did not reach the origin")
	case !strings.Contains(strings.ToLower(reqs[0].head), "\nexpect: 100-continue"):
		o.fault("the origin was not asked for its 100")
	}
}

// checkVerbatim wants the origin's own answer, not what a client that follows
// redirects would make of it.
func (w *world) checkVerbatim(c *testCase, resp *response, o *outcome) {
	head, _, _ := strings.Cut(*c.UpstreamResponse, "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	if words := strings.Fields(lines[0]); len(words) > 1 && words[1] != strconv.Itoa(resp.status) {
		o.fault("the origin answered %s, the client got %d", words[1], resp.status)
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		if strings.EqualFold(name, "Location") && resp.header.Get(name) != strings.TrimSpace(value) {
			o.fault("the origin's Location %s became %q", strings.TrimSpace(value), resp.header.Get(name))
		}
	}
}

// classify tells the appliance's answers from an origin's. The appliance marks
// its own, and takes its marks off what comes from outside.
func classify(r *response) (verdict, string) {
	how := fmt.Sprintf("%d %s", r.status, r.phrase)
	decision := r.header.Get("Postern-Decision")
	switch {
	case r.header.Get(originMark) != "", decision == "" && r.status < 400:
		return allow, how
	case r.status == http.StatusForbidden && decision == "denied":
		return deny, how
	case r.status == http.StatusForbidden:
		return "403 without Postern-Decision", how
	case r.status >= 500 && r.status != http.StatusNotImplemented && r.status != http.StatusHTTPVersionNotSupported:
		return unreached, how
	case r.status >= 400:
		return fault, how
	}
	return "unclear", how
}

// lost says how a connection ended without an answer.
func lost(err error) string {
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		return "no answer"
	}
	if isClosed(err) {
		return "closed without an answer"
	}
	return err.Error()
}

// askMatch asks the way the host can be sent at all: SOCKS5 takes any bytes in
// its DOMAINNAME, CONNECT takes IPv6 and long names. A host that both can carry
// goes both ways, which must agree.
func (w *world) askMatch(ctx context.Context, c *testCase, info sessionInfo, o *outcome) error {
	host := c.Input
	addr, err := netip.ParseAddr(host)
	v6 := err == nil && addr.Is6() && !strings.Contains(host, "%")
	var found []verdict
	allowed := false // said so, though it could not be reached
	if !v6 && len(host) <= 255 {
		v, how, err := w.matchSOCKS(ctx, host, info)
		if err != nil {
			return err
		}
		found = append(found, v)
		o.how = append(o.how, "SOCKS: "+how)
	}
	if v6 || host != "" && !strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		authority := net.JoinHostPort(host, "443")
		if !v6 {
			authority = host + ":443"
		}
		conn, done, err := w.connect(ctx, info.HTTP)
		if err != nil {
			return err
		}
		defer done()
		conn.send([]byte("CONNECT "+authority+" HTTP/1.1\r\nHost: conform\r\n\r\n"), false)
		v, how := fault, ""
		if resp, err := conn.read(http.MethodConnect, nil); err != nil {
			how = lost(err)
		} else {
			v, how = classify(resp)
			allowed = resp.header.Get("Postern-Decision") == "allowed"
		}
		found = append(found, v)
		o.how = append(o.how, "CONNECT: "+how)
	}
	// A name that is allowed and cannot be resolved is allowed all the same: a
	// `match` case asks about lists, not about what a resolver forwards.
	for i := range found {
		if found[i] == unreached && allowed {
			found[i], o.unreached = allow, true
		}
	}
	o.verdicts, o.how = found[:1], []string{strings.Join(o.how, ", ")}
	if len(found) == 2 && found[0] != found[1] {
		o.fault("SOCKS says %s and CONNECT %s", found[0], found[1])
	}
	return nil
}
