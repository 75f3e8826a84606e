package nameguard

import (
	"bytes"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// maxParked bounds the calls that wait for somebody else: for the other end of a FIFO, or
// the end of a lease. What finds no room fails with ENXIO.
const maxParked = 128

// waiting is a call that will be answered later.
type waiting struct {
	note  notif
	dir   int
	name  [maxName + 2]byte
	flags uint32
	mode  uint32
	mask  uint32

	rounds int // in which a signal of its process was there for the caller

	fd  int        // it was opened; -1: it was not
	err unix.Errno // it cannot be
}

// park puts a call aside, with what its place is. The directory is handed over.
func (w *worker) park(s *slot, flags, mode uint32) verdict {
	s.at()
	p := waiting{note: w.note, dir: s.dir, name: s.name, flags: flags, mode: mode, mask: w.maskOf(), fd: -1}
	if s.keep {
		fd, e := fcntl(s.dir, unix.F_DUPFD_CLOEXEC, 0)
		if e != 0 {
			return fail(e)
		}
		p.dir = fd
	}
	if w.b.waiting.Add(1) > maxParked {
		w.b.waiting.Add(-1)
		closeFD(p.dir)
		if !s.keep {
			s.dir = -1
		}
		return fail(unix.ENXIO)
	}
	s.dir, s.keep = -1, false
	w.b.parked <- p // there is room for as many
	return verdict{kind: parked}
}

// The time between two tries: soon at first, and never so often that it costs anything.
const (
	retrySoonest = time.Millisecond
	retryLatest  = 20 * time.Millisecond
)

// retry tries parked calls again, all of them on the one thread of w.
func (w *worker) retry() {
	calls := make([]waiting, 0, maxParked)
	defer func() {
		for i := range calls {
			closeFD(calls[i].dir)
		}
	}()
	pause := retrySoonest
	timer := time.NewTimer(retryLatest)
	defer timer.Stop()
	for {
		if len(calls) == 0 {
			select {
			case p := <-w.b.parked:
				calls, pause = append(calls, p), retrySoonest
			case <-w.b.ended:
				return
			}
		}
		for len(w.b.parked) > 0 {
			calls, pause = append(calls, <-w.b.parked), retrySoonest
		}
		calls = w.round(calls)
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-w.b.ended:
			return
		}
		pause = min(2*pause, retryLatest)
	}
}

// round tries each call once more, and returns those that wait on.
//
// Whoever waits to write into a FIFO is one of its writers already, so that its reader finds
// the end when the last of them is done. So all that can be opened is, before the first is
// given away.
func (w *worker) round(calls []waiting) []waiting {
	for more := true; more; {
		more = false
		for i := range calls {
			p := &calls[i]
			if p.fd >= 0 || p.err != 0 {
				continue
			}
			w.setMask(p.mask)
			fd, e := openat(p.dir, &p.name[0], int(p.flags)|unix.O_NOFOLLOW|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, p.mode)
			switch {
			case e == 0:
				p.fd, more = fd, true
			case e != unix.EAGAIN && e != unix.ENXIO:
				p.err = e
			}
		}
	}
	kept := calls[:0]
	for i := range calls {
		if w.conclude(&calls[i]) {
			closeFD(calls[i].dir)
			w.b.waiting.Add(-1)
		} else {
			kept = append(kept, calls[i])
		}
	}
	return kept
}

// conclude answers a call if there is something to say, and reports that.
func (w *worker) conclude(p *waiting) (over bool) {
	w.note = p.note
	defer func() {
		if r := recover(); r != nil {
			w.answer(fail(unix.EIO))
			w.b.fault(r)
			over = true
		}
	}()
	switch {
	case p.fd >= 0:
		w.answer(w.give(p.fd, p.flags, false, false))
	case p.err != 0:
		w.answer(fail(p.err))
	case !w.valid():
	default:
		e := w.interrupted(p)
		if e == 0 {
			return false
		}
		w.answer(fail(e))
	}
	return true
}

// errRestart is ERESTARTSYS, which the kernel never shows to anybody: of a call that a signal
// has found waiting it says so, and then it is made again, or fails with EINTR, as the signal's
// handler wants it. Where no signal is, whoever called would see it.
const errRestart = unix.Errno(512)

// A signal of a process is taken by any of its threads. One that runs does so in no time; so what is
// there in so many rounds, each time one looks, is likely to be the caller's.
const (
	lastingRounds = 5
	lastingLooks  = 16
)

// interrupted is what to answer when a signal waits for the caller, which may not be interrupted
// while we serve it; zero: none does. Where another thread may have taken it by then, the
// answer is one that makes sense without a signal.
func (w *worker) interrupted(p *waiting) unix.Errno {
	own, shared, threads := w.signals()
	if own != 0 || shared != 0 && threads == 1 {
		return errRestart
	}
	for i := 0; shared != 0 && i < lastingLooks; i++ {
		_, again, _ := w.signals()
		shared &= again
	}
	if shared == 0 {
		p.rounds = 0
		return 0
	}
	if p.rounds++; p.rounds < lastingRounds {
		return 0
	}
	return unix.EINTR
}

// signals are those that wait for the caller alone, those that it or another thread of its
// process may take, and how many threads that has.
func (w *worker) signals() (own, shared uint64, threads int) {
	status := w.status()
	set := func(name string) uint64 {
		n, err := strconv.ParseUint(string(bytes.TrimSpace(field(status, name))), 16, 64)
		if err != nil {
			return 0
		}
		return n
	}
	taken := ^(set("SigBlk") | set("SigIgn"))
	return set("SigPnd") & taken, set("ShdPnd") & taken, number(field(status, "Threads"))
}
