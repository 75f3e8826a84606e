package proxy

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"postern/caddy-modules/policy"
)

// helloSpec says what ClientHello to build. Real libraries refuse to send most of
// what is tested here.
type helloSpec struct {
	names   []string
	variant string
	// extra extensions stand before the server name, raw.
	extra []byte
	// after stands behind it.
	after []byte
}

func prefixed(size int, b []byte) []byte {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(b)))
	return append(length[8-size:], b...)
}

func extension(kind uint16, data []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, kind), prefixed(2, data)...)
}

func nameExtension(names ...string) []byte {
	var list []byte
	for _, name := range names {
		list = append(list, nameTypeHost)
		list = append(list, prefixed(2, []byte(name))...)
	}
	return extension(extensionName, prefixed(2, list))
}

// helloBody is the ClientHello without its handshake header.
func helloBody(s helloSpec) []byte {
	body := []byte{3, 3}
	body = append(body, make([]byte, 32)...)
	body = append(body, prefixed(1, make([]byte, 32))...)
	body = append(body, prefixed(2, []byte{0x13, 0x01, 0x13, 0x02})...)
	body = append(body, prefixed(1, []byte{0})...)
	extensions := s.extra
	switch s.variant {
	case "sni_after_1024":
		extensions = append(extensions, extension(51, make([]byte, 1216))...)
	case "oversize":
		extensions = append(extensions, extension(21, make([]byte, 17<<10))...)
	}
	if s.names != nil {
		extensions = append(extensions, nameExtension(s.names...)...)
	}
	extensions = append(extensions, s.after...)
	extensions = append(extensions, extension(43, []byte{2, 3, 4})...)
	return append(body, prefixed(2, extensions)...)
}

func buildHello(s helloSpec) string {
	message := append([]byte{handshakeHello}, prefixed(3, helloBody(s))...)
	size := 16 << 10
	if s.variant == "two_records" {
		size = len(message)/2 + 1
	}
	return string(records(message, size))
}

// records cuts a message into TLS records of at most size bytes.
func records(message []byte, size int) []byte {
	var out []byte
	for len(message) > 0 {
		n := min(size, len(message))
		out = append(out, recordHandshake, 3, 1)
		out = append(out, prefixed(2, message[:n])...)
		message = message[n:]
	}
	return out
}

// realHello is what crypto/tls sends.
func realHello(tb testing.TB, config *tls.Config) []byte {
	tb.Helper()
	client, server := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Client(client, config).Handshake() // ends with the pipe
	}()
	head := make([]byte, recordHeader)
	if _, err := io.ReadFull(server, head); err != nil {
		tb.Fatal(err)
	}
	rest := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(server, rest); err != nil {
		tb.Fatal(err)
	}
	_ = server.Close()
	<-done
	_ = client.Close()
	return append(head, rest...)
}

// echConfig is a minimal ECHConfigList (RFC 9849 section 4) with a public name.
func echConfig(tb testing.TB, public string) []byte {
	tb.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	contents := []byte{7, 0, 0x20} // config id, DHKEM(X25519)
	contents = append(contents, prefixed(2, key.PublicKey().Bytes())...)
	contents = append(contents, prefixed(2, []byte{0, 1, 0, 1})...) // HKDF-SHA256, AES-128-GCM
	contents = append(contents, 32)
	contents = append(contents, prefixed(1, []byte(public))...)
	contents = append(contents, 0, 0)
	return prefixed(2, extension(0xfe0d, contents))
}

func host(tb testing.TB, text string) policy.Host {
	tb.Helper()
	h, err := policy.ParseHost(text)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

const limit = 16 << 10

func TestReadHello(t *testing.T) {
	with := func(names ...string) string { return buildHello(helloSpec{names: names}) }
	message := append([]byte{handshakeHello}, prefixed(3, helloBody(helloSpec{names: []string{"a.example"}}))...)
	valid := string(records(message, maxRecord))
	for _, c := range []struct {
		name, target, hello string
		want                HelloVerdict
		sni                 string
	}{
		{"same name", "a.example", with("a.example"), HelloOK, "a.example"},
		{"case", "a.example", with("A.ExAmPlE"), HelloOK, "A.ExAmPlE"},
		{"other name", "a.example", with("b.example"), HelloMismatch, "b.example"},
		{"name below", "a.example", with("x.a.example"), HelloMismatch, "x.a.example"},
		{"name above", "x.a.example", with("a.example"), HelloMismatch, "a.example"},
		{"suffix without a dot", "a.example", with("evila.example"), HelloMismatch, "evila.example"},
		{"root dot", "a.example", with("a.example."), HelloMismatch, "a.example."},
		{"NUL", "a.example", with("a.example\x00.b.example"), HelloMismatch, "a.example\x00.b.example"},
		{"blank", "a.example", with("a.example "), HelloMismatch, "a.example "},
		{"Kelvin sign folds to k", "k.example", with("\u212a.example"), HelloMismatch, "\u212a.example"},
		{"long s folds to s", "s.example", with("\u017f.example"), HelloMismatch, "\u017f.example"},
		{"full-width dot", "a.example", with("a\uff0eexample"), HelloMismatch, "a\uff0eexample"},
		{"IPv4 in the name", "a.example", with("140.82.112.5"), HelloMismatch, "140.82.112.5"},
		{"empty name", "a.example", with(""), HelloMalformed, ""},
		{"no name", "a.example", buildHello(helloSpec{}), HelloNoName, ""},
		{"no name for an address", "192.0.2.7", buildHello(helloSpec{}), HelloOK, ""},
		{"the address itself as name", "192.0.2.7", with("192.0.2.7"), HelloOK, "192.0.2.7"},
		{"a name for an address", "192.0.2.7", with("a.example"), HelloMismatch, "a.example"},
		{"two names in the list", "a.example", with("a.example", "b.example"), HelloMalformed, "a.example"},
		{"the same name twice", "a.example", with("a.example", "a.example"), HelloMalformed, "a.example"},
		{"two server_name extensions", "a.example", buildHello(helloSpec{names: []string{"a.example"}, after: nameExtension("b.example")}), HelloMalformed, ""},
		{"the other one first", "a.example", buildHello(helloSpec{extra: nameExtension("b.example"), names: []string{"a.example"}}), HelloMalformed, ""},
		{"unknown name type", "a.example", buildHello(helloSpec{extra: extension(extensionName, prefixed(2, append([]byte{1}, prefixed(2, []byte("a.example"))...)))}), HelloMalformed, ""},
		{"bytes after the list", "a.example", buildHello(helloSpec{extra: extension(extensionName, append(nameExtension("a.example")[4:], 'x'))}), HelloMalformed, ""},
		{"server_name without a list", "a.example", buildHello(helloSpec{extra: extension(extensionName, nil)}), HelloMalformed, ""},
		{"extension longer than the rest", "a.example", buildHello(helloSpec{after: []byte{0, 99, 255, 255}}), HelloMalformed, ""},
		{"beyond byte 1024", "a.example", buildHello(helloSpec{names: []string{"a.example"}, variant: "sni_after_1024"}), HelloOK, "a.example"},
		{"oversize", "a.example", buildHello(helloSpec{names: []string{"a.example"}, variant: "oversize"}), HelloTooLarge, ""},
		{"two records", "a.example", buildHello(helloSpec{names: []string{"a.example"}, variant: "two_records"}), HelloOK, "a.example"},
		{"two records, other name", "a.example", buildHello(helloSpec{names: []string{"b.example"}, variant: "two_records"}), HelloMismatch, "b.example"},
		{"many records", "a.example", string(records(message, 4)), HelloMalformed, ""},
		{"header split over records", "a.example", string(append(records(message[:2], 2), records(message[2:], maxRecord)...)), HelloOK, "a.example"},
		{"a second message behind it", "a.example", string(records(append(slices.Clip(message), message...), maxRecord)), HelloMalformed, ""},
		{"another handshake message", "a.example", string(records(append([]byte{2}, message[1:]...), maxRecord)), HelloNotTLS, ""},
		{"alert first", "a.example", "\x15\x03\x01\x00\x02\x01\x00" + valid, HelloNotTLS, ""},
		{"alert between", "a.example", string(records(message[:20], 20)) + "\x15\x03\x01\x00\x02\x01\x00" + string(records(message[20:], maxRecord)), HelloNotTLS, ""},
		{"empty record", "a.example", "\x16\x03\x01\x00\x00" + valid, HelloMalformed, ""},
		{"SSL 2", "a.example", "\x80\x2e\x01\x00\x02", HelloNotTLS, ""},
		{"version 2 in the record", "a.example", "\x16\x02\x00\x00\x01", HelloNotTLS, ""},
		{"HTTP", "a.example", "GET / HTTP/1.1\r\n", HelloNotTLS, ""},
		{"SSH", "a.example", "SSH-2.0-x\r\n", HelloNotTLS, ""},
		{"huge message length", "a.example", "\x16\x03\x01\x00\x04\x01\xff\xff\xff", HelloTooLarge, ""},
		{"record longer than TLS allows", "a.example", "\x16\x03\x01\x40\x01", HelloMalformed, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, sni, more := readHello([]byte(c.hello), host(t, c.target), limit)
			if v != c.want || sni != c.sni || more {
				t.Errorf("got %v %q more=%v, want %v %q", v, sni, more, c.want, c.sni)
			}
		})
	}
}

// Every way of cutting a hello must lead to the verdict of the whole one, and
// nothing but the whole one may lead to HelloOK.
func TestReadHelloIncomplete(t *testing.T) {
	target := host(t, "a.example")
	for _, hello := range []string{
		buildHello(helloSpec{names: []string{"a.example"}}),
		buildHello(helloSpec{names: []string{"b.example"}}),
		buildHello(helloSpec{names: []string{"a.example"}, variant: "two_records"}),
		buildHello(helloSpec{names: []string{"a.example"}, variant: "sni_after_1024"}),
		buildHello(helloSpec{}),
	} {
		for i := 1; i < len(hello); i++ {
			if v, _, more := readHello([]byte(hello[:i]), target, limit); v.Refuses() || !more {
				t.Fatalf("%d of %d bytes: %v, more=%v", i, len(hello), v, more)
			}
		}
	}
}

func TestReadHelloOfRealClients(t *testing.T) {
	target := host(t, "a.example")
	for name, c := range map[string]struct {
		config *tls.Config
		want   HelloVerdict
	}{
		"TLS 1.3 with a post-quantum share": {&tls.Config{ServerName: "a.example", CurvePreferences: []tls.CurveID{tls.X25519MLKEM768, tls.X25519}}, HelloOK},
		"TLS 1.2":                           {&tls.Config{ServerName: "a.example", MaxVersion: tls.VersionTLS12}, HelloOK},
		"another name":                      {&tls.Config{ServerName: "b.example"}, HelloMismatch},
		"an address, so no name":            {&tls.Config{ServerName: "192.0.2.1"}, HelloNoName},
		"ECH with a foreign outer name":     {&tls.Config{ServerName: "a.example", MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: echConfig(t, "front.example")}, HelloMismatch},
		"ECH whose outer name is the host":  {&tls.Config{ServerName: "hidden.example", MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: echConfig(t, "a.example")}, HelloOK},
	} {
		t.Run(name, func(t *testing.T) {
			hello := realHello(t, c.config)
			v, sni, more := readHello(hello, target, limit)
			if v != c.want || more {
				t.Errorf("%d bytes: got %v %q more=%v, want %v", len(hello), v, sni, more, c.want)
			}
			if strings.HasPrefix(name, "TLS 1.3") && len(hello) <= 1024 {
				t.Errorf("the hello has only %d bytes", len(hello))
			}
		})
	}
}

// What the parser takes for a.example, crypto/tls must take for it too: a server
// that sees another name is the whole attack.
func FuzzReadHello(f *testing.F) {
	for _, c := range readCorpus(f) {
		if c.SNI != nil {
			f.Add([]byte(buildHello(helloSpec{names: []string{*c.SNI}, variant: c.Variant})), 3)
		}
	}
	f.Add([]byte(buildHello(helloSpec{names: []string{"a.example"}})), 40)
	f.Add([]byte(buildHello(helloSpec{names: []string{"a.example", "b.example"}})), 1)
	f.Add(realHello(f, &tls.Config{ServerName: "a.example"}), 1000)
	target := host(f, "a.example")
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		v, name, more := readHello(b, target, limit)
		if more && v.Refuses() {
			t.Fatalf("refused with %v and wants more", v)
		}
		if more && len(b) > limit+recordHeader {
			t.Fatalf("wants more after %d bytes", len(b))
		}
		if cut = min(max(cut, 0), len(b)); cut > 0 && !more && v == HelloOK {
			// A part of a good hello is never refused.
			if part, _, _ := readHello(b[:cut], target, limit); part.Refuses() {
				t.Fatalf("%d bytes of it: %v", cut, part)
			}
		}
		if v != HelloOK || more {
			return
		}
		if !strings.EqualFold(name, "a.example") {
			t.Fatalf("accepted the name %q", name)
		}
		if seen, ok := serverSees(b); ok && !strings.EqualFold(seen, "a.example") {
			t.Fatalf("crypto/tls reads the name %q", seen)
		}
	})
}

// oneWay is a connection that gives recorded bytes and swallows the answers.
type oneWay struct {
	net.Conn
	in *bytes.Reader
}

func (o oneWay) Read(b []byte) (int, error)       { return o.in.Read(b) }
func (o oneWay) Write(b []byte) (int, error)      { return len(b), nil }
func (o oneWay) Close() error                     { return nil }
func (o oneWay) SetDeadline(time.Time) error      { return nil }
func (o oneWay) SetWriteDeadline(time.Time) error { return nil }

// serverSees gives the name that crypto/tls reads from a hello, false when it
// does not get that far.
func serverSees(hello []byte) (name string, ok bool) {
	config := &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = h.ServerName, true
		return nil, io.EOF
	}}
	_ = tls.Server(oneWay{in: bytes.NewReader(hello)}, config).Handshake() // ends in GetConfigForClient or before
	return name, ok
}
