package session

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"postern/caddy-modules/proxy"
	"postern/dnsguard"
)

const (
	// auditQueue is how many records may wait to be written. It is for a log that is
	// slow for a moment: connections do not wait for a disk.
	auditQueue = 8192

	// flushFor bounds how long the end of the process waits for the log.
	flushFor = 5 * time.Second
)

// TrailDropped is the message of the line that tells how many others are missing.
const TrailDropped = "dropped"

// audit writes the trail: a line for each decision and one for each close. Offering
// never waits; what finds the queue full is counted, and the count is a line too.
type audit struct {
	log   func() slog.Handler
	queue chan *entry
	stop  chan struct{}
	over  chan struct{} // closed when everything is written

	lost    atomic.Uint64 // since the last line that said so
	dropped atomic.Uint64 // ever
}

// entry is one line to be. It is written out by the audit's goroutine.
type entry struct {
	session *session
	policy  string
	rec     *proxy.Record    // either this
	name    *dnsguard.Record // or this
}

// AuditStats say how the trail is doing.
type AuditStats struct {
	Waiting int    // records in the queue
	Dropped uint64 // records that no line was written for, ever
}

// Audit says how the trail is doing.
func (r *Registry) Audit() AuditStats {
	return AuditStats{Waiting: len(r.audit.queue), Dropped: r.audit.dropped.Load()}
}

// newAudit makes one that writes to what log gives at the time. run does the writing.
func newAudit(log func() slog.Handler, queue int) *audit {
	return &audit{log: log, queue: make(chan *entry, queue), stop: make(chan struct{}), over: make(chan struct{})}
}

func (a *audit) offer(e *entry) {
	select {
	case a.queue <- e:
	default:
		a.lost.Add(1)
		a.dropped.Add(1)
	}
}

// run writes until close, and then what is queued.
func (a *audit) run() {
	defer close(a.over)
	for {
		select {
		case e := <-a.queue:
			a.write(e)
		case <-a.stop:
			for {
				select {
				case e := <-a.queue:
					a.write(e)
				default:
					a.tellLost()
					return
				}
			}
		}
	}
}

// close has the rest written, and waits for that. Nothing may be offered any more.
func (a *audit) close() {
	close(a.stop)
	timer := time.NewTimer(flushFor)
	defer timer.Stop()
	select {
	case <-a.over:
	case <-timer.C: // the log hangs, and the process is to end all the same
	}
}

func (a *audit) write(e *entry) {
	a.tellLost()
	a.emit(e.line())
}

// tellLost says that lines are missing, where they are: ahead of the next one.
func (a *audit) tellLost() {
	n := a.lost.Swap(0)
	if n == 0 {
		return
	}
	line := slog.NewRecord(time.Now(), slog.LevelError, TrailDropped, 0)
	line.AddAttrs(slog.Uint64("count", n), slog.String("reason", "the log was slower than the connections; so many decisions and closes have no line"))
	a.emit(line)
}

func (a *audit) emit(line slog.Record) {
	ctx := context.Background()
	if h := a.log(); h.Enabled(ctx, line.Level) {
		_ = h.Handle(ctx, line) // there is nowhere left to say that the log is broken
	}
}
