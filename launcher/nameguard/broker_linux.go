package nameguard

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Options are what a Broker has to know.
type Options struct {
	// Rules say which names are refused.
	Rules *Rules

	// Free are folders of the sandbox in which it acts by itself, as its Cage has them.
	// No guarded folder may lie in one.
	Free []string

	// Private are mount points of trees of the sandbox's own to which no rule applies, but
	// which hold guarded folders.
	Private []string

	// Canary is what the inside tries first.
	Canary Canary

	// Report, if not nil, is called for each call that a rule refused, by one goroutine at
	// a time. Notice is called for each of them before it has failed, from any thread, and
	// must not block.
	Report, Notice func(Violation)

	// Fault is called, at most once, when a fault of ours made a call fail.
	Fault func(error)

	// Fatal is called, at most once, when calls can no longer be served. Those that wait
	// then wait until the sandbox ends, so it has to.
	Fatal func(error)
}

// workerCount is how many calls are served at a time, on a machine with as many
// processors at least.
const workerCount = 4

// Broker does what the processes of one sandbox ask for, under the rules.
type Broker struct {
	o        Options
	rules    *Rules
	listener listener
	root     int // the sandbox's, O_PATH
	proc     int // /proc
	self     int // /proc/self/fd
	mounts   mounts
	dispatch [newest + 1]call
	workers  []*worker

	umasks   umasks
	together together
	moves    sync.Mutex    // held while anything but a plain file may come to a name
	moved    atomic.Uint64 // how often a directory or a symlink came to one
	moving   sync.RWMutex  // held for that; see stir

	groups atomic.Bool // the kernel knows descriptors of processes, not of threads

	canarySeen atomic.Bool
	proved     atomic.Bool

	parked  chan waiting
	waiting atomic.Int32  // calls that are parked
	ended   chan struct{} // nobody is left who could call
	told    chan Violation
	toldAll chan struct{}
	untold  atomic.Uint64

	running sync.WaitGroup
	fatal   sync.Once
	faulty  sync.Once
	closing sync.Once
}

// Serve takes over the listener and the root of a sandbox, which a Cage gave away, and
// returns when the inside has tried its canary and was refused as it should be, or is gone.
// From then on calls are served until nobody is left to make any. With an error nothing is served, and
// the descriptors are closed.
//
// The broker holds its threads until the sandbox has ended.
func Serve(listenerFD, rootFD int, o Options) (_ *Broker, err error) {
	b := &Broker{
		o: o, rules: o.Rules, listener: listener(listenerFD), root: rootFD, proc: -1, self: -1,
		dispatch: dispatchTable(native),
		parked:   make(chan waiting, maxParked), ended: make(chan struct{}),
		told: make(chan Violation, maxWaiting), toldAll: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			b.closeAll()
		}
	}()
	if err := o.check(); err != nil {
		return nil, err
	}
	if b.proc, err = unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("guard names: open /proc: %w", err)
	}
	if b.self, err = unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("guard names: open /proc/self/fd: %w", err)
	}
	b.listener.wakeTogether()
	count := max(2, min(workerCount, runtime.NumCPU()))
	// Each of them may be in a call of the kernel's, and the rest of the launcher is to run.
	if runtime.GOMAXPROCS(0) < count+2 {
		runtime.GOMAXPROCS(count + 2)
	}
	for range count + 1 {
		b.workers = append(b.workers, newWorker(b))
	}
	first := make(chan error, 1)
	b.running.Add(1)
	b.run(b.workers[0], func(w *worker) error {
		failed := w.prove()
		if first <- failed; failed != nil {
			return nil //nolint:nilerr // it is said
		}
		return w.loop()
	}, first)
	if err = <-first; err != nil {
		b.running.Wait()
		return nil, err
	}
	b.running.Add(count)
	for _, w := range b.workers[1:count] {
		b.run(w, (*worker).loop, nil)
	}
	b.run(b.workers[count], func(w *worker) error { w.retry(); return nil }, nil)
	if o.Report != nil {
		go b.tell()
	} else {
		close(b.toldAll)
	}
	return b, nil
}

// run has a worker work on a thread of its own.
func (b *Broker) run(w *worker, work func(*worker) error, early chan<- error) {
	go OnOwnThread(func() { b.work(w, work, early) })
}

func (b *Broker) work(w *worker, work func(*worker) error, early chan<- error) {
	defer b.running.Done()
	defer w.known.forget()
	err := w.settle()
	if err != nil && early != nil {
		early <- fmt.Errorf("guard names: %w", err)
		return
	}
	if err == nil {
		err = work(w)
	}
	if err != nil {
		b.fail(err)
	}
}

// fail ends the run: what cannot be served would wait for ever.
func (b *Broker) fail(err error) {
	b.fatal.Do(func() {
		if b.o.Fatal != nil {
			b.o.Fatal(fmt.Errorf("guard names: %w", err))
		}
	})
}

// fault tells, once, of a fault of ours that a call failed by.
func (b *Broker) fault(r any) {
	b.faulty.Do(func() {
		if b.o.Fault != nil {
			b.o.Fault(fmt.Errorf("guard names: %v", r))
		}
	})
}

// Close waits until the sandbox has ended and everything was told, and frees what is held.
// Before Linux 6.6 threads that wait for calls are not woken by the end of the sandbox;
// those are left behind.
func (b *Broker) Close() {
	b.closing.Do(func() {
		close(b.ended)
		done := make(chan struct{})
		go func() {
			b.running.Wait()
			close(done)
		}()
		select {
		case <-done:
			close(b.told)
			<-b.toldAll
			b.closeAll()
		case <-time.After(time.Second):
		}
	})
}

// Untold is how many refusals were not reported, because there were too many.
func (b *Broker) Untold() uint64 { return b.untold.Load() }

func (b *Broker) closeAll() {
	for _, fd := range []int{int(b.listener), b.root, b.proc, b.self} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}
