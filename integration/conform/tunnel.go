package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// probe is what a tunnel to another port than 443 carries.
const probe = "conform: is anybody there?\n"

// payload is what the case's tunnel carries: what follows the request in the
// input, which is sent with it; a ClientHello for port 443, or where the case
// names one; else a probe. early says that it goes out together with the
// request.
func (c *testCase) payload() (plan helloPlan, early bool) {
	if c.Proto == "connect" && len(c.ExpectSeq) == 0 {
		if i := headEnd(c.Input); i > 0 && i < len(c.Input) {
			return helloPlan{pieces: [][]byte{[]byte(c.Input[i:])}}, false
		}
	}
	ts := c.targets()
	if c.SNI == nil && c.TLSVariant == "" && (len(ts) == 0 || ts[len(ts)-1].port != 443) {
		return helloPlan{pieces: [][]byte{[]byte(probe)}}, false
	}
	name := ""
	if len(ts) > 0 {
		name = ts[len(ts)-1].name()
	}
	if c.SNI != nil {
		name = *c.SNI
	}
	plan, _ = planHello(c.TLSVariant, name) // todo has asked
	return plan, plan.early
}

// tunnel sends the payload through an open tunnel and sees what becomes of it:
// relayed there and back, or cut before a byte got through.
func (w *world) tunnel(ctx context.Context, c *testCase, conn *client, info sessionInfo, plan helloPlan, early bool, o *outcome) error {
	inInput := c.Proto == "connect" && len(c.ExpectSeq) == 0 && headEnd(c.Input) < len(c.Input)
	if plan.late {
		time.Sleep(helloTimeout + time.Second)
	}
	if !early && !inInput {
		go func() {
			for _, p := range plan.pieces {
				if _, err := conn.Write(p); err != nil {
					return
				}
				time.Sleep(plan.pause)
			}
		}()
	}
	return w.relayed(ctx, c, conn, info, plan.bytes(), o)
}

// relayed waits for the payload to come back, and judges.
func (w *world) relayed(ctx context.Context, c *testCase, conn *client, info sessionInfo, payload []byte, o *outcome) error {
	got := make([]byte, len(payload))
	_ = conn.SetReadDeadline(time.Now().Add(wait))
	n, err := io.ReadFull(conn.r, got)
	got = got[:n]
	switch {
	case err == nil && bytes.Equal(got, payload):
	case lost(err) == "no answer":
		o.tunnel = true
		o.add("silence", "%d of %d bytes came back, and the tunnel is still open", n, len(payload))
		return nil
	case n == 0 || isAlert(got) && err != nil:
		// Cut before anything got through: a refusal of what the tunnel was to
		// carry. TLS clients may be told so in their own language.
		o.tunnel = true
		o.add(deny, "the tunnel was opened, then %s", lost(err))
		return nil
	default:
		o.add("broken relay", "%d bytes went, %x came back, then %v", len(payload), got[:min(n, 32)], err)
		return nil
	}
	arrived := false
	for _, oc := range w.origins.seen() {
		arrived = arrived || bytes.Equal(oc.bytes(), payload)
	}
	if !arrived {
		o.fault("the origin did not get the bytes as they were sent")
	}
	switch c.Timing {
	case timingIdle:
		return w.idle(c, conn, o)
	case timingRevoke:
		return w.revoke(ctx, c, conn, info, o)
	}
	o.add(allow, "relayed")
	return nil
}

// isAlert reports whether this is one TLS alert record, in clear (RFC 8446
// section 6), and nothing else.
func isAlert(p []byte) bool {
	return len(p) == 7 && p[0] == 21 && p[1] == 3 && p[3] == 0 && p[4] == 2
}

// idle wants the silent tunnel to be closed at the idle limit and to be gone
// from the session.
func (w *world) idle(c *testCase, conn *client, o *outcome) error {
	begin := time.Now()
	_ = conn.SetReadDeadline(begin.Add(idleTimeout + 4*time.Second))
	if _, err := conn.r.ReadByte(); lost(err) == "no answer" {
		o.fault("the tunnel was still open %s after its last byte", time.Since(begin).Round(time.Second))
	}
	for deadline := time.Now().Add(time.Second); ; time.Sleep(20 * time.Millisecond) {
		s, err := w.app.session(c.policyName())
		if err != nil {
			return fmt.Errorf("look at the session: %w", err)
		}
		if s.Tunnels == 0 {
			break
		}
		if time.Now().After(deadline) {
			o.fault("the session still counts %d tunnels", s.Tunnels)
			break
		}
	}
	o.add(allow, "relayed, then closed")
	return nil
}

// revoke takes the rules away while the tunnel is open. It must be cut, and the
// next one refused.
func (w *world) revoke(ctx context.Context, c *testCase, conn *client, info sessionInfo, o *outcome) error {
	if err := w.reload(c); err != nil {
		return err
	}
	_ = conn.SetReadDeadline(time.Now().Add(idleTimeout - time.Second)) // before idleness would do it
	_, err := conn.r.ReadByte()
	cut := lost(err) != "no answer"
	// The request again, on a fresh connection.
	again, done, err := w.connect(ctx, info.HTTP)
	if err != nil {
		return err
	}
	defer done()
	again.send([]byte(c.Input), false)
	resp, err := again.read(http.MethodConnect, nil)
	if err != nil {
		o.fault("the next request: %s", lost(err))
	} else if v, how := classify(resp); v != deny {
		o.fault("the next request got %s", how)
	}
	if err := w.reload(nil); err != nil {
		return err
	}
	if !cut {
		o.add(allow, "the tunnel outlived its rule")
		return nil
	}
	o.tunnel = true
	w.origins.reset("") // what went through while it was allowed
	o.add(deny, "the tunnel was cut")
	return nil
}

// echoes sends bytes and wants them back.
func echoes(conn *client, p []byte) error {
	if _, err := conn.Write(p); err != nil {
		return err
	}
	got := make([]byte, len(p))
	_ = conn.SetReadDeadline(time.Now().Add(wait))
	if _, err := io.ReadFull(conn.r, got); err != nil {
		return err
	}
	if !bytes.Equal(got, p) {
		return fmt.Errorf("sent %q, got %q", p, got)
	}
	return nil
}

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
