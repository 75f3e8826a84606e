package proxy

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"postern/caddy-modules/policy"
)

// corpusCase is one line of testdata/egress.jsonl: what a client sends, and what
// must become of it.
type corpusCase struct {
	ID, Proto, Input, Expect, Why string
	Allow, Deny                   []string

	Resolve    map[string][]string   `json:"resolve"`
	ResolveSeq map[string][][]string `json:"resolve_seq"`
	SNI        *string               `json:"sni"`
	Variant    string                `json:"tls_variant"`
	Timing     string                `json:"timing"`
	Seq        []string              `json:"expect_seq"`
	DNSQueries *int                  `json:"expect_dns_queries"`
	Upstream   string                `json:"upstream_response"`

	Source   string `json:"source"`
	Optional bool   `json:"optional"`
}

const lanIP = "10.20.30.40"

// Verdicts of the corpus.
const (
	verdictAllow = "allow" // relayed
	verdictDeny  = "deny"  // refused by policy, with a record
	verdictError = "error" // malformed: no lookup, no dial
)

func readCorpus(tb testing.TB) []corpusCase {
	tb.Helper()
	file, err := os.Open("testdata/egress.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var cases []corpusCase
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c corpusCase
		d := json.NewDecoder(strings.NewReader(lines.Text()))
		d.DisallowUnknownFields() // a key nobody acts on would be a case nobody tests
		if err := d.Decode(&c); err != nil {
			tb.Fatalf("%v: %s", err, lines.Text())
		}
		cases = append(cases, c)
	}
	if err := lines.Err(); err != nil {
		tb.Fatal(err)
	}
	return cases
}

func TestCorpus(t *testing.T) {
	cases := readCorpus(t)
	if len(cases) < 237 {
		t.Fatalf("only %d cases", len(cases))
	}
	for _, c := range cases {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			replay(t, &c)
		})
	}
}

func replay(t *testing.T, c *corpusCase) {
	t.Helper()
	t.Logf("%s: %s", c.Expect, c.Why)
	handle := echo
	if c.Proto == "http" {
		handle = answering(okAnswer)
		if c.Upstream != "" {
			handle = answering(c.Upstream)
		}
	}
	b := newLab(t, nil, withOrigin(newOrigin(t, handle)))
	input := c.prepare(t, b)

	want := c.Seq
	if want == nil {
		want = []string{c.Expect}
	}
	var got []string
	switch c.Proto {
	case "connect":
		got = c.connect(b, input, len(want))
	case "http":
		got = c.plain(b, input, len(want))
	default:
		got = []string{c.socks(b, input)}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	c.check(t, b, want)
}

// prepare fills in the placeholders, the answers of the resolver and the policy.
func (c *corpusCase) prepare(t *testing.T, b *lab) string {
	t.Helper()
	_, httpPort, _ := net.SplitHostPort(b.http)
	_, socksPort, _ := net.SplitHostPort(b.socks)
	own := map[string]string{
		"{HTTP_PORT}": httpPort, "{SOCKS_PORT}": socksPort, "{ADMIN_PORT}": "2019",
		"{OTHER_SESSION_HTTP_PORT}": "20001", "{GIT_GATEWAY_PORT}": "20002",
	}
	input := strings.ReplaceAll(c.Input, "{LAN_IP}", lanIP)
	input = strings.ReplaceAll(input, "{DEV_PORT}", "5173")
	ports := map[uint16]bool{}
	for placeholder, port := range own {
		input = strings.ReplaceAll(input, placeholder, port)
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		ports[uint16(n)] = true
	}
	for name, texts := range c.Resolve {
		b.answers[name] = [][]netip.Addr{addrs(t, texts)}
	}
	for name, seq := range c.ResolveSeq {
		for _, texts := range seq {
			b.answers[name] = append(b.answers[name], addrs(t, texts))
		}
	}
	b.allow(c.Allow, c.Deny, func(a netip.AddrPort) bool {
		ip := a.Addr()
		return ports[a.Port()] && (ip.IsLoopback() || ip.IsUnspecified() || ip.String() == lanIP)
	})
	return input
}

func addrs(tb testing.TB, texts []string) []netip.Addr {
	tb.Helper()
	out := make([]netip.Addr, 0, len(texts))
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// check holds a case to what its verdict means beyond the answer.
func (c *corpusCase) check(t *testing.T, b *lab, want []string) {
	t.Helper()
	lookups, dials := b.touched()
	denied := 0
	for _, r := range b.kept(KindDecision) {
		if !r.Allowed() {
			denied++
			if r.Target.IsZero() || r.Client == "" || r.Time.IsZero() || r.Code() == "" || r.Reason() == "" {
				t.Errorf("incomplete record: %+v", r)
			}
		}
	}
	wantDenied := 0
	for _, v := range want {
		if v == verdictDeny {
			wantDenied++
		}
	}
	if c.Timing == "revoke_during_tunnel" {
		wantDenied = 0 // the decision was to allow; the close tells the rest
	}
	if denied != wantDenied {
		t.Errorf("%d records of a refusal, want %d", denied, wantDenied)
	}
	if !slices.Contains(want, verdictAllow) && c.Timing == "" && c.SNI == nil && !c.reachesUpstream() {
		if got := b.origin.received(); got != "" {
			t.Errorf("the origin got %q", got)
		}
		if len(dials) > 0 && c.Variant == "" {
			t.Errorf("dialled %v", dials)
		}
	}
	if c.Expect == verdictError && c.Timing == "" && (len(lookups) > 0 || len(dials) > 0) {
		t.Errorf("malformed, yet looked up %v and dialled %v", lookups, dials)
	}
	if c.DNSQueries != nil && len(lookups) != *c.DNSQueries {
		t.Errorf("%d lookups, want %d: %v", len(lookups), *c.DNSQueries, lookups)
	}
	for _, a := range dials {
		class, _ := policy.Classify(a)
		if class != policy.Public && !slices.Contains(c.Allow, a.String()) {
			t.Errorf("dialled %v, which is %s", a, class)
		}
	}
	await(t, "the server to be idle", func() bool {
		s := b.srv.Stats()
		return s.OpenTunnels == 0 || c.Expect == verdictAllow
	})
}

// reachesUpstream says that the case is about what happens after the connection
// was opened.
func (c *corpusCase) reachesUpstream() bool { return c.ID == "c155" }

// connect sends the input and gives a verdict for each of n requests in it.
func (c *corpusCase) connect(b *lab, input string, n int) (got []string) {
	conn := b.connectTo(b.http)
	host := authorityOf(input)
	var ahead string
	if c.Variant == "pipelined" {
		ahead = c.hello(host)
	}
	conn.send(input + ahead)
	rest := input
	for range n {
		_, rest, _ = strings.Cut(rest, "\r\n\r\n")
		resp, _, err := conn.tryResponse(http.MethodConnect)
		if err != nil {
			return append(got, verdictError)
		}
		v := answerVerdict(resp)
		if v != verdictAllow {
			got = append(got, v)
			host = authorityOf(rest)
			continue
		}
		got = append(got, c.inTunnel(b, conn, host, ahead, rest))
	}
	return got
}

func authorityOf(input string) string {
	_, rest, _ := strings.Cut(input, " ")
	authority, _, _ := strings.Cut(rest, " ")
	return authority
}

// hello builds the ClientHello of the case: its own name, or that of the target.
func (c *corpusCase) hello(authority string) string {
	t, err := policy.ParseTarget(authority, policy.SchemeTCP)
	if err != nil {
		return ""
	}
	names := []string{t.Host().Name()}
	if c.SNI != nil {
		names = []string{*c.SNI}
	}
	if names[0] == "" {
		names = nil
	}
	return buildHello(helloSpec{names: names, variant: c.Variant})
}

// inTunnel plays the client of an open tunnel and says whether the origin got
// its bytes.
func (c *corpusCase) inTunnel(b *lab, conn *client, authority, ahead, inInput string) string {
	t, _ := policy.ParseTarget(authority, policy.SchemeTCP)
	payload := "ping"
	if t.Port() == 443 {
		payload = c.hello(authority)
	}
	if inInput != "" || ahead != "" {
		payload = inInput + ahead
	} else {
		switch c.Variant {
		case "byte_by_byte":
			_ = conn.SetNoDelay(true)
			for i := range len(payload) {
				if _, err := conn.Write([]byte{payload[i]}); err != nil {
					break // refused before the last byte
				}
				if i < 64 {
					time.Sleep(time.Millisecond)
				}
			}
		case "late_hello":
			time.Sleep(quick.Hello + 200*time.Millisecond)
			_, _ = conn.Write([]byte(payload))
		default:
			_, _ = conn.Write([]byte(payload))
		}
	}
	back := make([]byte, len(payload))
	_, err := io.ReadFull(conn.in, back)
	if err != nil || string(back) != payload {
		if got := b.origin.received(); got != "" {
			b.t.Errorf("refused, yet the origin got %q", got)
		}
		return verdictDeny
	}
	switch c.Timing {
	case "idle":
		// Bytes now and then keep it open, silence ends it.
		for range 3 {
			time.Sleep(quick.Idle / 2)
			conn.send("x")
			conn.expect("x")
		}
		begun := time.Now()
		conn.expectEnd()
		if d := time.Since(begun); d < quick.Idle/2 || d > 5*quick.Idle {
			b.t.Errorf("idle tunnel closed after %v", d)
		}
		if r := b.awaitClose(); r.Cause != CauseIdle {
			b.t.Errorf("cause %q", r.Cause)
		}
		await(b.t, "the slot", func() bool { return b.srv.Stats().OpenTunnels == 0 })
	case "revoke_during_tunnel":
		b.allow([]string{"other.example.com"}, nil, nil)
		b.srv.Recheck()
		conn.expectEnd()
		if r := b.awaitClose(); r.Cause != CauseRevoked || r.Decision.Allowed {
			b.t.Errorf("close record %+v", r)
		}
		return verdictDeny
	}
	return verdictAllow
}

// answerVerdict reads the proxy's own answers apart from relayed ones.
func answerVerdict(resp *http.Response) string {
	switch {
	case resp.StatusCode == http.StatusForbidden && resp.Header.Get("Postern-Decision") == "denied":
		return verdictDeny
	case resp.Header.Get("Postern-Decision") == "malformed",
		resp.StatusCode == http.StatusRequestTimeout && resp.Header.Get("Postern-Reason") == "request_timeout":
		return verdictError
	case resp.Header.Get("Postern-Decision") != "":
		return "failed"
	default:
		return verdictAllow
	}
}

// plain sends the input to the HTTP proxy and gives a verdict for each of n
// requests in it.
func (c *corpusCase) plain(b *lab, input string, n int) (got []string) {
	conn := b.connectTo(b.http)
	conn.send(input)
	if c.Timing == "expect_continue" {
		resp, _ := conn.response(http.MethodPost)
		if resp.StatusCode != http.StatusContinue {
			b.t.Errorf("got %s, want 100", resp.Status)
		}
		conn.send("abcd")
	}
	for range n {
		resp, _, err := conn.tryResponse(methodOf(input))
		if err != nil {
			return append(got, verdictError)
		}
		got = append(got, answerVerdict(resp))
		if c.Upstream != "" && resp.StatusCode != http.StatusFound {
			b.t.Errorf("the upstream's answer came as %s", resp.Status)
		}
	}
	if slices.Contains(got, verdictAllow) {
		c.checkForwarded(b, input)
	}
	return got
}

func methodOf(input string) string {
	method, _, _ := strings.Cut(input, " ")
	return method
}

// checkForwarded holds what the origin got to the rules for every request.
func (c *corpusCase) checkForwarded(b *lab, input string) {
	t := b.t
	got := b.origin.received()
	head, content, ok := strings.Cut(got, "\r\n\r\n")
	if !ok {
		t.Fatalf("no head: %q", got)
	}
	if strings.Count(head, "\n") != strings.Count(head, "\r\n") || strings.Count(head, "\r") != strings.Count(head, "\r\n") {
		t.Errorf("line ends are mixed: %q", head)
	}
	lines := strings.Split(head, "\r\n")
	uri := authorityOf(input)
	target, path, err := plainTarget(methodOf(input), uri)
	if err != nil {
		t.Fatal(err)
	}
	if want := methodOf(input) + " " + path + " HTTP/1.1"; lines[0] != want {
		t.Errorf("request line %q, want %q", lines[0], want)
	}
	hosts, framings := 0, 0
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ": ")
		if !ok || strings.HasPrefix(line, " ") {
			t.Errorf("line %q", line)
		}
		switch name = strings.ToLower(name); {
		case name == "host":
			hosts++
			if value != hostField(target) {
				t.Errorf("Host %q", value)
			}
		case name == "content-length" || name == "transfer-encoding":
			framings++
		case name == "x-secret", name == "upgrade", name == "connection", isHopByHop(name):
			t.Errorf("%q reached the origin", line)
		}
	}
	if hosts != 1 || framings > 1 {
		t.Errorf("%d Host fields, %d framings: %q", hosts, framings, head)
	}
	if c.ID == "h040" && !strings.Contains(content, "GET http://evil.com/") {
		t.Errorf("content %q", content)
	}
	if _, dials := b.touched(); len(dials) != 1 {
		t.Errorf("dialled %v", dials)
	}
}
