package dnsguard

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		conf Config
		says string
	}{
		{"upstream by name", Config{Upstreams: []string{"dns.example"}}, "named by address"},
		{"upstream by name and port", Config{Upstreams: []string{"dns.example:53"}}, "named by address"},
		{"upstream scheme", Config{Upstreams: []string{"quic://1.1.1.1"}}, "unknown scheme"},
		{"upstream port", Config{Upstreams: []string{"1.1.1.1:0"}}, "1 to 65535"},
		{"upstream port too high", Config{Upstreams: []string{"1.1.1.1:65536"}}, "1 to 65535"},
		{"upstream nowhere", Config{Upstreams: []string{"0.0.0.0"}}, "no resolver can be at"},
		{"upstream everywhere", Config{Upstreams: []string{"udp://[ff02::1]:53"}}, "no resolver can be at"},
		{"second upstream", Config{Upstreams: []string{"1.1.1.1", "tls://1.1.1.1#a b"}}, "certificate name"},
		{"DoH with a user", Config{Upstreams: []string{"https://u:p@1.1.1.1/"}}, "want https://"},
		{"DoH with a query", Config{Upstreams: []string{"https://1.1.1.1/?dns="}}, "want https://"},
		{"DoH without a host", Config{Upstreams: []string{"https:///dns-query"}}, "want https://"},
		{"DoH at a bad address", Config{Upstreams: []string{"https://dns.example/#1.1.1"}}, "is no address"},
		{"DoH with two addresses for one", Config{Upstreams: []string{"https://1.1.1.1/#1.1.1.1"}}, "already"},
		{"DoH host", Config{Upstreams: []string{"https://127.1/"}}, "127.1"},
		{"tries", Config{Tries: -1}, "tries"},
		{"time", Config{TryTimeout: time.Hour}, "try_timeout"},
		{"TTLs", Config{MinTTL: time.Minute, MaxTTL: time.Second}, "above"},
		{"CNAME mode", Config{CNAME: "loose"}, "cname mode"},
		{"private mode", Config{Private: "allow"}, "private mode"},
		{"rcode", Config{DenyRcode: "SLIP"}, "deny_rcode"},
		{"type", Config{Types: []string{"TXT"}}, "TXT"},
		{"local host", Config{LocalHosts: []string{"a b"}}, "local_hosts"},
		{"size", Config{UDPSize: 100}, "udp_size"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := New(c.conf)
			if err == nil || g != nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("error %v, want %q in it", err, c.says)
			}
		})
	}
}

func TestParseUpstream(t *testing.T) {
	for text, want := range map[string]string{
		"1.1.1.1":                     "1.1.1.1:53",
		"1.1.1.1:5353":                "1.1.1.1:5353",
		"udp://1.1.1.1":               "1.1.1.1:53",
		"2606:4700::1111":             "[2606:4700::1111]:53",
		"[2606:4700::1111]":           "[2606:4700::1111]:53",
		"[2606:4700::1111]:54":        "[2606:4700::1111]:54",
		"::ffff:1.1.1.1":              "1.1.1.1:53",
		"fe80::1%eth0":                "[fe80::1%eth0]:53",
		"127.0.0.53":                  "127.0.0.53:53",
		"tcp://1.1.1.1":               "tcp://1.1.1.1:53",
		"tls://1.1.1.1":               "tls://1.1.1.1:853#1.1.1.1",
		"tls://1.1.1.1:8853#DNS.Test": "tls://1.1.1.1:8853#dns.test",
		"tls://[2606::1]#a.example":   "tls://[2606::1]:853#a.example",
		"https://1.1.1.1/dns-query":   "https://1.1.1.1/dns-query",
		"https://dns.example":         "https://dns.example/dns-query",
		"https://dns.example:8443/x#1.1.1.1,2606::1": "https://dns.example:8443/x",
	} {
		g, err := New(Config{Upstreams: []string{text}})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := g.fixed[0].String(); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		g.Close()
	}
}

func TestParseResolvConf(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       string
		says       string
	}{
		{name: "plain", text: "nameserver 192.0.2.1\n", want: "[192.0.2.1]"},
		{name: "no newline", text: "nameserver 192.0.2.1", want: "[192.0.2.1]"},
		{name: "comments and options", text: "# nameserver 192.0.2.9\n;nameserver 192.0.2.8\nsearch a b\noptions ndots:5\nnameserver\t127.0.0.53  # local\n", want: "[127.0.0.53]"},
		{name: "four", text: "nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\nnameserver 192.0.2.4\n", want: "[192.0.2.1 192.0.2.2 192.0.2.3]"},
		{name: "IPv6", text: "nameserver fe80::1%eth0\nnameserver ::1\n", want: "[fe80::1%eth0 ::1]"},
		{name: "bad lines", text: "nameserver\nnameserver dns.example\nnameserver 0.0.0.0\nnameserver 127.1\nnameserver 192.0.2.1\n", want: "[192.0.2.1]"},
		{name: "indented", text: "  nameserver 192.0.2.1\n", want: "[192.0.2.1]"},
		{name: "empty", says: "no usable nameserver"},
		{name: "none", text: "nameservers 192.0.2.1\nnameserver nowhere\n", says: "no usable nameserver"},
		{name: "too long", text: strings.Repeat("# x\n", maxResolvConf), says: "longer"},
		{name: "one long line", text: "nameserver " + strings.Repeat("1", 1<<17), says: "long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseResolvConf(strings.NewReader(c.text))
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Fatalf("%v, error %v", got, err)
				}
				return
			}
			texts := make([]string, len(got))
			for i, addr := range got {
				texts[i] = addr.String()
			}
			if err != nil || "["+strings.Join(texts, " ")+"]" != c.want {
				t.Fatalf("%v, error %v", got, err)
			}
		})
	}
}

// TestHostResolversFollowTheFile moves a laptop to another network.
func TestHostResolversFollowTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	clock := newClock()
	g, err := New(Config{ResolvConf: path, now: clock.now})
	if err != nil {
		t.Fatal("a missing file must not stop the start:", err)
	}
	defer g.Close()
	expect := func(want ...string) {
		t.Helper()
		ups, err := g.asker.upstreams()
		var got []string
		for _, up := range ups {
			got = append(got, up.String())
		}
		if !slices.Equal(got, want) || (err != nil) != (len(want) == 0) {
			t.Fatalf("upstreams %q, error %v, want %q", got, err, want)
		}
	}
	write := func(text string) {
		t.Helper()
		// As network managers do it: a new file in the place of the old.
		next := path + ".new"
		if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
	}
	expect()
	if _, err := g.Resolve(t.Context(), "a.example.com"); err == nil || !strings.Contains(err.Error(), "resolv.conf") {
		t.Fatalf("error %v", err)
	}
	write("nameserver 192.0.2.1\n")
	expect() // looked at every five seconds
	clock.pass(resolvConfAge)
	expect("192.0.2.1:53")
	write("nameserver 192.0.2.2\nnameserver 192.0.2.3\n")
	clock.pass(resolvConfAge)
	expect("192.0.2.2:53", "192.0.2.3:53")
	clock.pass(resolvConfAge)
	expect("192.0.2.2:53", "192.0.2.3:53")
	// A file that is gone or broken leaves nobody to ask: not the old ones, which
	// may belong to another network, and not loopback.
	write("# nothing\n")
	clock.pass(resolvConfAge)
	expect()
	write("nameserver 192.0.2.1\n")
	clock.pass(resolvConfAge)
	expect("192.0.2.1:53")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	clock.pass(resolvConfAge)
	expect()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	clock.pass(resolvConfAge)
	expect() // and does not hang
}
