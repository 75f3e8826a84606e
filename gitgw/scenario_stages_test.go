package gitgw_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"postern/gitgw"
)

// soonEnough is how long a push may take to fail whose other side is gone.
const soonEnough = 10 * time.Second

// A client that dies, or stalls, at each stage of its push: nothing arrives, nothing
// hangs, no token is left (see checkEnd).
func TestClientAtEachStage(t *testing.T) {
	t.Parallel()
	for _, stage := range []struct {
		name string
		cut  func(body string) int
	}{
		{"before its body", func(string) int { return 0 }},
		{"inside a length", func(string) int { return 2 }},
		{"inside an id", func(string) int { return 60 }},
		{"inside a name", func(body string) int { return strings.Index(body, "half") + 2 }},
		{"inside the capabilities", func(body string) int { return strings.Index(body, "agent=") + 3 }},
		{"before the flush", func(body string) int { return strings.Index(body, "0000PACK") }},
		{"before the pack", func(body string) int { return strings.Index(body, "PACK") }},
		{"inside the pack's header", func(body string) int { return strings.Index(body, "PACK") + 6 }},
		{"after the pack's header", func(body string) int { return strings.Index(body, "PACK") + 12 }},
		{"inside the pack", func(body string) int { return len(body) - 40 }},
		{"before the last byte", func(body string) int { return len(body) - 1 }},
	} {
		for _, dies := range []bool{true, false} {
			name := stage.name + ", stalling"
			if dies {
				name = stage.name + ", dying"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, allowAll, func(w *world) { w.gateway.Limits.Stall = 500 * time.Millisecond })
				started := time.Now()
				conn := w.half(stage.cut)
				defer func() { _ = conn.Close() }()
				if dies {
					_ = conn.Close()
				} else {
					_ = conn.SetReadDeadline(time.Now().Add(2 * soonEnough))
					if said, err := io.ReadAll(conn); errors.Is(err, context.DeadlineExceeded) || strings.Contains(string(said), "ok refs/heads/half") {
						t.Errorf("%v %q", err, said)
					}
				}
				if r := w.waitRecord(); r.Outcome != gitgw.Aborted && r.Outcome != gitgw.Malformed {
					t.Errorf("record: %+v", r)
				}
				if took := time.Since(started); took > soonEnough {
					t.Errorf("took %s", took)
				}
				w.wantRef("refs/heads/half", "")
			})
		}
	}
}

// A client that takes none of its report is given up too, and the push stands.
func TestClientReadsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll, func(w *world) { w.gateway.Limits.Stall = 500 * time.Millisecond })
	conn := w.half(func(body string) int { return len(body) })
	defer func() { _ = conn.Close() }()
	if r := w.waitRecord(); r.Outcome != gitgw.Accepted || !r.Revoked {
		t.Errorf("record: %+v", r)
	}
	w.wantRef("refs/heads/half", w.head("main"))
}

var errForge = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}

// faultyForge reaches the real forge and breaks at one place, or stalls there.
type faultyForge struct {
	rt     http.RoundTripper
	stage  string
	stalls bool
	size   int64 // of the push's body
	hit    atomic.Bool
}

// stop is what happens at the stage: an error, at once or when the patience of the
// gateway is at its end.
func (f *faultyForge) stop(ctx context.Context) error {
	f.hit.Store(true)
	if f.stalls {
		<-ctx.Done()
		return ctx.Err()
	}
	return errForge
}

func (f *faultyForge) RoundTrip(req *http.Request) (*http.Response, error) {
	where := "listing"
	switch {
	case strings.HasSuffix(req.URL.Path, "/git-receive-pack"):
		where = "push"
	case strings.Contains(req.URL.RawQuery, "git-receive-pack"):
		where = "preflight"
	}
	if f.stage == where {
		return nil, f.stop(req.Context())
	}
	if f.stage == where+" answer" {
		resp, err := f.rt.RoundTrip(req)
		if err == nil {
			resp.Body = &brokenBody{f: f, ctx: req.Context(), rc: resp.Body, left: 10}
		}
		return resp, err
	}
	if where != "push" {
		return f.rt.RoundTrip(req)
	}
	switch f.stage {
	case "first byte", "half the pack", "last byte":
		left := map[string]int64{"first byte": 1, "half the pack": f.size / 2, "last byte": f.size}[f.stage]
		req = req.Clone(req.Context())
		req.Body = &brokenBody{f: f, ctx: req.Context(), rc: req.Body, left: left}
		if f.stage == "last byte" {
			// It has everything, and is gone before its first word.
			_, err := io.Copy(io.Discard, req.Body)
			_ = req.Body.Close()
			if err == nil || !f.hit.Load() {
				err = f.stop(req.Context())
			}
			return nil, err
		}
		return f.rt.RoundTrip(req)
	}
	resp, err := f.rt.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	left := map[string]int64{"after the status": 0, "inside the report": 20, "before the last flush": 1 << 20}[f.stage]
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	left = min(left, int64(len(body))-4)
	resp.Body = &brokenBody{f: f, ctx: req.Context(), rc: io.NopCloser(bytes.NewReader(body)), left: left}
	return resp, nil
}

// brokenBody breaks after some bytes.
type brokenBody struct {
	f    *faultyForge
	ctx  context.Context // of the request it belongs to
	rc   io.ReadCloser
	left int64
}

func (b *brokenBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, b.f.stop(b.ctx)
	}
	n, err := b.rc.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

func (b *brokenBody) Close() error { return b.rc.Close() }

// A forge that dies, or falls silent, at each stage: git ends, and where the gateway can
// still speak git does not say that everything is up to date.
func TestForgeAtEachStage(t *testing.T) {
	t.Parallel()
	for _, stage := range []struct {
		name string
		code int
		mute bool // the answer has begun: only a broken connection says that it is not whole
	}{
		{"listing", 128, false},
		{"listing answer", 128, false},
		{"preflight", 1, false},
		{"preflight answer", 1, false},
		{"push", 1, false},
		{"first byte", 1, false},
		{"half the pack", 1, false},
		{"last byte", 1, false},
		{"after the status", 1, true},
		{"inside the report", 1, true},
		{"before the last flush", 1, true},
	} {
		for _, stalls := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stalls %t", stage.name, stalls), func(t *testing.T) {
				t.Parallel()
				transport := &http.Transport{DisableCompression: true}
				forge := &faultyForge{rt: transport, stage: stage.name, stalls: stalls}
				w := newWorld(t, allowAll, func(w *world) {
					w.gateway.Transport = forge
					w.gateway.Limits.Upstream = time.Second
					w.gateway.Limits.Retry = []time.Duration{10 * time.Millisecond}
				})
				t.Cleanup(transport.CloseIdleConnections)
				w.commitBlob(256 << 10)
				forge.size = 256 << 10
				started := time.Now()
				r := w.git("push", "origin", "main:feat")
				if took := time.Since(started); took > soonEnough {
					t.Errorf("took %s", took)
				}
				if !forge.hit.Load() {
					t.Fatal("the forge never came to that")
				}
				r.want(t, stage.code)
				if !stage.mute {
					r.want(t, stage.code, "Control Center: ")
					r.lacks(t, "Everything up-to-date")
				}
				rec := w.waitRecord()
				switch {
				case rec.Outcome != gitgw.Failed && rec.Outcome != gitgw.Unknown:
					t.Errorf("record: %+v", rec)
				case rec.TokenID != "" && !rec.Revoked:
					t.Errorf("a token is left: %+v", rec)
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				if len(w.records) != 1 {
					t.Errorf("%d records", len(w.records))
				}
			})
		}
	}
}
