package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// probe is what a tunnel to another port than 443 carries.
const probe = "conform: is anybody there?\n"

// payload is what the case's tunnel carries: what follows the request in the
// input, which is sent with it; a ClientHello for ports 443 and 80, or where the
// case names one; else a probe. (A tunnel to port 80 carries HTTP, or TLS for its
// host, and nothing else unless the rule says so.) early says that it goes out together with the
// request.
func (c *testCase) payload() (plan helloPlan, early bool) {
	if c.Proto == "connect" && len(c.ExpectSeq) == 0 {
		if i := headEnd(c.Input); i > 0 && i < len(c.Input) {
			return helloPlan{pieces: [][]byte{[]byte(c.Input[i:])}}, false
		}
	}
	ts := c.targets()
	if c.SNI == nil && c.TLSVariant == "" && (len(ts) == 0 || (ts[len(ts)-1].port != 443 && ts[len(ts)-1].port != 80)) {
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
	if isRequest(payload) {
		return exchanged(conn, o)
	}
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
	if c.Timing == timingIdle {
		return w.idle(c, conn, o)
	}
	if c.Timing == timingRevoke {
		return w.revoke(ctx, c, conn, info, o)
	}
	o.add(allow, "relayed")
	return nil
}

// isRequest reports whether a tunnel's payload is plain HTTP.
func isRequest(payload []byte) bool {
	line, _, _ := bytes.Cut(payload, []byte("\r\n"))
	return bytes.HasSuffix(line, []byte(" HTTP/1.1")) || bytes.HasSuffix(line, []byte(" HTTP/1.0"))
}

// exchanged judges the answer to a plain request inside a tunnel.
func exchanged(conn *client, o *outcome) error {
	o.tunnel = true
	resp, err := conn.read(http.MethodGet, nil)
	if err != nil {
		o.add(deny, "the tunnel was opened, then %s", lost(err))
		return nil
	}
	v, how := classify(resp)
	o.add(v, "inside the tunnel: %s", how)
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
		s, err := w.app.session(c.sessionID())
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
