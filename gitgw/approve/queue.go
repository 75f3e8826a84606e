package approve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"postern/gitgw"
)

// Errors of a queue. Their texts stand in git's output.
var (
	// ErrFull: as many questions are open as the queue holds, of as many runs.
	ErrFull = errors.New("too many pushes are waiting for approval")
	// ErrShare: one run has as many questions open as a run may, or the most of all
	// when the queue is full and another run asks.
	ErrShare = errors.New("too many questions of this run are open")
	// ErrLost: the last listener left and none came back in time.
	ErrLost = errors.New("the approver has disconnected")
	// ErrNoQuestion: the question was answered, withdrawn or never asked.
	ErrNoQuestion = errors.New("no such open question")
	// ErrScope: the question does not offer the scope of the answer, and stays open.
	ErrScope = errors.New("answer goes too far")
)

// Queue holds questions until somebody who listens answers them. It is in
// memory only: a question lives as long as whoever asks waits, which may be longer
// than its push does ([gitgw.Approvals]). The zero value is not usable; see
// [NewQueue].
type Queue struct {
	most  int
	share int // of one run
	grace time.Duration

	mu        sync.Mutex
	open      map[string]*pending
	listeners map[*Listener]struct{}
	lost      *time.Timer // runs while questions are open and nobody listens
	asked     uint64      // questions ever, which is their order
}

type pending struct {
	order    uint64
	question gitgw.Question
	answer   chan result // holds one
}

type result struct {
	answer gitgw.Answer
	err    error
}

// Defaults of [NewQueue]. The share of a run is what it can have open by one gateway:
// four pushes that wait, and eight that gave up waiting.
const (
	DefaultMost  = 64
	DefaultShare = 12
	DefaultGrace = 10 * time.Second
)

// NewQueue makes a queue of at most most open questions, and at most [DefaultShare] of
// one run. No run that has few is refused because others have many: of the run that has
// the most the newest question is withdrawn. grace is how long open
// questions wait when the last listener leaves, since a page that is reloaded
// comes back. Zero means the defaults.
func NewQueue(most int, grace time.Duration) *Queue {
	if most <= 0 {
		most = DefaultMost
	}
	if grace <= 0 {
		grace = DefaultGrace
	}
	return &Queue{most: most, share: min(DefaultShare, most), grace: grace, open: map[string]*pending{}, listeners: map[*Listener]struct{}{}}
}

// Event tells a listener of one question.
type Event struct {
	// Type is "asked" for a question that is open, "closed" for one that is not
	// any more, whoever ended it.
	Type     string         `json:"type"`
	ID       string         `json:"id"`
	Question gitgw.Question `json:"question,omitzero"`
}

// Listener hears of questions. It must be read until it is closed.
type Listener struct {
	q      *Queue
	mu     sync.Mutex
	events []Event
	closed bool
	wake   chan struct{}
}

// Listen connects a listener. It first hears of every question that is open.
func (q *Queue) Listen() *Listener {
	l := &Listener{q: q, wake: make(chan struct{}, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.listeners[l] = struct{}{}
	// Questions that were about to be given up go on waiting.
	q.stopLost()
	for _, p := range q.sorted() {
		l.hear(Event{Type: "asked", ID: p.question.ID, Question: p.question})
	}
	return l
}

// Next waits for the next event. It fails when ctx ends or the listener is
// closed.
func (l *Listener) Next(ctx context.Context) (Event, error) {
	for {
		l.mu.Lock()
		if len(l.events) > 0 {
			e := l.events[0]
			l.events = l.events[1:]
			l.mu.Unlock()
			return e, nil
		}
		closed := l.closed
		l.mu.Unlock()
		if closed {
			return Event{}, errors.New("listen for questions: closed")
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
			return Event{}, fmt.Errorf("listen for questions: %w", ctx.Err())
		}
	}
}

// hear appends an event. What waits is bounded by the questions there can be: a
// listener that does not read loses the oldest, and asks [Queue.Open] then.
func (l *Listener) hear(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if most := 4 * l.q.most; len(l.events) >= most {
		l.events = l.events[1:]
	}
	l.events = append(l.events, e)
	// One token is enough: who wakes reads until there is nothing more.
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Close disconnects the listener.
func (l *Listener) Close() error {
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	// Removed first: after this nobody writes to l, so wake may be closed.
	delete(l.q.listeners, l)
	if len(l.q.listeners) == 0 && len(l.q.open) > 0 {
		l.q.stopLost()
		var timer *time.Timer
		timer = time.AfterFunc(l.q.grace, func() { l.q.giveUp(&timer) })
		l.q.lost = timer
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.wake)
	}
	return nil
}

// giveUp ends every open question because nobody listens. timer is read under
// the lock under which it was set.
func (q *Queue) giveUp(timer **time.Timer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lost != *timer {
		return // somebody came while the timer fired
	}
	for id := range q.open {
		q.settle(id, result{err: ErrLost})
	}
}

// stopLost ends the countdown. A timer that has fired already finds that it is
// not q.lost any more.
func (q *Queue) stopLost() {
	if q.lost != nil {
		q.lost.Stop()
		q.lost = nil
	}
}

// settle answers a question and tells the listeners. q.mu is held.
func (q *Queue) settle(id string, r result) bool {
	p, ok := q.open[id]
	if !ok {
		return false
	}
	delete(q.open, id)
	// Never blocks: the channel holds one, and a question is settled once.
	p.answer <- r
	for l := range q.listeners {
		l.hear(Event{Type: "closed", ID: id})
	}
	return true
}

// Connected reports whether anybody listens.
func (q *Queue) Connected() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.listeners) > 0
}

// Ask opens the question and waits for its answer.
func (q *Queue) Ask(ctx context.Context, question gitgw.Question) (gitgw.Answer, error) {
	p := &pending{question: question, answer: make(chan result, 1)}
	if err := q.add(p); err != nil {
		return gitgw.Answer{}, err
	}
	select {
	case r := <-p.answer:
		return r.answer, r.err
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	withdrawn := fmt.Errorf("question withdrawn: %w", ctx.Err())
	q.settle(question.ID, result{err: withdrawn})
	// An answer that came in the same moment counts: its giver was told so.
	r := <-p.answer
	return r.answer, r.err
}

// add opens a question, unless nobody would hear it or too many wait already:
// each of them holds a connection and a client.
func (q *Queue) add(p *pending) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	id := p.question.ID
	switch _, twice := q.open[id]; {
	case id == "" || twice:
		return errors.New("the question has no name of its own")
	case len(q.listeners) == 0:
		return ErrLost
	case len(q.open) >= q.most:
		if !q.makeRoom(p.question.Session) {
			return ErrFull
		}
	case q.of(p.question.Session) >= q.share:
		return gitgw.WithCode(gitgw.CodeQuestions, fmt.Errorf("%w: %d", ErrShare, q.share))
	}
	q.asked++
	p.order = q.asked
	q.open[id] = p
	for l := range q.listeners {
		l.hear(Event{Type: "asked", ID: id, Question: p.question})
	}
	return nil
}

// of counts a run's open questions. q.mu is held.
func (q *Queue) of(run string) (n int) {
	for _, p := range q.open {
		if p.question.Session == run {
			n++
		}
	}
	return n
}

// makeRoom withdraws the newest question of the run that has the most, if that leaves it
// no fewer than run will have. q.mu is held.
func (q *Queue) makeRoom(run string) bool {
	count := map[string]int{}
	for _, p := range q.open {
		count[p.question.Session]++
	}
	var last *pending
	for _, p := range q.sorted() {
		if last == nil || count[p.question.Session] >= count[last.question.Session] {
			last = p
		}
	}
	if last == nil || count[last.question.Session] < count[run]+2 {
		return false
	}
	q.settle(last.question.ID, result{err: gitgw.WithCode(gitgw.CodeQuestions, fmt.Errorf("%w, and other runs ask as well", ErrShare))})
	return true
}

// Answer settles an open question. It fails with [ErrNoQuestion] when the
// question is not open any more, and with [ErrScope] when it offers no such answer.
func (q *Queue) Answer(id string, a gitgw.Answer) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p, ok := q.open[id]; ok {
		if err := p.question.Accepts(a); err != nil {
			return fmt.Errorf("answer question %q: %w: %w", id, ErrScope, err)
		}
	}
	if !q.settle(id, result{answer: a}) {
		return fmt.Errorf("answer question %q: %w", id, ErrNoQuestion)
	}
	return nil
}

// Open lists the open questions, oldest first.
func (q *Queue) Open() []gitgw.Question {
	q.mu.Lock()
	defer q.mu.Unlock()
	questions := make([]gitgw.Question, 0, len(q.open))
	for _, p := range q.sorted() {
		questions = append(questions, p.question)
	}
	return questions
}

// sorted lists what is open in the order of asking. q.mu is held.
func (q *Queue) sorted() []*pending {
	all := make([]*pending, 0, len(q.open))
	for _, p := range q.open {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *pending) int { return cmp.Compare(a.order, b.order) })
	return all
}

var _ gitgw.Approver = (*Queue)(nil)
