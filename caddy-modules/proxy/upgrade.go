package proxy

import (
	"errors"
	"net/http"
	"strings"
	"time"
)

// checkSwitch lets an upstream switch to what was asked for and to nothing else.
func (x *exchange) checkSwitch(resp *http.Response) error {
	up := resp.Header["Upgrade"]
	if !x.f.req.upgrade || len(up) != 1 || !strings.EqualFold(up[0], "websocket") || !lists(resp.Header["Connection"], "Upgrade") {
		return errors.New("it switches to a protocol that was not asked for")
	}
	return nil
}

// switchProtocols passes the 101 on and relays what follows as a tunnel. Bytes
// that either side sent ahead come first.
func (x *exchange) switchProtocols(resp *http.Response) {
	f := x.f
	if f.inside == nil { // a tunnel is counted already
		f.s.count.tunnels.Add(1)
		f.s.count.openTunnels.Add(1)
		defer f.s.count.openTunnels.Add(-1)
	}
	x.end() // from here on it is a tunnel, which is counted as one
	f.mu.Lock()
	x.up.tunnel = true
	f.mu.Unlock()
	x.cause = CauseError
	b := appendStatus(x.out[:0], resp)
	b = x.appendFields(b, resp)
	b = append(b, "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"...)
	ahead, err := x.up.in.Peek(x.up.in.Buffered())
	if err != nil {
		return
	}
	down := int64(len(ahead))
	if _, err := f.client.Write(append(b, ahead...)); err != nil {
		return
	}
	_ = f.client.SetDeadline(time.Time{})
	x.bytesUp, x.bytesDown, x.cause = f.exchangeBytes(x.up.route, nil)
	x.bytesDown += down
}
