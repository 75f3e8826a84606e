package proxy

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/caddy-modules/policy"
)

func unhex(tb testing.TB, text string) string {
	tb.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// request builds a SOCKS request for a name.
func socksRequest(name string, port uint16) string {
	return "\x05\x01\x00\x03" + string(byte(len(name))) + name + string([]byte{byte(port >> 8), byte(port)})
}

const noAuth = "\x05\x01\x00"

func TestReadGreeting(t *testing.T) {
	const silent = -1
	for _, c := range []struct {
		name, text string
		n          int
		reply      int // of a refusal, or silent
		short      bool
	}{
		{"none offered alone", "05 01 00", 3, 0, false},
		{"none among others", "05 03 02 01 00", 5, 0, false},
		{"none first", "05 02 00 02 ff", 4, 0, false},
		{"nothing", "", 0, 0, true},
		{"version only", "05", 0, 0, true},
		{"one method missing", "05 02 00", 0, 0, true},
		{"255 promised", "05 ff 00", 0, 0, true},
		{"no methods", "05 00", 0, methodUnacceptable, false},
		{"password only", "05 01 02", 0, methodUnacceptable, false},
		{"GSSAPI only", "05 01 01", 0, methodUnacceptable, false},
		{"private methods", "05 02 80 fe", 0, methodUnacceptable, false},
		{"no acceptable method", "05 01 ff", 0, methodUnacceptable, false},
		{"SOCKS4", "04 01 00 50", 0, silent, false},
		{"version 0", "00", 0, silent, false},
		{"version 6", "06 01 00", 0, silent, false},
		{"HTTP", "47 45 54 20", 0, silent, false},
		{"TLS", "16 03 01", 0, silent, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, err := readGreeting([]byte(unhex(t, c.text)), methodNone)
			refused, ok := errors.AsType[*socksError](err)
			got := 0
			switch {
			case ok && refused.silent:
				got = silent
			case ok:
				got = int(refused.reply)
			}
			switch {
			case c.short != errors.Is(err, errShort), n != c.n:
				t.Errorf("got %d, %v", n, err)
			case got != c.reply:
				t.Errorf("got %v, reply %d, want %d", err, got, c.reply)
			}
		})
	}
}

func TestReadSocksRequest(t *testing.T) {
	for _, c := range []struct{ name, text, target string }{
		{"name", socksRequest("A.Example", 443), "a.example:443"},
		{"name with a root dot", socksRequest("a.example.", 80), "a.example:80"},
		{"dotted decimal as a name", socksRequest("192.0.2.7", 80), "192.0.2.7:80"},
		{"IPv4", unhex(t, "05 01 00 01 c0 00 02 07 00 50"), "192.0.2.7:80"},
		{"IPv6", unhex(t, "05 01 00 04 20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 01 01 bb"), "[2001:db8::1]:443"},
		{"mapped IPv4", unhex(t, "05 01 00 04 00 00 00 00 00 00 00 00 00 00 ff ff c0 00 02 07 00 50"), "192.0.2.7:80"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range len(c.text) {
				if _, _, err := readSocksRequest([]byte(c.text[:i])); !errors.Is(err, errShort) {
					t.Errorf("%d bytes: %v", i, err)
				}
			}
			got, n, err := readSocksRequest([]byte(c.text + "more"))
			if err != nil || n != len(c.text) || got.String() != c.target {
				t.Errorf("got %v, %d of %d bytes, %v", got, n, len(c.text), err)
			}
			if tls := got.Scheme() == policy.SchemeTLS; tls != (got.Port() == 443) {
				t.Errorf("scheme %v for port %d", got.Scheme(), got.Port())
			}
		})
	}
	for _, c := range []struct {
		name, text string
		reply      byte
	}{
		{"BIND", "\x05\x02\x00\x03\x01a\x00\x50", replyNoCommand},
		{"UDP ASSOCIATE", unhex(t, "05 03 00 01 00 00 00 00 00 00"), replyNoCommand},
		{"Tor RESOLVE", "\x05\xf0\x00\x03\x01a\x00\x00", replyNoCommand},
		{"Tor RESOLVE_PTR", "\x05\xf1", replyNoCommand},
		{"command 0", "\x05\x00", replyNoCommand},
		{"address type 0", "\x05\x01\x00\x00\x00", replyNoAddressType},
		{"address type 2", "\x05\x01\x00\x02\x00", replyNoAddressType},
		{"reserved byte", "\x05\x01\x01", replyFailure},
		{"version 4", "\x04\x01", replyFailure},
		{"port 0", socksRequest("a.example", 0), replyFailure},
		{"port 0 of an address", unhex(t, "05 01 00 01 c0 00 02 07 00 00"), replyFailure},
		{"empty name", socksRequest("", 80), replyFailure},
		{"the root", socksRequest(".", 80), replyFailure},
		{"NUL", socksRequest("a.example\x00.b.example", 80), replyFailure},
		{"line break", socksRequest("a.example\r\nX: y", 80), replyFailure},
		{"user information", socksRequest("a@b.example", 80), replyFailure},
		{"port in the name", socksRequest("b.example:80", 80), replyFailure},
		{"IPv6 in the name", socksRequest("::1", 80), replyFailure},
		{"brackets", socksRequest("[::1]", 80), replyFailure},
		{"zone", socksRequest("::1%.a.example", 80), replyFailure},
		{"percent", socksRequest("a%2eexample", 80), replyFailure},
		{"backslash", socksRequest("a.example\\b", 80), replyFailure},
		{"star", socksRequest("*.example", 80), replyFailure},
		{"U+3002", socksRequest("a\u3002example", 80), replyFailure},
		{"invalid UTF-8", socksRequest("\xff\xfe.example", 80), replyFailure},
		{"decimal address", socksRequest("2130706433", 80), replyFailure},
		{"short address", socksRequest("127.1", 80), replyFailure},
		{"hex address", socksRequest("0x7f.0.0.1", 80), replyFailure},
		{"octal address", socksRequest("0177.0.0.1", 80), replyFailure},
		{"address with a root dot", socksRequest("127.0.0.1.", 80), replyFailure},
		{"long name", socksRequest(strings.Repeat("a.", 127)+"a", 80), replyFailure},
	} {
		t.Run(c.name, func(t *testing.T) {
			var refused *socksError
			if _, _, err := readSocksRequest([]byte(c.text)); !errors.As(err, &refused) || refused.reply != c.reply {
				t.Errorf("got %v, want reply %d", err, c.reply)
			}
		})
	}
}

func TestSocksReplies(t *testing.T) {
	for _, c := range []struct {
		name string
		host string
		port uint16
		dial error
		want byte
	}{
		{"denied", "b.example", 80, nil, replyDenied},
		{"denied port", "gone.example", 25, nil, replyDenied},
		{"refused", "a.example", 80, syscall.ECONNREFUSED, replyRefused},
		{"no route", "a.example", 80, syscall.ENETUNREACH, replyNetworkUnreachable},
		{"no host", "a.example", 80, syscall.EHOSTUNREACH, replyHostUnreachable},
		{"other", "a.example", 80, errors.New("odd"), replyFailure},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newLab(t, []string{"a.example", "gone.example"})
			b.srv.Gate.SetDial(failWith(c.dial))
			conn := b.connectTo(b.socks)
			conn.send(noAuth)
			conn.expect("\x05\x00")
			conn.send(socksRequest(c.host, c.port))
			if got := conn.expectEnd(); len(got) != 10 || got[1] != c.want || got[:1] != "\x05" {
				t.Errorf("got %x, want reply %#x", got, c.want)
			}
			if records := b.kept(KindDecision); len(records) != 1 || records[0].Proto != ProtoSOCKS5 || records[0].Allowed() != (c.want != replyDenied) {
				t.Errorf("records %+v", records)
			}
		})
	}
}

// A handshake that does not end is cut off, however it trickles in.
func TestSocksDeadline(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":         "",
		"half a greeting": "\x05\xff\x00",
		"no request":      noAuth,
		"half a request":  noAuth + "\x05\x01\x00\x03\x20abc",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLab(t, []string{"a.example"})
			conn := b.connectTo(b.socks)
			begun := time.Now()
			stop := time.AfterFunc(150*time.Millisecond, func() { _, _ = conn.Write([]byte{socksVersion}) })
			defer stop.Stop()
			conn.send(text)
			conn.expectEnd()
			if took := time.Since(begun); took < 200*time.Millisecond || took > 3*time.Second {
				t.Errorf("closed after %v", took)
			}
			if lookups, dials := b.touched(); len(lookups)+len(dials) > 0 {
				t.Errorf("looked up %v, dialled %v", lookups, dials)
			}
		})
	}
}

// Everything in one packet, byte by byte, and bytes of the tunnel right behind.
func TestSocksPackets(t *testing.T) {
	for name, size := range map[string]int{"one packet": 1 << 10, "byte by byte": 1, "threes": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLab(t, []string{"a.example 22"})
			conn := b.connectTo(b.socks)
			_ = conn.SetNoDelay(true)
			text := noAuth + socksRequest("a.example", 22) + "SSH-2.0-x\r\n"
			for len(text) > 0 {
				n := min(size, len(text))
				conn.send(text[:n])
				text = text[n:]
				if size < 100 {
					time.Sleep(time.Millisecond)
				}
			}
			conn.expect("\x05\x00" + string(socksReply(replySucceeded)) + "SSH-2.0-x\r\n")
			_ = conn.CloseWrite()
			if rest := conn.expectEnd(); rest != "" {
				t.Errorf("more: %q", rest)
			}
			r := b.awaitClose()
			if r.BytesUp != 11 || r.BytesDown != 11 || r.Cause != CauseDone || r.Proto != ProtoSOCKS5 || r.Addr != netip.AddrPortFrom(public, 22) {
				t.Errorf("record %+v", r)
			}
		})
	}
}

// FuzzSocks holds the reader to three things: it reads what it says, a shorter
// input never gives another target, and what it accepts builds up again.
func FuzzSocks(f *testing.F) {
	for _, c := range readCorpus(f) {
		if !strings.HasPrefix(c.Proto, "socks") {
			continue
		}
		for part := range strings.SplitSeq(c.Input, "|") {
			if raw, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(part), " ", "")); err == nil {
				f.Add(raw)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := readGreeting(b, methodNone); err == nil && (n < 3 || n > len(b) || !bytes.Contains(b[2:n], []byte{methodNone})) {
			t.Fatalf("greeting %x: %d bytes", b, n)
		}
		to, n, err := readSocksRequest(b)
		if err != nil {
			if to != (policy.Target{}) || n != 0 {
				t.Fatalf("%x: %v with %v", b, to, err)
			}
			if errors.Is(err, errShort) && len(b) >= 4+1+255+2 {
				t.Fatalf("%d bytes are still short", len(b))
			}
			return
		}
		if n > len(b) || to.Port() == 0 || b[1] != commandConnect {
			t.Fatalf("%x: %v, %d bytes", b, to, n)
		}
		for i := range n {
			if _, _, err := readSocksRequest(b[:i]); !errors.Is(err, errShort) {
				t.Fatalf("%x: %d of its bytes give %v", b[:n], i, err)
			}
		}
		again, err := policy.ParseTarget(to.String(), to.Scheme())
		if err != nil || again != to {
			t.Fatalf("%v reads back as %v, %v", to, again, err)
		}
		if b[3] == addressName && net.ParseIP(to.Host().String()) == nil && !strings.EqualFold(strings.TrimSuffix(string(b[5:n-2]), "."), to.Host().Name()) {
			t.Fatalf("%q became %v", b[5:n-2], to)
		}
	})
}

func TestSocksEndsInGoodOrder(t *testing.T) {
	b := newLab(t, nil)
	conn := b.connectTo(b.socks)
	// More than any handshake, and all of it unread when the verdict falls.
	conn.send("\x04\x01" + strings.Repeat("a", 100<<10))
	if _, err := io.ReadAll(conn.in); err != nil {
		t.Errorf("the connection was reset: %v", err)
	}
}
