package proxy

import (
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strings"
)

// socks sends the parts of the input, waiting where it says so.
func (c *corpusCase) socks(b *lab, input string) string {
	conn := b.connectTo(b.socks)
	parts := strings.Split(input, "|")
	var messages []string
	for _, part := range parts {
		raw, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(part), " ", ""))
		if err != nil {
			b.t.Fatal(err)
		}
		messages = append(messages, string(raw))
	}
	if c.Timing == "one_packet" {
		conn.send(strings.Join(messages, ""))
		messages = append(make([]string, len(messages)-1), messages[len(messages)-1])
	}
	if messages[0] != "" {
		conn.send(messages[0])
	}
	head := make([]byte, 2)
	if _, err := io.ReadFull(conn.in, head); err != nil || head[1] == 0xFF {
		return c.closed(b, conn)
	}
	if len(messages) > 1 && messages[1] != "" {
		conn.send(messages[1])
	}
	reply := make([]byte, 10)
	if _, err := io.ReadFull(conn.in, reply); err != nil {
		return c.closed(b, conn)
	}
	switch code := reply[1]; {
	case code == replyDenied:
		return verdictDeny
	case strings.Contains(c.Why, "reply 0x07") && code != 7, strings.Contains(c.Why, "reply 0x08") && code != 8:
		b.t.Errorf("reply %#x", code)
		return verdictError
	case code != replySucceeded:
		return verdictError
	}
	if len(messages) > 2 {
		// Three bytes of TLS are no ClientHello yet: the rest follows.
		authority := "api.github.com:443"
		hello := c.hello(authority)
		if !strings.HasPrefix(hello, messages[2]) {
			b.t.Fatalf("%x does not begin the hello", messages[2])
		}
		conn.send(hello[len(messages[2]):])
		conn.expect(hello)
		return verdictAllow
	}
	return c.inTunnel(b, conn, socksAuthority(messages[1]), "", "")
}

// socksAuthority reads the target of a well-formed request.
func socksAuthority(message string) string {
	t, _, err := readSocksRequest([]byte(message))
	if err != nil {
		return ""
	}
	return t.String()
}

// closed is the verdict of a SOCKS connection that ended: in good order, without
// a reset.
func (c *corpusCase) closed(b *lab, conn *client) string {
	if _, err := io.ReadAll(conn.in); err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			b.t.Error("not closed")
		} else {
			b.t.Errorf("not closed in good order: %v", err)
		}
	}
	return verdictError
}
