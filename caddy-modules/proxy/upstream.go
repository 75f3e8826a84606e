package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"postern/caddy-modules/policy"
)

// errLongHead is for an upstream whose response head does not end.
var errLongHead = errors.New("the response head is too large")

// upstream is the connection that plain requests of one flow go over.
type upstream struct {
	*route
	meter  meter
	in     *bufio.Reader
	reused bool
}

// meter reads from an upstream. It bounds heads, counts, and tells the watch.
type meter struct {
	conn net.Conn
	w    *watch
	got  int64 // bytes since the request was sent
	left int64 // of the head, below 0 for no bound
}

func (m *meter) Read(p []byte) (int, error) {
	if m.left == 0 {
		return 0, errLongHead
	}
	if m.left > 0 {
		p = p[:min(int64(len(p)), m.left)]
	}
	n, err := m.conn.Read(p)
	if n > 0 {
		m.got += int64(n)
		if m.left > 0 {
			m.left -= int64(n)
		}
		m.w.touch()
		m.w.count(n)
	}
	return n, err
}

// connectUpstream gives the connection for a request: the one of the request before
// when it goes to the same target, is still allowed and still open. fresh
// demands a new one.
func (f *flow) connectUpstream(ru *ruling, fresh bool) (*upstream, error) {
	if u := f.up; u != nil {
		if !fresh && f.reusable(u, ru.target) {
			u.reused = true
			return u, nil
		}
		f.dropUpstream()
	}
	r, err := f.open(ru, f.proto)
	if err != nil {
		return nil, err
	}
	f.useUpstream(r)
	return f.up, nil
}

// useUpstream makes r the connection of the plain requests.
func (f *flow) useUpstream(r *route) {
	f.up = &upstream{route: r, meter: meter{conn: r.conn, w: &f.watch}}
	f.up.in = bufio.NewReaderSize(&f.up.meter, smallSize)
}

func (f *flow) reusable(u *upstream, t policy.Target) bool {
	// An in-process connection serves one request (see Server.Local).
	if u.target != t || u.local {
		return false
	}
	d, ok := u.judge(f.s.Gate.policy())
	if !ok {
		return false // a new connection may go to another address, or give the refusal
	}
	u.decision = d
	attached, _ := f.usable(u.route)
	return attached && u.in.Buffered() == 0 && isQuiet(u.conn)
}

func (f *flow) dropUpstream() {
	f.up = nil
	f.drop()
}

// isQuiet says that nothing has arrived on an idle connection: neither its end
// nor bytes that nobody asked for, which must not become the next answer.
func isQuiet(c net.Conn) bool {
	raw := rawConn(c)
	if raw == nil {
		return false
	}
	quiet := false
	err := raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		quiet = errors.Is(err, unix.EAGAIN)
	})
	return err == nil && quiet
}

// readResponse reads one response head. The error never holds text of the
// upstream.
func (u *upstream) readResponse(req *http.Request) (*http.Response, error) {
	u.meter.left = maxResponseHead
	resp, err := http.ReadResponse(u.in, req)
	u.meter.left = -1
	switch {
	case errors.Is(err, errLongHead):
		return nil, errLongHead
	case errors.Is(err, io.ErrUnexpectedEOF) && u.meter.got == 0:
		return nil, errors.New("it closed the connection before answering")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("it closed the connection inside its response head")
	case isNetwork(err):
		return nil, err
	case err != nil:
		return nil, errors.New("its response is no HTTP")
	case resp.ProtoMajor != 1:
		return nil, errors.New("its response is not HTTP/1")
	}
	return resp, nil
}

func isNetwork(err error) bool {
	_, ok := errors.AsType[*net.OpError](err)
	return ok || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe)
}

// appendHead writes the head that the upstream gets: fields in their order and
// spelling, without those that end here, and framing of our own.
func (r *request) appendHead(b []byte, t policy.Target, path string) []byte {
	b = append(b, r.method...)
	b = append(b, ' ')
	b = append(b, path...)
	b = append(b, " HTTP/1.1\r\n"...)
	b = appendField(b, "Host", hostField(t))
	for _, f := range r.fields {
		if r.passes(f.name) {
			b = appendField(b, f.name, f.value)
		}
	}
	switch {
	case r.bodyLen == chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		if r.trailer {
			for _, f := range r.fields {
				if strings.EqualFold(f.name, "Trailer") {
					b = appendField(b, "Trailer", f.value)
				}
			}
		}
	case r.bodyLen >= 0:
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, r.bodyLen, 10)
		b = append(b, "\r\n"...)
	}
	if r.expect {
		b = append(b, "Expect: 100-continue\r\n"...)
	}
	if r.upgrade {
		b = append(b, "Connection: Upgrade\r\nUpgrade: websocket\r\n"...)
	}
	return append(b, "\r\n"...)
}

// passes says that a field goes to the upstream as it came.
func (r *request) passes(name string) bool {
	switch len(name) {
	case len("Host"), len("Content-Length"): // Expect has the length of neither
		if strings.EqualFold(name, "Host") || strings.EqualFold(name, "Content-Length") {
			return false
		}
	case len("Expect"):
		if strings.EqualFold(name, "Expect") {
			return false
		}
	}
	return !isHopByHop(name) && (len(r.connNamed) == 0 || !r.named(name))
}

// replayable says that sending the request twice does no harm, for an idle
// connection that turns out to be dead (RFC 9110 section 9.2.2).
func (r *request) replayable() bool {
	switch r.method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	default:
		return false
	}
}
