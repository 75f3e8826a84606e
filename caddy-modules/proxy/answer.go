package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

var errNotWanted = errors.New("the content was not wanted")

// maxInterim bounds the interim answers to one request.
const maxInterim = 16

// awaitResponse reads until the final answer begins and passes interim ones on.
func (x *exchange) awaitResponse() (*http.Response, error) {
	for range maxInterim {
		resp, err := x.up.readResponse(&x.req)
		if err != nil {
			return nil, err
		}
		switch {
		case resp.StatusCode == http.StatusSwitchingProtocols:
			if err := x.checkSwitch(resp); err != nil {
				return nil, err
			}
			return resp, nil
		case resp.StatusCode >= 200:
			return resp, nil
		case resp.StatusCode < 100:
			return nil, errors.New("its status code is out of range")
		}
		if err := x.interim(resp); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("it sends interim answers only")
}

// interim passes a 1xx on. A client of HTTP/1.0 must not get one, and 100 only
// who asked for it (RFC 9110 section 15.2).
func (x *exchange) interim(resp *http.Response) error {
	f := x.f
	isContinue := resp.StatusCode == http.StatusContinue
	tell := f.req.minor == 1 && (!isContinue || f.req.expect)
	head := appendStatus(nil, resp)
	head = x.appendFields(head, resp)
	head = append(head, "\r\n"...)
	if x.sent == nil {
		if tell && !isContinue {
			_, err := f.client.Write(head)
			return err
		}
		return nil
	}
	if tell {
		if err := x.sent.tell(head); err != nil {
			return err
		}
	}
	if isContinue {
		select {
		case <-x.sent.proceed:
		default:
			close(x.sent.proceed)
		}
	}
	return nil
}

// answer writes the final answer. It says whether the client may go on.
func (x *exchange) answer(resp *http.Response) bool {
	f := x.f
	x.cause = CauseError
	if x.sent != nil && x.sent.begin() {
		f.req.close = true
	}
	head, body := x.frame(resp)
	n, err := x.copyBody(head, resp, body)
	x.stopLooking()
	x.bytesDown = n
	if err != nil {
		_ = x.stopSending() // what broke is known
		if x.late.Load() {
			x.cause = CauseIdle
		}
		// What was cut off must not look complete, and an answer that ends
		// with the connection has no other way to say so.
		reset(f.client)
		return false
	}
	sent := x.finishSending()
	x.cause = CauseDone
	if resp.Close || x.up.local || !sent || x.up.in.Buffered() > 0 {
		f.dropUpstream()
	}
	switch {
	case !sent:
		f.linger()
		return false
	case f.req.close || body == untilClose:
		return false
	case f.req.both && len(f.in.bytes()) == 0:
		// RFC 9112 section 6.1: the connection ends after a request with both
		// framings. If more has come already it is judged, so that what
		// somebody tried to hide in there leaves a record; then it ends.
		return false
	}
	f.last = f.last || f.req.both
	return true
}

// framing is how the answer's content is told from what follows it.
type framing uint8

const (
	noContent  framing = iota
	byLength           // Content-Length
	byChunks           // Transfer-Encoding: chunked
	untilClose         // HTTP/1.0
)

// frame writes the head of the final answer.
func (x *exchange) frame(resp *http.Response) ([]byte, framing) {
	f := x.f
	b := appendStatus(x.out[:0], resp)
	b = x.appendFields(b, resp)
	var body framing
	switch code := resp.StatusCode; {
	case f.req.method == http.MethodHead, code == http.StatusNotModified:
		// Its length is that of an answer with content.
		if v := resp.Header.Get("Content-Length"); v != "" {
			b = appendField(b, "Content-Length", v)
		}
	case code == http.StatusNoContent:
	case resp.ContentLength >= 0:
		body = byLength
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, resp.ContentLength, 10)
		b = append(b, "\r\n"...)
	case f.req.minor == 1:
		body = byChunks
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		for name := range resp.Trailer {
			if passesAsTrailer(name) {
				b = appendField(b, "Trailer", name)
			}
		}
	default:
		body = untilClose
	}
	if f.req.close || body == untilClose {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, "\r\n"...), body
}

// copyBody writes the head and the content. What has arrived together leaves
// together; nothing that has arrived waits for more.
func (x *exchange) copyBody(b []byte, resp *http.Response, body framing) (total int64, err error) {
	f := x.f
	flush := func() error {
		if len(b) == 0 {
			return nil
		}
		_, err := f.client.Write(b)
		b = b[:0]
		f.watch.touch()
		return err
	}
	if body == noContent {
		return 0, flush()
	}
	const frame = 8 // "ffff" CRLF before, CRLF after
	for {
		room := cap(b) - len(b)
		if len(b) > 0 && (x.up.in.Buffered() == 0 || room < smallSize) {
			if err := flush(); err != nil {
				return total, err
			}
		}
		start := len(b)
		space := b[start:cap(b)]
		if body == byChunks {
			space = space[frame-2 : min(len(space)-2, 0xffff)]
		}
		n, err := resp.Body.Read(space)
		total += int64(n)
		switch {
		case n > 0 && body == byChunks:
			b = closeChunk(b, start, n)
		case n > 0:
			b = b[:start+n]
		}
		if errors.Is(err, io.EOF) {
			if body == byChunks {
				b = appendTrailers(append(b, "0\r\n"...), resp.Trailer)
			}
			return total, flush()
		}
		if err != nil {
			_ = flush()
			return total, fmt.Errorf("read response: %w", err)
		}
	}
}

// closeChunk frames the n bytes that were read 6 bytes after start, and moves
// them when their size is written shorter than the room left for it.
func closeChunk(b []byte, start, n int) []byte {
	data := b[start+6 : start+6+n]
	b = strconv.AppendInt(b[:start], int64(n), 16)
	b = append(b, "\r\n"...)
	b = b[:len(b)+copy(b[len(b):cap(b)], data)]
	return append(b, "\r\n"...)
}

func appendTrailers(b []byte, trailer http.Header) []byte {
	for name, values := range trailer {
		if !passesAsTrailer(name) {
			continue
		}
		for _, v := range values {
			if isFieldValue(v) {
				b = appendField(b, name, v)
			}
		}
	}
	return append(b, "\r\n"...)
}

// appendStatus writes the status line. The phrase is the upstream's text and is
// cleaned.
func appendStatus(b []byte, resp *http.Response) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(resp.StatusCode), 10)
	b = append(b, ' ')
	_, phrase, _ := strings.Cut(resp.Status, " ")
	b = append(b, strings.ReplaceAll(printable(phrase), "\n", "?")...)
	return append(b, "\r\n"...)
}

// appendFields writes the fields of an answer that go to the client.
func (x *exchange) appendFields(b []byte, resp *http.Response) []byte {
	named := resp.Header["Connection"]
	for name, values := range resp.Header {
		switch {
		case name == "Content-Length", isHopByHop(name), !isTokenText(name), lists(named, name):
			continue
		case !x.up.local && (name == decisionField || name == reasonField):
			// Only the appliance speaks for the appliance.
			continue
		}
		for _, v := range values {
			b = appendField(b, name, v)
		}
	}
	return b
}

// lists says that a comma-separated list has name.
func lists(list []string, name string) bool {
	for _, line := range list {
		for option := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.Trim(option, " \t"), name) {
				return true
			}
		}
	}
	return false
}
