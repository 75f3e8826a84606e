package proxy

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// watched runs f with a watch whose time is that of the bubble, and gives what
// ended and when.
type watched struct {
	*watch
	begun time.Time
	ended atomic.Int64 // after begun, 0 while it has not
	cause atomic.Value
}

func (w *watched) end() { w.ended.Store(int64(time.Since(w.begun))) }

func (w *watched) endBy(c Cause) {
	w.cause.Store(c)
	w.end()
}

func (w *watched) endedAfter(t *testing.T, want time.Duration) {
	t.Helper()
	synctest.Wait()
	if got := time.Duration(w.ended.Load()); got != want {
		t.Errorf("ended after %v, want %v", got, want)
	}
}

func inBubble(t *testing.T, f func(t *testing.T, w *watched)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{watch: new(watch), begun: time.Now()}
		f(t, w)
		w.stop()
	})
}

func TestWatch(t *testing.T) {
	t.Run("a stage ends", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *watched) {
			t.Helper()
			w.begin(10*time.Second, w.end)
			time.Sleep(time.Minute)
			w.endedAfter(t, 10*time.Second)
		})
	})
	t.Run("touching a fixed stage changes nothing", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *watched) {
			t.Helper()
			w.begin(10*time.Second, w.end)
			for range 30 {
				time.Sleep(time.Second)
				w.touch()
			}
			w.endedAfter(t, 10*time.Second)
		})
	})
	t.Run("a longer stage", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *watched) {
			t.Helper()
			w.begin(10*time.Second, nil)
			time.Sleep(time.Second)
			w.stage(time.Minute, w.end)
			time.Sleep(time.Hour)
			w.endedAfter(t, 61*time.Second)
		})
	})
	t.Run("a shorter stage", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *watched) {
			t.Helper()
			w.begin(10*time.Second, nil)
			time.Sleep(time.Second)
			w.stage(time.Second, w.end)
			time.Sleep(time.Hour)
			w.endedAfter(t, 2*time.Second)
		})
	})
	t.Run("idle", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *watched) {
			t.Helper()
			w.begin(10*time.Second, nil)
			w.flowing(time.Minute, time.Hour, w.endBy)
			for range 10 {
				time.Sleep(50 * time.Second)
				w.touch()
			}
			time.Sleep(time.Hour)
			w.endedAfter(t, 560*time.Second)
			if w.cause.Load() != CauseIdle {
				t.Errorf("cause %v", w.cause.Load())
			}
		})
	})
	t.Run("total", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *watched) {
			t.Helper()
			w.begin(10*time.Second, nil)
			w.flowing(time.Minute, time.Hour, w.endBy)
			for range 3 * 60 * 60 {
				time.Sleep(time.Second)
				w.touch()
			}
			w.endedAfter(t, time.Hour)
			if w.cause.Load() != CauseTotal {
				t.Errorf("cause %v", w.cause.Load())
			}
		})
	})
	t.Run("idle off, total on", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *watched) {
			t.Helper()
			l := Limits{Idle: -1, Total: time.Hour}.withDefaults()
			w.begin(10*time.Second, nil)
			w.flowing(l.Idle, l.Total, w.endBy)
			time.Sleep(2 * time.Hour)
			w.endedAfter(t, time.Hour)
		})
	})
	t.Run("a late touch does not reach into the next stage", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *watched) {
			t.Helper()
			w.begin(10*time.Second, nil)
			w.flowing(time.Hour, 2*time.Hour, nil)
			w.stage(time.Second, w.end)
			w.touch()
			time.Sleep(time.Minute)
			w.endedAfter(t, time.Second)
		})
	})
	t.Run("a stage after one that ended", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *watched) {
			t.Helper()
			w.begin(time.Second, nil)
			time.Sleep(time.Minute)
			w.stage(5*time.Second, w.end)
			time.Sleep(time.Minute)
			w.endedAfter(t, 65*time.Second)
		})
	})
	t.Run("stopped", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *watched) {
			t.Helper()
			w.begin(time.Second, w.end)
			w.stop()
			w.stage(time.Second, w.end)
			time.Sleep(time.Hour)
			w.endedAfter(t, 0)
		})
	})
	t.Run("settled once, at the first firing", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *watched) {
			t.Helper()
			var settled []time.Duration
			w.settled = func() { settled = append(settled, time.Since(w.begun)) }
			w.begin(10*time.Second, nil)
			w.flowing(time.Minute, time.Hour, w.endBy)
			time.Sleep(2 * time.Hour)
			synctest.Wait()
			if len(settled) != 1 || settled[0] != 10*time.Second {
				t.Errorf("settled at %v", settled)
			}
		})
	})
}

func TestLimits(t *testing.T) {
	l := Limits{}.withDefaults()
	for name, d := range map[string]time.Duration{
		"Header": l.Header, "KeepAlive": l.KeepAlive, "Hello": l.Hello, "Dial": l.Dial, "Idle": l.Idle, "Total": l.Total,
	} {
		if d <= 0 || d > 24*time.Hour {
			t.Errorf("%s is %v by default", name, d)
		}
	}
	if l.RequestLine != 8<<10 || l.HeaderBlock != 32<<10 || l.HelloSize != 16<<10 || int64(l.Conns) != min(16384, allSeats().most/2) {
		t.Errorf("%+v", l)
	}
	huge := Limits{RequestLine: -1, HeaderBlock: 1 << 30, HelloSize: 1 << 30, Idle: -1}.withDefaults()
	if huge.RequestLine+huge.HeaderBlock+2 > largeSize || huge.HelloSize > largeSize || huge.Idle != off {
		t.Errorf("%+v", huge)
	}
}

// TestStagesDoNotMeet: what ends a stage is over before the next one begins, or it
// would set its deadline on what that one writes.
func TestStagesDoNotMeet(t *testing.T) {
	var w watch
	expiring, release, began := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w.begin(time.Millisecond, func() { close(expiring); <-release })
	defer w.stop()
	<-expiring
	go func() {
		w.stage(time.Hour, func() {})
		close(began)
	}()
	select {
	case <-began:
		t.Error("the next stage began while the last was being ended")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	<-began
}
