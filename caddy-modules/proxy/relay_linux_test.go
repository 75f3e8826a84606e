package proxy

import (
	"bytes"
	"os"
	"testing"
)

func openFiles(tb testing.TB) int {
	tb.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		tb.Skip("no /proc to count descriptors in")
	}
	return len(list)
}

// An idle tunnel holds its two sockets and nothing else: no pipe, although bulk
// went through it before.
func TestRelayIdleHoldsNothing(t *testing.T) {
	const tunnels = 40
	var all []ends
	w := quietWatch(t)
	done := make(chan struct{}, tunnels)
	for range tunnels {
		a, b := tcpPair(t)
		c, d := tcpPair(t)
		all = append(all, ends{a, b, c, d})
		go func() {
			_, _, _ = relay(b, c, w, atOnce)
			done <- struct{}{}
		}()
	}
	before := openFiles(t)
	data := random(t, 2<<20)
	for _, e := range all {
		got := goResult(func() []byte { return readN(e.upstream, len(data)) })
		if _, err := e.client.Write(data); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(<-got, data) {
			t.Fatal("other bytes went up")
		}
	}
	// The pipes that are kept for all tunnels may be there.
	if after := openFiles(t); after > before+2*cap(pipes) {
		t.Errorf("%d descriptors became %d over %d idle tunnels", before, after, tunnels)
	}
	for _, e := range all {
		_ = e.client.Close()
		_ = e.upstream.Close()
	}
	for range tunnels {
		<-done
	}
}
