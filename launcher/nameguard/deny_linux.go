package nameguard

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// deny refuses a call by a rule, and has it told. No rule: it is the canary.
func (w *worker) deny(s *slot, rule *Rule, action string) verdict {
	if rule == nil {
		w.b.canarySeen.Store(true)
		return fail(unix.EACCES)
	}
	if w.b.o.Report == nil && w.b.o.Notice == nil || len(w.b.told) == cap(w.b.told) {
		w.b.untold.Add(1)
		return fail(unix.EACCES)
	}
	v := Violation{Action: action, Rule: rule.Text, Source: rule.Source, Comm: w.comm()}
	if s.reach > 1 {
		v.Target = string(s.place())
	}
	v.Target += "/" + string(s.last())
	if w.b.o.Notice != nil {
		w.b.o.Notice(v)
	}
	if w.b.o.Report == nil {
		return fail(unix.EACCES)
	}
	select {
	case w.b.told <- v:
	default:
		w.b.untold.Add(1)
	}
	return fail(unix.EACCES)
}

// absent answers for a file that would be made below what is not there. Where that may not be
// made either, this is why: a repository without hooks is not to say that there is no such
// folder, whereupon people make one.
func (w *worker) absent(s *slot) verdict {
	if s.lost && w.judge(s).kind == going && s.zone == guarded {
		if rule := w.b.rules.Check(s.place(), s.last(), OpMakeDir); rule != nil {
			return w.deny(s, rule, actionCreate)
		}
	}
	return fail(unix.ENOENT)
}

// comm is what the calling thread is called.
func (w *worker) comm() string {
	w.proc = append(decimal(w.proc[:0], int(w.note.pid)), "/comm\x00"...)
	fd, e := openat(w.b.proc, &w.proc[0], unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if e != 0 {
		return ""
	}
	defer closeFD(fd)
	var buf [64]byte
	n, e := read(fd, buf[:])
	if e != 0 {
		return ""
	}
	return string(bytes.TrimSuffix(buf[:n], []byte{'\n'}))
}

// isCanary reports whether a place is the one by which the inside tries whether we are
// there.
func (b *Broker) isCanary(s *slot) bool {
	return !b.proved.Load() && string(s.last()) == b.o.Canary.Name && string(s.place()) == b.o.Canary.Dir
}

// tell hands violations on, until there will be no more.
func (b *Broker) tell() {
	defer close(b.toldAll)
	for v := range b.told {
		b.o.Report(v)
	}
}
