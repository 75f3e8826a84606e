package nameguard

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// waits are what a worker waits for another by.
var waits = map[string]struct {
	begin, end func(*worker)
	wait       func(*Broker, *worker)
}{
	"barrier": {
		func(w *worker) { w.sending.Store(true) }, func(w *worker) { w.sending.Store(false) },
		(*Broker).barrier,
	},
	"spread": {
		func(w *worker) { w.b.together.on.Store(true); w.holding.Store(true) }, func(w *worker) { w.holding.Store(false) },
		(*Broker).spread,
	},
}

func init() {
	// Not in a sandbox: a runtime that cannot go on ends with its process.
	enemies["waits"] = func(args []string) error {
		wait, b := waits[args[0]], &Broker{}
		b.workers = []*worker{newWorker(b), newWorker(b)}
		wait.begin(b.workers[1])
		tid, done := make(chan int), make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // for ever: the thread takes no signals any more
			var all unix.Sigset_t
			for i := range all.Val {
				all.Val[i] = ^all.Val[i]
			}
			if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, nil); err != nil {
				fmt.Println(err)
			}
			tid <- unix.Gettid()
			wait.wait(b, b.workers[0])
		}()
		<-tid
		time.Sleep(50 * time.Millisecond)
		runtime.GC() // stops everybody
		wait.end(b.workers[1])
		<-done
		return nil
	}
}

// A worker that waits for another one does not keep the runtime from stopping it: the
// other one, on its way out of a system call, would wait for that.
func TestWaitsCanBeStopped(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	must(t, err)
	for name := range waits {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		out, err := exec.CommandContext(ctx, exe, enemyCommand, "waits", name).CombinedOutput()
		cancel()
		if err != nil || len(out) != 0 {
			t.Errorf("%s: %q (%v)", name, out, err)
		}
	}
}

// Everybody who is about to say where a caller may run waits until nobody is kept anywhere,
// not only the first.
func TestSpreadWaitsEachTime(t *testing.T) {
	t.Parallel()
	b := &Broker{}
	b.workers = []*worker{newWorker(b), newWorker(b), newWorker(b)}
	b.together.on.Store(true)
	b.workers[2].holding.Store(true)
	done := make(chan int, 2)
	for i := range 2 {
		go func() {
			b.spread(b.workers[i])
			done <- i
		}()
	}
	select {
	case i := <-done:
		t.Errorf("worker %d does not wait", i)
		done <- i
	case <-time.After(100 * time.Millisecond):
	}
	b.workers[2].holding.Store(false)
	<-done
	<-done
}
