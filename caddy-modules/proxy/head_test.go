package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"
)

var defaults = Limits{}.withDefaults()

// parse reads one head as nextRequest does.
func parse(text string) (*request, int, error) {
	n, err := scanHead([]byte(text), &defaults)
	if err != nil || n == 0 {
		return nil, n, err
	}
	r := &request{}
	return r, n, r.parseHead([]byte(text)[:n])
}

func TestHeadRefused(t *testing.T) {
	const host = "Host: a.example\r\n"
	for _, c := range []struct {
		name, text string
		status     int
	}{
		{"HTTP/0.9", "GET http://a.example/\r\n\r\n", 400},
		{"HTTP/2", "GET http://a.example/ HTTP/2.0\r\n" + host + "\r\n", 400},
		{"HTTP/1.2", "GET http://a.example/ HTTP/1.2\r\n" + host + "\r\n", 400},
		{"version in lower case", "GET http://a.example/ http/1.1\r\n" + host + "\r\n", 400},
		{"two blanks", "GET  http://a.example/ HTTP/1.1\r\n" + host + "\r\n", 400},
		{"blank at the end", "GET http://a.example/ HTTP/1.1 \r\n" + host + "\r\n", 400},
		{"tab between", "GET\thttp://a.example/ HTTP/1.1\r\n" + host + "\r\n", 400},
		{"tab in the target", "GET http://a.example/\tx HTTP/1.1\r\n" + host + "\r\n", 400},
		{"NUL in the target", "GET http://a.example/\x00 HTTP/1.1\r\n" + host + "\r\n", 400},
		{"blank in the target", "GET http://a.example/a b HTTP/1.1\r\n" + host + "\r\n", 400},
		{"blank before the method", " GET http://a.example/ HTTP/1.1\r\n" + host + "\r\n", 400},
		{"empty line first", "\r\nGET http://a.example/ HTTP/1.1\r\n" + host + "\r\n", 400},
		{"no token", "G(T http://a.example/ HTTP/1.1\r\n" + host + "\r\n", 400},
		{"connect in lower case", "connect a.example:443 HTTP/1.1\r\n" + host + "\r\n", 400},
		{"Connect in mixed case", "Connect a.example:443 HTTP/1.1\r\n" + host + "\r\n", 400},
		{"TLS", "\x16\x03\x01", 400},
		{"h2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
		{"no Host", "GET http://a.example/ HTTP/1.1\r\n\r\n", 400},
		{"two Hosts", "GET http://a.example/ HTTP/1.1\r\n" + host + host + "\r\n", 400},
		{"two Hosts in different case", "GET http://a.example/ HTTP/1.1\r\n" + host + "hOST: b.example\r\n\r\n", 400},
		{"two Hosts in HTTP/1.0", "GET http://a.example/ HTTP/1.0\r\n" + host + host + "\r\n", 400},
		{"comma in Host", "GET http://a.example/ HTTP/1.1\r\nHost: a.example,b.example\r\n\r\n", 400},
		{"user information in Host", "GET http://a.example/ HTTP/1.1\r\nHost: a@b.example\r\n\r\n", 400},
		{"path in Host", "GET http://a.example/ HTTP/1.1\r\nHost: a.example/x\r\n\r\n", 400},
		{"blank in Host", "GET http://a.example/ HTTP/1.1\r\nHost: a.example b.example\r\n\r\n", 400},
		{"folded Host", "GET http://a.example/ HTTP/1.1\r\nHost: a\r\n .example\r\n\r\n", 400},
		{"folded before any field", "GET http://a.example/ HTTP/1.1\r\n X: y\r\n" + host + "\r\n", 400},
		{"folded Content-Length", "GET http://a.example/ HTTP/1.1\r\n" + host + "Content-Length: 1\r\n 0\r\n\r\n", 400},
		{"folded Transfer-Encoding", "GET http://a.example/ HTTP/1.1\r\n" + host + "Transfer-Encoding:\r\n chunked\r\n\r\n", 400},
		{"folded Connection", "GET http://a.example/ HTTP/1.1\r\n" + host + "Connection: close,\r\n\tX-A\r\n\r\n", 400},
		{"blank before the colon", "GET http://a.example/ HTTP/1.1\r\nHost : a.example\r\n\r\n", 400},
		{"no colon", "GET http://a.example/ HTTP/1.1\r\n" + host + "X\r\n\r\n", 400},
		{"no name", "GET http://a.example/ HTTP/1.1\r\n" + host + ": x\r\n\r\n", 400},
		{"CR in a value", "GET http://a.example/ HTTP/1.1\r\n" + host + "X: a\rY: b\r\n\r\n", 400},
		{"CR CR LF", "GET http://a.example/ HTTP/1.1\r\n" + host + "X: a\r\r\n\r\n", 400},
		{"NUL in a value", "GET http://a.example/ HTTP/1.1\r\n" + host + "X: a\x00b\r\n\r\n", 400},
		{"NUL in a name", "GET http://a.example/ HTTP/1.1\r\n" + host + "X\x00: a\r\n\r\n", 400},
		{"bytes above ASCII in a name", "GET http://a.example/ HTTP/1.1\r\n" + host + "X\u00e9: a\r\n\r\n", 400},
		{"negative length", "POST http://a.example/ HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", 400},
		{"signed length", "POST http://a.example/ HTTP/1.1\r\n" + host + "Content-Length: +1\r\n\r\n", 400},
		{"length in hex", "POST http://a.example/ HTTP/1.1\r\n" + host + "Content-Length: 0x1\r\n\r\n", 400},
		{"list of lengths", "POST http://a.example/ HTTP/1.1\r\n" + host + "Content-Length: 4, 4\r\n\r\n", 400},
		{"empty length", "POST http://a.example/ HTTP/1.1\r\n" + host + "Content-Length:\r\n\r\n", 400},
		{"length with an underscore", "POST http://a.example/ HTTP/1.1\r\n" + host + "Content-Length: 1_0\r\n\r\n", 400},
		{"length that overflows", "POST http://a.example/ HTTP/1.1\r\n" + host + "Content-Length: 9223372036854775808\r\n\r\n", 400},
		{"two lengths", "POST http://a.example/ HTTP/1.1\r\n" + host + "Content-Length: 4\r\nContent-Length: 5\r\n\r\n", 400},
		{"identity", "POST http://a.example/ HTTP/1.1\r\n" + host + "Transfer-Encoding: identity\r\n\r\n", 400},
		{"gzip, chunked", "POST http://a.example/ HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n", 400},
		{"chunked twice", "POST http://a.example/ HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		{"quoted chunked", "POST http://a.example/ HTTP/1.1\r\n" + host + "Transfer-Encoding: \"chunked\"\r\n\r\n", 400},
		{"chunked with a parameter", "POST http://a.example/ HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked;q=1\r\n\r\n", 400},
		{"empty coding", "POST http://a.example/ HTTP/1.1\r\n" + host + "Transfer-Encoding:\r\n\r\n", 400},
		{"chunked in HTTP/1.0", "POST http://a.example/ HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n", 400},
		{"another expectation", "POST http://a.example/ HTTP/1.1\r\n" + host + "Expect: 200-ok\r\nContent-Length: 1\r\n\r\n", 417},
		{"long line", "GET http://a.example/" + strings.Repeat("a", 8<<10) + " HTTP/1.1\r\n" + host + "\r\n", 414},
		{"endless line", strings.Repeat("a", 8<<10), 414},
		{"large header", "GET http://a.example/ HTTP/1.1\r\n" + host + "X: " + strings.Repeat("a", 32<<10) + "\r\n\r\n", 431},
		{"endless header", "GET http://a.example/ HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", 6<<10), 431},
		{"many fields", "GET http://a.example/ HTTP/1.1\r\n" + host + strings.Repeat("X:y\r\n", maxFields) + "\r\n", 431},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := parse(c.text)
			var refused *headError
			if !errors.As(err, &refused) || refused.status != c.status {
				t.Errorf("got %v, want status %d", err, c.status)
			}
		})
	}
}

func TestHeadAccepted(t *testing.T) {
	const start = "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n"
	for _, c := range []struct {
		name, text string
		check      func(*request) bool
	}{
		{"plain", start + "\r\n", func(r *request) bool { return r.bodyLen == noBody && !r.close && r.minor == 1 }},
		{"LF only", "POST http://a.example/ HTTP/1.1\nHost: a.example\n\n", func(r *request) bool { return r.host == "a.example" }},
		{"mixed line ends", "POST http://a.example/ HTTP/1.1\nHost: a.example\r\nX: y\n\r\n", func(r *request) bool { return len(r.fields) == 2 }},
		{"HTTP/1.0", "GET http://a.example/ HTTP/1.0\r\n\r\n", func(r *request) bool { return r.close }},
		{"empty Host", "GET http://a.example/ HTTP/1.1\r\nHost:\r\n\r\n", func(r *request) bool { return r.host == "" }},
		{"Host with a port", "GET http://a.example/ HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", func(r *request) bool { return r.host == "[::1]:80" }},
		{"close", start + "Connection: X-A , CLOSE\r\n\r\n", func(r *request) bool { return r.close && r.named("x-a") && !r.named("close") }},
		{"close on the second line", start + "Connection: a\r\nConnection: b, close\r\n\r\n", func(r *request) bool { return r.close && r.named("a") && r.named("b") }},
		{"Proxy-Connection", start + "Proxy-Connection: close, X-A\r\n\r\n", func(r *request) bool { return r.close && !r.named("X-A") }},
		{"length", start + "Content-Length: 12\r\n\r\n", func(r *request) bool { return r.bodyLen == 12 && r.hasBody() }},
		{"length of nothing", start + "Content-Length: 0\r\n\r\n", func(r *request) bool { return r.bodyLen == 0 && !r.hasBody() }},
		{"the same length twice", start + "Content-Length: 12\r\nContent-Length: 12\r\n\r\n", func(r *request) bool { return r.bodyLen == 12 }},
		{"highest length", start + "Content-Length: 9223372036854775807\r\n\r\n", func(r *request) bool { return r.bodyLen == 1<<63-1 }},
		{"chunked", start + "Transfer-Encoding: ChunKed\r\n\r\n", func(r *request) bool { return r.bodyLen == chunked && !r.both }},
		{"both framings", start + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", func(r *request) bool { return r.bodyLen == chunked && r.both }},
		{"expect", start + "Expect: 100-Continue\r\nContent-Length: 4\r\n\r\n", func(r *request) bool { return r.expect }},
		{"expect without content", start + "Expect: 100-continue\r\n\r\n", func(r *request) bool { return !r.expect }},
		{"expect in HTTP/1.0", "POST http://a.example/ HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n", func(r *request) bool { return !r.expect }},
		{"fold", start + "X: a \r\n  b\r\n\tc\r\n\r\n", func(r *request) bool { return r.fields[1].value == "a b c" }},
		{"bytes above ASCII in a value", start + "X: \u00e9\r\n\r\n", func(r *request) bool { return r.fields[1].value == "\u00e9" }},
		{"empty value", start + "X:\r\n\r\n", func(r *request) bool { return r.fields[1].value == "" }},
		{"WebSocket", "GET http://a.example/ HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n", func(r *request) bool { return r.upgrade }},
		{"Upgrade that Connection does not name", "GET http://a.example/ HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n", func(r *request) bool { return !r.upgrade }},
		{"list of upgrades", "GET http://a.example/ HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n\r\n", func(r *request) bool { return !r.upgrade }},
		{"two upgrades", "GET http://a.example/ HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n\r\n", func(r *request) bool { return !r.upgrade }},
		{"upgrade of a POST", start + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", func(r *request) bool { return !r.upgrade }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, n, err := parse(c.text + "rest")
			switch {
			case err != nil:
				t.Error(err)
			case n != len(c.text):
				t.Errorf("head of %d bytes, want %d", n, len(c.text))
			case !c.check(r):
				t.Errorf("%+v", r)
			}
		})
	}
}

// However a head is cut into packets, the result is that of the whole.
func TestScanHeadIncomplete(t *testing.T) {
	for _, text := range []string{
		"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"GET http://a.example/ HTTP/1.1\nHost: a.example\n\n",
		"GET http://a.example/ HTTP/1.1\r\nHost: a.example\n\r\n",
	} {
		for i := range len(text) {
			if n, err := scanHead([]byte(text[:i]), &defaults); n != 0 || err != nil {
				t.Errorf("%q: %d, %v", text[:i], n, err)
			}
		}
	}
}

// A parsed request must not carry anything over to the next one.
func TestRequestIsReset(t *testing.T) {
	r := &request{}
	full := "POST http://a.example/ HTTP/1.1\r\nHost: a\r\nConnection: close, X\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\nTrailer: T\r\n\r\n"
	if err := r.parseHead([]byte(full)); err != nil {
		t.Fatal(err)
	}
	if err := r.parseHead([]byte("GET http://b.example/ HTTP/1.1\r\nHost: b\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	want := request{method: "GET", target: "http://b.example/", minor: 1, host: "b", bodyLen: noBody}
	if len(r.fields) != 1 || len(r.connNamed) != 0 {
		t.Errorf("%+v", r)
	}
	r.fields, r.connNamed = nil, nil
	if r.method != want.method || r.close || r.both || r.expect || r.trailer || r.bodyLen != noBody {
		t.Errorf("got %+v, want %+v", *r, want)
	}
}

func TestPlainTarget(t *testing.T) {
	for _, c := range []struct{ method, uri, target, path string }{
		{"GET", "http://a.example", "a.example:80", "/"},
		{"GET", "HTTP://A.Example:8080/x", "a.example:8080", "/x"},
		{"GET", "http://a.example./", "a.example:80", "/"},
		{"GET", "http://a.example?q", "a.example:80", "/?q"},
		{"GET", "http://a.example/a%2Fb/..%2f?x=/../%00", "a.example:80", "/a%2Fb/..%2f?x=/../%00"},
		{"GET", "http://a.example//b.example/../", "a.example:80", "//b.example/../"},
		{"GET", "http://a.example/@b.example", "a.example:80", "/@b.example"},
		{"GET", "http://a.example/|^`{}\"<>\\", "a.example:80", "/|^`{}\"<>\\"},
		{"GET", "http://a.example/\u00e9", "a.example:80", "/\u00e9"},
		{"GET", "http://[2001:db8::1]:81/", "[2001:db8::1]:81", "/"},
		{"GET", "http://[::ffff:1.2.3.4]/", "1.2.3.4:80", "/"},
		{"OPTIONS", "http://a.example", "a.example:80", "*"},
		{"OPTIONS", "http://a.example/", "a.example:80", "/"},
		{"GET", "http://evil.com?.api.github.com/", "evil.com:80", "/?.api.github.com/"},
		// Malformed.
		{"GET", "", "", ""},
		{"GET", "/", "", ""},
		{"GET", "//a.example/", "", ""},
		{"GET", "*", "", ""},
		{"OPTIONS", "*", "", ""},
		{"GET", "a.example:80", "", ""},
		{"GET", "http:a.example/", "", ""},
		{"GET", "http:/a.example/", "", ""},
		{"GET", "http:///a.example/", "", ""},
		{"GET", "http://", "", ""},
		{"GET", "http://:80/", "", ""},
		{"GET", "http://a.example:/", "", ""},
		{"GET", "http://a.example:080/", "", ""},
		{"GET", "http://a.example:65536/", "", ""},
		{"GET", "http://a.example:80:80/", "", ""},
		{"GET", "https://a.example/", "", ""},
		{"GET", "ws://a.example/", "", ""},
		{"GET", "ftp://a.example/", "", ""},
		{"GET", "xhttp://a.example/", "", ""},
		{"GET", "http://u@a.example/", "", ""},
		{"GET", "http://u:p@a.example/", "", ""},
		{"GET", "http://@a.example/", "", ""},
		{"GET", "http://a.example\\@b.example/", "", ""},
		{"GET", "http://a.example\\/", "", ""},
		{"GET", "http://a.example#@b.example/", "", ""},
		{"GET", "http://a.example/#b", "", ""},
		{"GET", "http://a.example;b/", "", ""},
		{"GET", "http://a%2eexample/", "", ""},
		{"GET", "http://a.example%00.b.example/", "", ""},
		{"GET", "http://a.example\u3002b/", "", ""},
		{"GET", "http://[::1%25.a.example]/", "", ""},
		{"GET", "http://[a.example]/", "", ""},
		{"GET", "http://[::1]x/", "", ""},
		{"GET", "http://::1/", "", ""},
		{"GET", "http://0x7f.1/", "", ""},
		{"GET", "http://2130706433/", "", ""},
		{"GET", "http://*.example/", "", ""},
	} {
		target, path, err := plainTarget(c.method, c.uri)
		switch {
		case c.target == "" && err == nil:
			t.Errorf("%q: got %v, want an error", c.uri, target)
		case c.target != "" && (err != nil || target.String() != c.target || path != c.path):
			t.Errorf("%q: got %v %q %v, want %s %q", c.uri, target, path, err, c.target, c.path)
		}
	}
}

// Whatever our reader accepts, net/http accepts with the same meaning: method,
// target, fields and framing. (It accepts more, which is why we do not use it.)
func FuzzHead(f *testing.F) {
	for _, c := range readCorpus(f) {
		if c.Proto == "connect" || c.Proto == "http" {
			f.Add([]byte(c.Input))
		}
	}
	f.Add([]byte("POST http://a.example/ HTTP/1.1\nHost: a\nX: a\n b\nContent-Length: 3\nContent-Length: 3\n\nabc"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, n, err := parse(string(b))
		if err != nil || n == 0 {
			if err != nil && statusOf(err) < 400 {
				t.Fatalf("status %d", statusOf(err))
			}
			return
		}
		text := string(b[:n])
		if !strings.HasSuffix(text, "\n\n") && !strings.HasSuffix(text, "\n\r\n") {
			t.Fatalf("head ends in %q", text)
		}
		want, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			if isHeadNetHTTPRefuses(r, err) {
				return
			}
			t.Fatalf("net/http refuses %q: %v", text, err)
		}
		if r.method != want.Method || r.target != want.RequestURI || r.minor != want.ProtoMinor {
			t.Fatalf("%q: got %q %q %d, net/http %q %q %d", text, r.method, r.target, r.minor, want.Method, want.RequestURI, want.ProtoMinor)
		}
		compareFraming(t, r, want)
		compareFields(t, r, want)
		checkRewritten(t, r)
	})
}

// isHeadNetHTTPRefuses names the one thing that is left to plainTarget and
// tunnelTarget: URIs, which net/http parses together with the head.
func isHeadNetHTTPRefuses(r *request, err error) bool {
	_, _, plain := plainTarget(r.method, r.target)
	_, tunnel := tunnelTarget(r.target)
	if r.method == http.MethodConnect {
		return tunnel != nil
	}
	// Bad percent-encoding in a path is the upstream's business: the bytes are
	// forwarded, never decoded.
	return plain != nil || strings.Contains(err.Error(), "invalid URL escape")
}

func compareFraming(t *testing.T, r *request, want *http.Request) {
	t.Helper()
	switch {
	case len(want.TransferEncoding) > 0:
		if r.bodyLen != chunked {
			t.Fatalf("net/http reads chunked, we %d", r.bodyLen)
		}
	case want.ContentLength != max(r.bodyLen, 0):
		t.Fatalf("net/http reads %d bytes, we %d", want.ContentLength, r.bodyLen)
	}
	if want.Close && !r.close {
		t.Fatal("net/http closes, we do not")
	}
}

func compareFields(t *testing.T, r *request, want *http.Request) {
	t.Helper()
	got := http.Header{}
	for _, f := range r.fields {
		name := textproto.CanonicalMIMEHeaderKey(f.name)
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Connection", "Pragma", "Cache-Control":
			continue // net/http takes them out or changes them
		}
		got[name] = append(got[name], f.value)
	}
	for name, values := range got {
		if !slices.EqualFunc(values, want.Header[name], sameFieldValue) {
			t.Fatalf("%s: got %q, net/http %q", name, values, want.Header[name])
		}
	}
}

// sameFieldValue disregards how many blanks an empty folded line leaves.
func sameFieldValue(a, b string) bool {
	return strings.Join(strings.Fields(a), " ") == strings.Join(strings.Fields(b), " ")
}

// checkRewritten parses what the upstream would get: one request, one Host, one
// framing, the same path.
func checkRewritten(t *testing.T, r *request) {
	t.Helper()
	target, path, err := plainTarget(r.method, r.target)
	if err != nil || r.method == http.MethodConnect {
		return
	}
	head := r.appendHead(nil, target, path)
	again := &request{}
	n, err := scanHead(head, &Limits{RequestLine: len(head) + 1, HeaderBlock: 2 * len(head)})
	if err != nil || n != len(head) {
		t.Fatalf("rewritten head %q: %d, %v", head, n, err)
	}
	if err := again.parseHead(head); err != nil {
		t.Fatalf("rewritten head %q: %v", head, err)
	}
	if again.target != path || again.host != hostField(target) || again.bodyLen != r.bodyLen && r.bodyLen != noBody || again.both {
		t.Fatalf("rewritten head %q of %+v", head, r)
	}
	for _, f := range again.fields {
		ours := (f.name == "Connection" || f.name == "Upgrade") && r.upgrade ||
			f.name == "Transfer-Encoding" && r.bodyLen == chunked || strings.EqualFold(f.name, "Trailer") && r.trailer
		if isHopByHop(f.name) && !ours {
			t.Fatalf("%s in the rewritten head %q", f.name, head)
		}
	}
}

// decodeChunks runs the decoder over b, cut at every multiple of step.
func decodeChunks(b []byte, step int) (data []byte, rest int, err error) {
	var d chunkDecoder
	off := 0
	for avail := min(step, len(b)); ; {
		n, piece, err := d.step(b[off:avail])
		off += n
		data = append(data, piece...)
		switch {
		case err != nil:
			return data, 0, err
		case d.done():
			return data, len(b) - off, nil
		case n > 0:
			continue
		case avail == len(b):
			return data, 0, io.ErrUnexpectedEOF
		}
		avail = min(avail+step, len(b))
	}
}

func TestChunks(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"one", "3\r\nabc\r\n0\r\n\r\n", "abc"},
		{"several", "1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", "abc"},
		{"upper case and zeros", "00A\r\n0123456789\r\n0000\r\n\r\n", "0123456789"},
		{"extension", "3;a=b;c=\"d\"\r\nabc\r\n0;e\r\n\r\n", "abc"},
		{"blank before an extension", "3 ;a\r\nabc\r\n0\r\n\r\n", "abc"},
		{"trailers", "0\r\nX-A: b\r\nX-C:\r\n\r\n", ""},
		{"CR LF in the data", "4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n"},
	} {
		for step := 1; step <= len(c.text); step++ {
			got, rest, err := decodeChunks([]byte(c.text+"GET"), step)
			if err != nil || string(got) != c.want || rest != 3 {
				t.Errorf("%s, %d bytes at a time: %q, %d left, %v", c.name, step, got, rest, err)
			}
		}
	}
	for _, c := range []struct{ name, text string }{
		{"LF after the size", "3\nabc\r\n0\r\n\r\n"},
		{"LF in an extension", "3;a\n\r\nabc\r\n0\r\n\r\n"},
		{"CR in an extension", "3;a\rb\r\nabc\r\n0\r\n\r\n"},
		{"NUL in an extension", "3;a\x00\r\nabc\r\n0\r\n\r\n"},
		{"0x", "0x3\r\nabc\r\n0\r\n\r\n"},
		{"sign", "+3\r\nabc\r\n0\r\n\r\n"},
		{"minus", "-3\r\nabc\r\n0\r\n\r\n"},
		{"blank before", " 3\r\nabc\r\n0\r\n\r\n"},
		{"blank after", "3 \r\nabc\r\n0\r\n\r\n"},
		{"no size", "\r\nabc\r\n0\r\n\r\n"},
		{"no hex", "g\r\n"},
		{"too large", "FFFFFFFFFFFFFFFFF\r\n"},
		{"16 digits", "7FFFFFFFFFFFFFFF\r\n"},
		{"data too long", "3\r\nabcd\r\n0\r\n\r\n"},
		{"data too short", "3\r\nab\r\n0\r\n\r\n"},
		{"LF after the data", "3\r\nabc\n0\r\n\r\n"},
		{"bad trailer", "0\r\nX A: b\r\n\r\n"},
		{"CR in a trailer", "0\r\nX: a\rb\r\n\r\n"},
		{"LF trailer", "0\r\nX: a\n\r\n"},
		{"folded trailer", "0\r\nX: a\r\n b\r\n\r\n"},
		{"too many trailers", "0\r\n" + strings.Repeat("X: y\r\n", maxTrailers+1) + "\r\n"},
		{"long trailers", "0\r\nX: " + strings.Repeat("a", maxTrailerBytes) + "\r\n\r\n"},
		{"long extension", "3;" + strings.Repeat("a", maxChunkLine) + "\r\nabc\r\n"},
		{"extensions without end", strings.Repeat("1;"+strings.Repeat("a", 1000)+"\r\na\r\n", 20)},
	} {
		for _, step := range []int{1, len(c.text)} {
			var bad *headError
			if got, _, err := decodeChunks([]byte(c.text), step); !errors.As(err, &bad) {
				t.Errorf("%s, %d bytes at a time: %q, %v", c.name, step, got, err)
			}
		}
	}
}

func TestTrailersThatAreDropped(t *testing.T) {
	var d chunkDecoder
	text := "0\r\nX-Sum: 1\r\nContent-Length: 5\r\nHost: b\r\nTransfer-Encoding: chunked\r\nAuthorization: x\r\nProxy-X: y\r\nConnection: close\r\n\r\n"
	if _, _, err := d.step([]byte(text)); err != nil || !d.done() {
		t.Fatal(err)
	}
	if len(d.fields) != 1 || d.fields[0] != (field{"X-Sum", "1"}) {
		t.Errorf("kept %v", d.fields)
	}
}

// Whatever our decoder accepts, that of net/http decodes to the same bytes.
func FuzzChunks(f *testing.F) {
	f.Add([]byte("3\r\nabc\r\n0\r\n\r\n"), 1)
	f.Add([]byte("3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\nGET"), 2)
	f.Add([]byte("4;a\n\r\nabcd\r\n0\r\n\r\n"), 3)
	f.Fuzz(func(t *testing.T, b []byte, step int) {
		whole, rest, err := decodeChunks(b, max(len(b), 1))
		parts, rest2, err2 := decodeChunks(b, max(1, step))
		if (err == nil) != (err2 == nil) || err == nil && (!bytes.Equal(whole, parts) || rest != rest2) {
			t.Fatalf("whole: %q %v, in parts of %d: %q %v", whole, err, step, parts, err2)
		}
		if err != nil {
			return
		}
		head := "POST http://a/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
		in := bufio.NewReader(io.MultiReader(strings.NewReader(head), bytes.NewReader(b)))
		req, err := http.ReadRequest(in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(req.Body)
		if err != nil || !bytes.Equal(got, whole) {
			t.Fatalf("we decode %q, net/http %q, %v", whole, got, err)
		}
		left, err := io.ReadAll(in)
		if err != nil || len(left) != rest {
			t.Fatalf("we leave %d bytes, net/http %d", rest, len(left))
		}
	})
}
