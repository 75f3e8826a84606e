package nameguard

import (
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	// A thread that opens files looks all the time where it may run; so does what it starts.
	enemies["placed"] = func([]string) error {
		runtime.LockOSThread()
		var all processors
		if e := all.read(0); e != 0 {
			return e
		}
		for i := range 3000 {
			if err := made(unix.Open("f"+strconv.Itoa(i%10), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)); err != nil {
				return err
			}
			var now processors
			if e := now.read(0); e != 0 || now != all {
				return fmt.Errorf("after %d files it may run on %d processors of %d (%w)", i, now.count(), all.count(), e)
			}
			if i%300 == 0 {
				out, err := exec.Command("/usr/bin/nproc").Output()
				if want := strconv.Itoa(all.count()) + "\n"; err != nil || string(out) != want {
					return fmt.Errorf("a child sees %q processors, want %q (%w)", out, want, err)
				}
			}
		}
		return nil
	}
	// One that is told by another where it may run stays there.
	enemies["replaced"] = func([]string) error {
		tid := make(chan int)
		done := make(chan error)
		var all processors
		if e := all.read(0); e != 0 {
			return e
		}
		first := all.first()
		go func() {
			runtime.LockOSThread()
			tid <- unix.Gettid()
			for i := range 3000 {
				if err := made(unix.Open("f"+strconv.Itoa(i%10), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)); err != nil {
					done <- err
					return
				}
			}
			var now processors
			if e := now.read(0); e != 0 || now != first {
				done <- fmt.Errorf("it may run on %d processors, and was told one (%w)", now.count(), e)
				return
			}
			done <- nil
		}()
		other := <-tid
		for range 200 {
			runtime.Gosched()
		}
		if e := first.apply(other); e != 0 {
			return e
		}
		return <-done
	}
}

// Where a caller may run is its own affair, whatever we do to it while it waits.
func TestCallersRunWhereTheyMay(t *testing.T) {
	for _, name := range []string{"placed", "replaced"} {
		for range 4 {
			b := newBox(t)
			var broker *Broker
			b.started = func(served *Broker, _ *exec.Cmd) { broker = served }
			if o := b.do(name); o.err != nil || o.out != "" {
				t.Fatalf("%s: %q (%v)", name, o.out, o.err)
			}
			if runtime.NumCPU() > 1 && name == "placed" && !broker.together.on.Load() {
				t.Error("callers are not kept on their processor here, or no more")
			}
		}
	}
}

// Where somebody has said where a run may run, nothing is changed about it.
func TestRestrictedRunsAreLeftAlone(t *testing.T) {
	if runtime.NumCPU() == 1 {
		t.Skip("SKIPPED, NOT PASSED: there is one processor")
	}
	var all processors
	if e := all.read(0); e != 0 {
		t.Fatal(e)
	}
	one := all.first()
	b := newBox(t)
	b.started = func(broker *Broker, _ *exec.Cmd) {
		if broker.together.on.Load() {
			t.Error("it is moved about")
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if e := one.apply(0); e != 0 {
		t.Fatal(e)
	}
	defer func() {
		if e := all.apply(0); e != 0 {
			t.Error(e)
		}
	}()
	if o := b.do("placed"); o.err != nil || o.out != "" {
		t.Errorf("%q (%v)", o.out, o.err)
	}
}

// first is one of the processors alone.
func (p *processors) first() (one processors) {
	for i, word := range p {
		if word != 0 {
			one[i] = word & -word
			break
		}
	}
	return one
}
