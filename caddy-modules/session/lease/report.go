package lease

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Types of the events that a launcher reports of its run: how far it is, how it ended,
// and which calls its sandbox denied. What the command wrote is not among them.
const (
	EventReady     = "ready"
	EventExit      = "exit"
	EventKilled    = "killed"
	EventViolation = "violation"
)

// Reported lists them.
func Reported() []string { return []string{EventReady, EventExit, EventKilled, EventViolation} }

// Bounds of what a launcher may report. The number is of one lease: a run that makes up
// violations fills no log and no queue, and the last words, exit and killed, have room
// of their own.
const (
	maxReport    = 8 << 10 // bytes of one line
	maxReports   = 512
	reservedLast = 8
	reportQueue  = 64
	reportWait   = time.Second
)

// Report tells the appliance of the run. It waits a second at the most; whatever keeps
// it from telling is an error that a run need not mind.
func (l *Lease) Report(e Event) error {
	if !slices.Contains(Reported(), e.Type) {
		return fmt.Errorf("report %q: a launcher reports no such thing", e.Type)
	}
	e.Session = "" // it is the lease's
	line, err := encodeLine(e)
	if err != nil {
		return err
	}
	if len(line) > maxReport {
		return fmt.Errorf("report %s: %d bytes, at most %d", e.Type, len(line), maxReport)
	}
	l.write.Lock()
	defer l.write.Unlock()
	if l.broken {
		return errors.New("report: half a line is out")
	}
	if err := l.conn.SetWriteDeadline(time.Now().Add(reportWait)); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if n, err := l.conn.Write(line); err != nil {
		// The rest of a line can never follow; the lease itself goes on.
		l.broken = n > 0
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Reports carries what the launcher reports; it is closed when the lease has ended. Who
// does not read loses events, and nothing waits.
func (r *Request) Reports() <-chan Event { return r.reports }

// listen reads reports until the peer hangs up, or says what is none: that ends the
// lease as well. Descriptors sent now are never received; the kernel closes them, for
// Read makes no room for control data.
func (r *Request) listen() {
	defer close(r.reports)
	br := bufio.NewReaderSize(r.conn, maxReport)
	for n := 0; ; n++ {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return // an end, or a line that is too long
		}
		e, err := decodeReport(line)
		if err != nil {
			return
		}
		if last := e.Type == EventExit || e.Type == EventKilled; n >= maxReports && !last || n >= maxReports+reservedLast {
			n-- // counted enough
			continue
		}
		select {
		case r.reports <- e:
		default:
		}
	}
}

// decodeReport reads one line. Time and session are the appliance's to say.
func decodeReport(line []byte) (Event, error) {
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		return Event{}, fmt.Errorf("decode report: %w", err)
	}
	if !slices.Contains(Reported(), e.Type) {
		return Event{}, fmt.Errorf("decode report: %q is none", clip(e.Type))
	}
	e.Time, e.Session = time.Time{}, ""
	return e, nil
}
