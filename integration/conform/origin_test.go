package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"
	"testing"
	"time"
)

// originPair runs an origin on one port and connects to it.
func originPair(t *testing.T, response string) (*originServer, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &originServer{listeners: []net.Listener{ln}}
	o.wg.Go(func() { o.accept(ln) })
	t.Cleanup(o.close)
	o.reset(response)
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	return o, c
}

func TestOriginEchoesWhatIsNotHTTP(t *testing.T) {
	for _, text := range []string{"\x16\x03\x01hello", "conform: hi\n", "GETaway", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"} {
		o, c := originPair(t, "")
		if err := echoes(&client{r: bufio.NewReader(c), TCPConn: c.(*net.TCPConn)}, []byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if got := o.payload(); got != len(text) {
			t.Errorf("%q: noted %d bytes", text, got)
		}
		if o.seen()[0].addr != c.RemoteAddr().(*net.TCPAddr).AddrPort() {
			t.Errorf("noted address %v", o.seen()[0].addr)
		}
	}
}

func TestOriginNotesRequestsAsTheyCame(t *testing.T) {
	o, c := originPair(t, "")
	_, _ = io.WriteString(c, "POST /a HTTP/1.1\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nhOST:y\r\n\r\n")
	r := bufio.NewReader(c)
	for range 2 {
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.Header.Get(originMark) == "" {
			t.Fatalf("%v, %v", resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	got := o.requests()
	if len(got) != 2 || got[0].head != "POST /a HTTP/1.1\nHost: x\r\nContent-Length: 3\r\n\r\n" || string(got[0].body) != "abc" ||
		got[1].head != "GET /b HTTP/1.1\r\nhOST:y\r\n\r\n" || !got[1].complete {
		t.Errorf("got %+v", got)
	}
	o.reset("")
	if len(o.requests()) != 0 {
		t.Error("reset left requests")
	}
}

func TestOriginGivesTheCasesAnswer(t *testing.T) {
	_, c := originPair(t, "HTTP/1.1 302 Found\r\nLocation: http://x/\r\nContent-Length: 0\r\n\r\n")
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != 302 {
		t.Errorf("%v, %v", resp, err)
	}
}

func TestClassify(t *testing.T) {
	denied := textproto.MIMEHeader{"Postern-Decision": {"denied"}}
	origin := textproto.MIMEHeader{originMark: {"yes"}}
	for _, tt := range []struct {
		status int
		header textproto.MIMEHeader
		want   verdict
	}{
		{200, nil, allow},
		{302, nil, allow},
		{404, origin, allow},
		{403, denied, deny},
		{403, nil, "403 without Postern-Decision"},
		{400, textproto.MIMEHeader{"Postern-Decision": {"malformed"}}, fault},
		{408, nil, fault},
		{414, nil, fault},
		{431, nil, fault},
		{501, nil, fault},
		{505, nil, fault},
		{502, nil, unreached},
		{504, nil, unreached},
		{407, denied, fault}, // never a denial: clients ask for a password then
	} {
		if got, _ := classify(&response{status: tt.status, header: tt.header}); got != tt.want {
			t.Errorf("%d %v: %s, want %s", tt.status, tt.header, got, tt.want)
		}
	}
}

// Every hygiene check must be able to fail.
func TestCheckRequests(t *testing.T) {
	const sent = "GET http://API.github.com/a%2Fb?q HTTP/1.1\r\nHost: evil.com\r\nConnection: close, X-Secret\r\nX-Secret: 1\r\n\r\n"
	good := "GET /a%2Fb?q HTTP/1.1\r\nHost: api.github.com\r\n\r\n"
	for _, tt := range []struct{ name, got, want string }{
		{"good", good, ""},
		{"nothing", "", "did not reach an origin"},
		{"decoded path", "GET /a/b?q HTTP/1.1\r\nHost: api.github.com\r\n\r\n", "asked for"},
		{"client's Host", "GET /a%2Fb?q HTTP/1.1\r\nHost: evil.com\r\n\r\n", `Host ["evil.com"]`},
		{"no Host", "GET /a%2Fb?q HTTP/1.1\r\n\r\n", "Host []"},
		{"two Hosts", good[:len(good)-2] + "Host: api.github.com\r\n\r\n", "Host ["},
		{"LF", "GET /a%2Fb?q HTTP/1.1\nHost: api.github.com\r\n\r\n", "without its CRLF"},
		{"fold", good[:len(good)-2] + "X: a\r\n b\r\n\r\n", "folded line"},
		{"two framings", good[:len(good)-2] + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "2 framing fields"},
		{"named by Connection", good[:len(good)-2] + "X-Secret: 1\r\n\r\n", "field x-secret"},
		{"proxy credentials", good[:len(good)-2] + "Proxy-Authorization: x\r\n\r\n", "field proxy-authorization"},
		{"h2c", good[:len(good)-2] + "Upgrade: h2c\r\n\r\n", "upgrade to h2c"},
	} {
		o := &outcome{verdicts: []verdict{allow}}
		var got []originRequest
		if tt.got != "" {
			got = []originRequest{{head: tt.got, complete: true}}
		}
		(&testCase{Proto: "http", Input: sent}).checkRequests(got, o)
		all := strings.Join(o.faults, "; ")
		if (tt.want == "") != (all == "") || !strings.Contains(all, tt.want) {
			t.Errorf("%s: faults %q, want %q", tt.name, all, tt.want)
		}
	}
	o := &outcome{verdicts: []verdict{deny}}
	(&testCase{Proto: "http", Input: sent}).checkRequests([]originRequest{{head: good}}, o)
	if len(o.faults) != 1 || !strings.Contains(o.faults[0], "a request more") {
		t.Errorf("smuggled request: %q", o.faults)
	}
}

func TestPublicAddressesDiffer(t *testing.T) {
	if a, b := publicAddr("api.github.com"), publicAddr("evil.com"); a == b || a != publicAddr("API.github.com.") || !a.Is4() || a == (netip.Addr{}) {
		t.Errorf("%v, %v", a, b)
	}
}

func TestOneLine(t *testing.T) {
	if got := oneLine("a\r\nb\x1b[31m\x00c"); got != "a b [31m c" {
		t.Errorf("got %q", got)
	}
}
