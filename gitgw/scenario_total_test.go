package gitgw_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"postern/gitgw"
	"postern/integration/fakegithub"
)

// slowly sends a push of which send sends the last bytes, and gives what is answered.
func (w *world) slowly(ref string, last int, send func(conn net.Conn, rest string)) string {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.Trim(strings.TrimPrefix(w.url, "http://"), "/"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	body := w.creation(ref)
	cut := len(body) - last
	_, err = fmt.Fprintf(conn, "POST /github.com/acme/app.git/git-receive-pack HTTP/1.1\r\nHost: git.internal\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:cut])
	if err != nil {
		w.t.Fatal(err)
	}
	send(conn, body[cut:])
	said, _ := io.ReadAll(conn)
	return string(said)
}

// A push that takes too long is told so, wherever it is by then, and never taken for one
// whose client has gone.
func TestTotal(t *testing.T) {
	t.Parallel()
	const said = "the push took longer than 400ms"
	short := func(w *world) { w.gateway.Limits.Total = 400 * time.Millisecond }
	refused := func(t *testing.T, w *world) {
		t.Helper()
		if rec := w.waitRecord(); rec.Outcome != gitgw.Refused || rec.Code != gitgw.CodeTooLong || !strings.HasSuffix(rec.Reason, said) || rec.ClientGone {
			t.Errorf("record: %+v", rec)
		}
	}
	late := func(conn net.Conn, rest string) {
		time.Sleep(800 * time.Millisecond)
		_, _ = io.WriteString(conn, rest)
	}
	for name, rule := range map[string]option{"kept": noSecrets, "streamed": allowAll} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, rule, short)
			if got := w.slowly("refs/heads/late", 10, late); !strings.Contains(got, "ng refs/heads/late Control Center: "+said+"\n") || !strings.Contains(got, "push less at a time") {
				t.Errorf("%q", got)
			}
			refused(t, w)
			w.wantRef("refs/heads/late", "")
		})
		t.Run(name+", and never all of it", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, rule, short, func(w *world) { w.gateway.Limits.Stall = time.Second })
			w.commitBlob(100 << 10)
			got := w.slowly("refs/heads/late", 100<<10, func(conn net.Conn, rest string) {
				// It does not stall, and has a great deal to send.
				for ; rest != ""; rest = rest[50:] {
					if _, err := io.WriteString(conn, rest[:50]); err != nil || len(rest) < 100 {
						return
					}
					time.Sleep(20 * time.Millisecond)
				}
			})
			if strings.Contains(got, "ok refs/heads/late") {
				t.Errorf("%q", got)
			}
			if rec := w.waitRecord(); rec.Code != gitgw.CodeTooLong || rec.Duration > 5*time.Second {
				t.Errorf("record: %+v", rec)
			}
			w.wantRef("refs/heads/late", "")
		})
	}
	t.Run("waiting for its turn", func(t *testing.T) {
		t.Parallel()
		var n gitgw.Inspections
		w := looking(t, &n, nil, short)
		leave := n.Hold("s1")
		w.git("push", "origin", "main:x").want(t, 1, "(Control Center: "+said+")", "remote: Control Center: push less at a time")
		refused(t, w)
		leave()
		nothingLeft(t, &n)
	})
	t.Run("the forge has it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, allowAll, short)
		w.hub.SetFaults(fakegithub.Faults{HoldPush: true})
		w.git("push", "origin", "main:x").want(t, 1, "Control Center: "+said+"; fetch to see whether the push arrived")
		if rec := w.record(); rec.Outcome != gitgw.Unknown || rec.Code != gitgw.CodeUnknown || !strings.Contains(rec.Reason, said) {
			t.Errorf("record: %+v", rec)
		}
	})
	t.Run("the forge reports", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, allowAll, func(w *world) { w.gateway.Limits.Total = time.Second })
		w.hub.SetFaults(fakegithub.Faults{SlowReport: 20 * time.Second})
		w.git("push", "origin", "main:x").want(t, 1, "Control Center: the push took longer than 1s; fetch to see whether the push arrived")
		if rec := w.record(); rec.Outcome != gitgw.Unknown || rec.Code != gitgw.CodeUnknown || !strings.Contains(rec.Reason, "longer than 1s") {
			t.Errorf("record: %+v", rec)
		}
	})
	t.Run("an object of Git LFS", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, allowAll, short)
		up, _ := w.lfsOpen("late object")
		from, to := io.Pipe()
		go func() {
			_, _ = io.WriteString(to, "late ")
			time.Sleep(800 * time.Millisecond)
			_, _ = io.WriteString(to, "object")
			_ = to.Close()
		}()
		if status, got := w.lfsSend("PUT", up[0], from, int64(len("late object"))); status != 408 || !strings.Contains(got, "Git LFS: the upload took longer than 400ms; push less at a time") {
			t.Errorf("%d %s", status, got)
		}
		_ = w.gateway.Close()
	})
}
