package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"
)

// socksAnswers names the reply field of RFC 1928 section 6.
var socksAnswers = map[byte]string{
	0: "succeeded", 1: "general failure", 2: "not allowed by ruleset", 3: "network unreachable", 4: "host unreachable",
	5: "connection refused", 6: "TTL expired", 7: "command not supported", 8: "address type not supported",
}

// readReply reads a SOCKS5 reply to its end.
func (c *client) readReply() (verdict, string) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(c.r, head); err != nil {
		return fault, lost(err)
	}
	if head[0] != 5 {
		return fault, fmt.Sprintf("an answer of version %d", head[0])
	}
	size := 4
	switch head[3] {
	case 4:
		size = 16
	case 3:
		n, err := c.r.ReadByte()
		if err != nil {
			return fault, lost(err)
		}
		size = int(n)
	}
	_, err := io.ReadFull(c.r, make([]byte, size+2))
	how := fmt.Sprintf("reply 0x%02x %s", head[1], socksAnswers[head[1]])
	switch {
	case head[1] == 0 && err == nil:
		return allow, how
	case head[1] == 2:
		return deny, how
	case head[1] >= 3 && head[1] <= 6:
		return unreached, how
	}
	return fault, how
}

// askSOCKS replays `socks5`: each part is sent when the server has answered the
// one before it, or all at once.
func (w *world) askSOCKS(ctx context.Context, c *testCase, info sessionInfo, o *outcome) error {
	var parts [][]byte
	for p := range strings.SplitSeq(c.Input, "|") {
		raw, err := unhex(p)
		if err != nil {
			return err
		}
		parts = append(parts, raw)
	}
	conn, done, err := w.connect(ctx, info.SOCKS)
	if err != nil {
		return err
	}
	defer done()
	data := bytes.Join(parts[min(2, len(parts)):], nil) // of the tunnel
	plan, early := c.payload()
	payload := plan.bytes()
	switch {
	case len(data) > 0 && bytes.HasPrefix(payload, data):
		// The case shows the first bytes of a ClientHello, which cannot be judged
		// before it is whole: the rest follows.
	case len(data) > 0:
		payload, plan.pieces = data, [][]byte{data}
	}
	if c.Timing == timingPacket || early {
		conn.send(bytes.Join(parts, nil), false)
	} else {
		conn.send(parts[0], c.Timing == timingBytes)
	}
	_ = conn.SetReadDeadline(time.Now().Add(wait))
	method := make([]byte, 2)
	if _, err := io.ReadFull(conn.r, method); err != nil {
		o.add(fault, "%s", lost(err))
		return nil
	}
	if method[0] != 5 || method[1] != 0 {
		o.add(fault, "method answer %x", method)
		return nil
	}
	if len(parts) > 1 && c.Timing != timingPacket && !early {
		conn.send(parts[1], c.Timing == timingBytes)
	}
	v, how := conn.readReply()
	if v != allow {
		o.add(v, "%s", how)
		return nil
	}
	plan.pieces = [][]byte{payload}
	if c.Timing == timingPacket || early {
		// What the case itself holds of it has gone out already.
		plan.pieces = [][]byte{payload[len(data):]}
	}
	if plan.late {
		time.Sleep(helloTimeout + time.Second)
	}
	if fresh, ok := planHello(c.TLSVariant, ""); ok && fresh.pause > 0 {
		conn.send(plan.pieces[0], true)
	} else {
		conn.send(plan.pieces[0], false)
	}
	return w.relayed(ctx, c, conn, info, payload, o)
}

// matchSOCKS asks for a host, as the bytes it is, on port 443.
func (w *world) matchSOCKS(ctx context.Context, host string, info sessionInfo) (verdict, string, error) {
	conn, done, err := w.connect(ctx, info.SOCKS)
	if err != nil {
		return "", "", err
	}
	defer done()
	_ = conn.SetReadDeadline(time.Now().Add(wait))
	conn.send([]byte{5, 1, 0}, false)
	if _, err := io.ReadFull(conn.r, make([]byte, 2)); err != nil {
		return fault, lost(err), nil
	}
	req := append([]byte{5, 1, 0, 3, byte(len(host))}, host...)
	if a, err := netip.ParseAddr(host); err == nil && a.Is4() {
		req = append([]byte{5, 1, 0, 1}, a.AsSlice()...)
	}
	conn.send(append(req, 443>>8, 443&255), false)
	v, how := conn.readReply()
	return v, how, nil
}

// askSOCKS4 replays `socks4` and `socks4a`, which are not offered: any answer
// but "granted" is a refusal.
func (w *world) askSOCKS4(ctx context.Context, c *testCase, info sessionInfo, o *outcome) error {
	raw, err := unhex(strings.ReplaceAll(c.Input, "|", ""))
	if err != nil {
		return err
	}
	conn, done, err := w.connect(ctx, info.SOCKS)
	if err != nil {
		return err
	}
	defer done()
	conn.send(raw, c.Timing == timingBytes)
	_ = conn.SetReadDeadline(time.Now().Add(wait))
	answer := make([]byte, 8)
	n, err := io.ReadFull(conn.r, answer)
	switch {
	case n >= 2 && answer[0] == 0 && answer[1] == 0x5a:
		o.add(allow, "granted")
	case n >= 2:
		o.add(fault, "answer %x", answer[:n])
	default:
		o.add(fault, "%s", lost(err))
	}
	return nil
}
