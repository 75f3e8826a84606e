package main

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// socksServer answers one connection: reply is what follows the greeting.
func socksServer(t *testing.T, hello, reply string, then func(net.Conn)) (url string, request <-chan string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	got := make(chan string, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.ReadFull(c, make([]byte, 3))
		if hello == "" {
			return
		}
		_, _ = io.WriteString(c, hello)
		buf := make([]byte, 512)
		n, _ := c.Read(buf)
		got <- string(buf[:n])
		_, _ = io.WriteString(c, reply)
		if then != nil {
			then(c)
		}
	}()
	return "socks5h://" + ln.Addr().String(), got
}

func TestConnect(t *testing.T) {
	for _, tc := range []struct{ host, port, request, reply string }{
		{"git.example", "22", "\x05\x01\x00\x03\x0bgit.example\x00\x16", "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"},
		{"192.0.2.1", "443", "\x05\x01\x00\x01\xc0\x00\x02\x01\x01\xbb", "\x05\x00\x00\x04" + strings.Repeat("\x00", 18)},
		{"2001:db8::1", "65535", "\x05\x01\x00\x04\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01\xff\xff", "\x05\x00\x00\x03\x03abc\x00\x00"},
	} {
		t.Run(tc.host, func(t *testing.T) {
			url, request := socksServer(t, "\x05\x00", tc.reply, func(c net.Conn) {
				_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
				// The client has finished, we have not: half-close.
				data, _ := io.ReadAll(c)
				_, _ = c.Write(bytes.ToUpper(data))
			})
			var out bytes.Buffer
			if err := connect(url, tc.host, tc.port, strings.NewReader("hello"), &out); err != nil {
				t.Fatal(err)
			}
			if got := <-request; got != tc.request {
				t.Errorf("request %q, want %q", got, tc.request)
			}
			if out.String() != "SSH-2.0-x\r\nHELLO" {
				t.Errorf("got %q", out.String())
			}
		})
	}
}

func TestConnectFails(t *testing.T) {
	for _, tc := range []struct{ name, hello, reply, says string }{
		{"denied", "\x05\x00", "\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00", "do not retry another way"},
		{"refused", "\x05\x00", "\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00", "refused the connection"},
		{"a code nobody knows", "\x05\x00", "\x05\x63\x00\x01\x00\x00\x00\x00\x00\x00", "99"},
		{"it wants a password", "\x05\x02", "", "password"},
		{"it is no SOCKS proxy", "HTTP/1.1 400", "", "no SOCKS5"},
		{"it says nothing", "", "", "greet"},
		{"it hangs up", "\x05\x00", "\x05", "ask"},
		{"half an address", "\x05\x00", "\x05\x00\x00\x04\x00", "ask"},
		{"another kind of address", "\x05\x00", "\x05\x00\x00\x09", "kind 9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url, _ := socksServer(t, tc.hello, tc.reply, nil)
			done := make(chan error, 1)
			go func() { done <- connect(url, "host.example", "22", strings.NewReader(""), io.Discard) }()
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("got %v, want something with %q", err, tc.says)
				}
			case <-time.After(10 * time.Second):
				t.Error("it hangs")
			}
		})
	}
	for _, tc := range []struct{ url, host, port string }{
		{"", "h", "22"},
		{"127.0.0.1:1080", "h", "22"},
		{"socks5h://127.0.0.1:1", "", "22"},
		{"socks5h://127.0.0.1:1", strings.Repeat("x", 256), "22"},
		{"socks5h://127.0.0.1:1", "h", "0"},
		{"socks5h://127.0.0.1:1", "h", "65536"},
		{"socks5h://127.0.0.1:1", "h", "ssh"},
	} {
		if err := connect(tc.url, tc.host, tc.port, strings.NewReader(""), io.Discard); err == nil {
			t.Errorf("connect(%q, %.10q, %q) succeeded", tc.url, tc.host, tc.port)
		}
	}
}
