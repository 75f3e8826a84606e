package main

import (
	"bytes"
	"crypto/tls"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"postern/integration/netlab"
)

func TestReadCases(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cases.jsonl")
	text := strings.Join([]string{
		`{"id": "_defaults", "opts": {}}`,
		``,
		`{"id": "a", "proto": "CONNECT", "allow": [], "deny": [], "input": "x", "expect": "Deny"}`,
		`{"id": "b", "proto": "connect", "input": "x", "EXPECT": "allow", "TLS_Variant": "Byte-By-Byte", "Sni": "h", "Expect_Seq": ["allow", "DENIED"]}`,
		`{"id": "c", "proto": "connect", "expect": "maybe"}`,
		`{"id": "d", "expect": "allow"}`,
		`{"id": "e", "proto": "http"}`,
		`not JSON`,
		`{"id": "f", "proto": "match", "expect": "allow", "resolve": {"x": ["not an address!"]}}`,
	}, "\n")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cases, err := readCases([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	var bad []string
	for _, c := range cases {
		if c.bad != nil {
			bad = append(bad, c.ID+" "+strings.TrimPrefix(c.bad.Error(), file))
		}
	}
	want := []string{
		`c :5: parse case: parse expect "maybe": want allow, deny or error`,
		`d :6: parse case: no proto`, `e :7: parse case: no expect`,
	}
	if len(bad) != 5 || !slices.Equal(bad[:3], want) || !strings.Contains(bad[3], ":8: parse case") || !strings.Contains(bad[4], `resolve of "x"`) {
		t.Errorf("bad lines:\n%s", strings.Join(bad, "\n"))
	}
	if a := cases[0]; a.Proto != "connect" || a.Expect != deny || a.SNI != nil {
		t.Errorf("a: %+v", a)
	}
	if b := cases[1]; b.TLSVariant != "byte_by_byte" || b.SNI == nil || *b.SNI != "h" || !slices.Equal(b.want(), []verdict{allow, deny}) {
		t.Errorf("b: %+v", b)
	}
	if _, err := readCases([]string{file + ".none"}); err == nil {
		t.Error("a missing file is no error")
	}
}

func TestResolveForms(t *testing.T) {
	a := netlab.Addrs
	for text, want := range map[string]map[string][]netlab.Answer{
		`{"Api.Example.com.": [["1.2.3.4", "::1"], ["127.0.0.1"]]}`: {"api.example.com": {a("1.2.3.4", "::1"), a("127.0.0.1")}},
		`{"x": ["1.2.3.4", "127.0.0.1"]}`:                           {"x": {a("1.2.3.4"), a("127.0.0.1")}},
		`[{"x": ["1.2.3.4"]}, {"x": ["127.0.0.1"]}]`:                {"x": {a("1.2.3.4"), a("127.0.0.1")}},
		`[["1.2.3.4"], ["127.0.0.1"]]`:                              {"": {a("1.2.3.4"), a("127.0.0.1")}},
		`["1.2.3.4", "127.0.0.1"]`:                                  {"": {a("1.2.3.4"), a("127.0.0.1")}},
		`{"x": ["NXDOMAIN", [], "timeout"]}`:                        {"x": {{Rcode: dns.RcodeNameError}, {}, {Drop: true}}},
		`{"x": [["CNAME: evil.internal", "10.0.0.1"]]}`:             {"x": {{CNAME: "evil.internal", Addrs: a("10.0.0.1").Addrs}}},
	} {
		var got answerSeqs
		if err := got.UnmarshalJSON([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for name, steps := range want {
			if !slices.EqualFunc(got[name], steps, func(x, y netlab.Answer) bool {
				return slices.Equal(x.Addrs, y.Addrs) && x.CNAME == y.CNAME && x.Rcode == y.Rcode && x.Drop == y.Drop
			}) {
				t.Errorf("%s: got %+v", text, got)
			}
		}
	}
	for _, text := range []string{`{"x": [["a b"]]}`, `3`, `{"x": 3}`} {
		var got answerSeqs
		if err := got.UnmarshalJSON([]byte(text)); err == nil {
			t.Errorf("%s: no error, %+v", text, got)
		}
	}
}

func TestTargets(t *testing.T) {
	for _, tt := range []struct {
		proto, input string
		want         []target
	}{
		{"connect", "CONNECT api.github.com:443 HTTP/1.1\r\nHost: evil.com:80\r\n\r\n", []target{{"api.github.com", 443}}},
		{"connect", "CONNECT [::ffff:1.2.3.4]:80 HTTP/1.1\r\n\r\n", []target{{"::ffff:1.2.3.4", 80}}},
		{"connect", "CONNECT api.github.com:99999 HTTP/1.1\r\n\r\n", nil},
		{"connect", "CONNECT a:1 HTTP/1.1\r\n\r\nCONNECT b:2 HTTP/1.1\r\n\r\n", []target{{"a", 1}, {"b", 2}}},
		{"http", "GET HTTP://API.github.com:8080?x HTTP/1.1\r\n\r\n", []target{{"API.github.com", 8080}}},
		{"http", "GET http://a@b/ HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", []target{{"b", 80}}},
		{"http", "GET http://[::1]/ HTTP/1.1\r\n\r\n", []target{{"::1", 80}}},
		{"socks5", "05 01 00 | 05 01 00 03 01 61 01 bb | 16", []target{{"a", 443}}},
		{"socks5", "05 01 00 | 05 01 00 01 0a 00 00 05 15 38", []target{{"10.0.0.5", 5432}}},
		{"socks5", "05 01 00 | 05 01 00 03 05 61 01 bb", nil},
		{"socks5", "05 01 01 | ", nil},
		{"socks5", "zz | zz", nil},
		{"match", "example.com", []target{{"example.com", 443}}},
	} {
		c := &testCase{Proto: tt.proto, Input: tt.input}
		if got := c.targets(); !slices.Equal(got, tt.want) {
			t.Errorf("%s %q: got %v, want %v", tt.proto, tt.input, got, tt.want)
		}
	}
}

func TestPlaceholders(t *testing.T) {
	c := &testCase{Proto: "connect", index: 3, Allow: []string{"{LAN_IP}"}, Input: "CONNECT {LAN_IP}:{ADMIN_PORT} {HTTP_PORT} {SOCKS_PORT} {OTHER_SESSION_HTTP_PORT} {GIT_GATEWAY_PORT} {DEV_PORT} {OTHER}"}
	c.fill(netip.MustParseAddr("192.168.77.2"))
	if c.Input != "CONNECT 192.168.77.2:2019 20008 20009 20000 8418 3000 {OTHER}" || c.Allow[0] != "192.168.77.2" {
		t.Errorf("got %q, %q", c.Input, c.Allow)
	}
	s := &testCase{Proto: "socks5", Input: "05 01 00 | 05 01 00 01 7f 00 00 01 {ADMIN_PORT}"}
	s.fill(netlab.LAN)
	if got := s.targets(); len(got) != 1 || got[0].port != 2019 {
		t.Errorf("SOCKS: %q", s.Input)
	}
}

// Ports are added where they would decide the case, and nowhere else.
func TestExtraPorts(t *testing.T) {
	for _, tt := range []struct {
		host   string
		expect verdict
		want   []uint16
	}{
		{"a.example:443", allow, nil},
		{"a.example:80", deny, nil},
		{"a.example:8080", allow, []uint16{443, 80, 8080}},
		{"a.example:25", deny, nil},
		{"127.0.0.1:2019", deny, []uint16{443, 80, 2019}},
		{"127.0.0.1:20001", deny, []uint16{443, 80, 20001}},
	} {
		c := &testCase{Proto: "connect", Expect: tt.expect, Input: "CONNECT " + tt.host + " HTTP/1.1\r\n\r\n"}
		if got := c.extraPorts(); !slices.Equal(got, tt.want) {
			t.Errorf("%s, %s: %v, want %v", tt.host, tt.expect, got, tt.want)
		}
	}
}

func TestPolicyTextKeepsEntriesAsTheyStand(t *testing.T) {
	c := &testCase{Proto: "match", Allow: []string{`a"b`, "c`d\"e", "line\nbreak", ""}, Deny: []string{"x.example"}}
	want := "\t\tpolicy case-0 {\n\t\t\tallow {\n\t\t\t\t`a\"b`\n\t\t\t\t\"c`d\\\"e\"\n\t\t\t\t`line\nbreak`\n\t\t\t\t``\n\t\t\t}\n\t\t\tdeny {\n\t\t\t\t`x.example`\n\t\t\t}\n\t\t}\n"
	if got := c.policy(doorConfig); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// A block must allow something; a policy without one allows nothing.
	none := &testCase{Proto: "match", Deny: []string{"x.example"}}
	if got := none.policy(doorConfig); got != "\t\tpolicy case-0\n" {
		t.Errorf("empty allow list: %q", got)
	}
	if got := c.policy(doorSession); strings.Contains(got, "a\"b") || !strings.Contains(got, "x.example") {
		t.Errorf("for the session: %q", got)
	}
}

// The ClientHellos are for real: crypto/tls must read the name out of each, and
// nothing from those that have none.
func TestHellosAreReadByTLS(t *testing.T) {
	for _, variant := range []word{"", "byte_by_byte", "split", "two_records", "many_records", "sni_after_1024", "late_hello", "pipelined", "ech", "oversize"} {
		plan, ok := planHello(variant, "api.github.com")
		if !ok {
			t.Errorf("%s is not known", variant)
			continue
		}
		if got, err := serverName(t, plan.bytes()); got != "api.github.com" {
			t.Errorf("%q: server name %q, %v", variant, got, err)
		}
		if !bytes.HasPrefix(plan.bytes(), []byte{22, 3, 1}) {
			t.Errorf("%q begins with %x", variant, plan.bytes()[:3])
		}
	}
	plan, _ := planHello("no_sni", "api.github.com")
	if got, err := serverName(t, plan.bytes()); got != "" || err != nil {
		t.Errorf("no_sni: %q, %v", got, err)
	}
	if _, ok := planHello("by_pigeon", "x"); ok {
		t.Error("an unknown variant is known")
	}
	m := hello{name: "api.github.com", bulk: 1500, bulkFirst: true}.message()
	if i := bytes.Index(m, []byte("api.github.com")); i < 1024 {
		t.Errorf("the name is at byte %d", i)
	}
	if plan, _ := planHello("oversize", "x"); len(plan.bytes()) <= 16<<10 {
		t.Errorf("oversize has %d bytes", len(plan.bytes()))
	}
}

// serverName has crypto/tls read a ClientHello.
func serverName(t *testing.T, raw []byte) (string, error) {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	go func() { _, _ = client.Write(raw) }()
	go func() { _, _ = bytes.NewBuffer(nil).ReadFrom(client) }() // alerts
	name, seen := "", false
	_ = server.SetDeadline(time.Now().Add(2 * time.Second))
	err := tls.Server(server, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, seen = h.ServerName, true
		return nil, os.ErrProcessDone
	}}).HandshakeContext(t.Context())
	if seen {
		err = nil
	}
	return name, err
}
