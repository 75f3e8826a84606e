package session

import (
	"maps"
	"sync"
	"time"
)

const (
	// denialWindow is how long repeated refusals of one target are counted
	// before they are reported again.
	denialWindow = 5 * time.Second

	// maxDenials bounds the targets a session is remembered for at a time; a run
	// can make up names faster than anybody reads events.
	maxDenials = 512

	// overflowTarget stands for the targets above that bound.
	overflowTarget = "*"
)

// denials reports a session's refusals: the first of a target at once, those of
// the following 5 s together, with their number. No refusal goes uncounted.
type denials struct {
	report func(fields map[string]any)

	mu     sync.Mutex
	open   map[denialKey]*denial
	closed bool
}

// denialKey has the code as well: the same target refused for another reason is
// news.
type denialKey struct{ target, code string }

type denial struct {
	fields map[string]any // of the first refusal
	more   uint64         // refusals since the last report
	timer  *time.Timer
}

func newDenials(report func(map[string]any)) *denials {
	return &denials{report: report, open: map[denialKey]*denial{}}
}

// add counts one refusal. fields must have no count and belong to add.
func (d *denials) add(target, code string, fields func() map[string]any) {
	key := denialKey{target, code}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	if known := d.open[key]; known != nil {
		known.more++
		return
	}
	if len(d.open) >= maxDenials {
		key = denialKey{overflowTarget, ""}
		if known := d.open[key]; known != nil {
			known.more++
			return
		}
		fields = overflowFields
	}
	first := &denial{fields: fields()}
	first.timer = time.AfterFunc(denialWindow, func() { d.again(key) })
	d.open[key] = first
	d.say(first, 1)
}

func overflowFields() map[string]any {
	return map[string]any{
		"target": overflowTarget,
		"code":   "many_targets",
		"reason": "more targets are refused than are reported one by one; their number is the count",
	}
}

// again ends a window: a target that was quiet is forgotten, the refusals of a
// busy one are reported and a new window begins.
func (d *denials) again(key denialKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.open[key]
	if known == nil || d.closed {
		return
	}
	if known.more == 0 {
		delete(d.open, key)
		return
	}
	d.say(known, known.more)
	known.more = 0
	known.timer.Reset(denialWindow)
}

// say reports under the lock, so that the reports of one target keep their order;
// report must not block.
func (d *denials) say(known *denial, count uint64) {
	fields := maps.Clone(known.fields) // events share their fields with many readers
	fields["count"] = count
	d.report(fields)
}

// flush reports what is counted so far.
func (d *denials) flush() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, known := range d.open {
		if known.more > 0 {
			d.say(known, known.more)
			known.more = 0
		}
	}
}

// close reports what is still counted. It may be called again.
func (d *denials) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	d.closed = true
	for _, known := range d.open {
		known.timer.Stop()
		if known.more > 0 {
			d.say(known, known.more)
		}
	}
	d.open = nil
}
