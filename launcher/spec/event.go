package spec

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"sync"
	"time"
	"unicode/utf8"
)

// Kind is what an Event tells of.
type Kind string

// The kinds of the specification (SPEC 88), and two of our own: a refusal by a rule is
// denied or push, and never a violation, which comes from a denied system call
// (SPEC 98, decision 12).
const (
	Starting Kind = "starting"
	Ready    Kind = "ready"
	Stdout   Kind = "stdout"
	Stderr   Kind = "stderr"
	Exit     Kind = "exit"
	Killed   Kind = "killed"
	Violated Kind = "violation"
	Denied   Kind = "denied"
	Push     Kind = "push"
)

// Cause is why a command was killed.
type Cause string

// The causes.
const (
	OOM     Cause = "oom"
	Timeout Cause = "timeout"
	Stopped Cause = "stopped"
)

// Violation is the specification's SandboxViolation (SPEC 89): a system call that the
// sandbox denied. Who knows more says more: by which rule, and who tried.
type Violation struct {
	// Action is the denied verb, as file-write-create.
	Action string `json:"action"`

	// Target is the path or host.
	Target string `json:"target"`

	// Raw is the line that told of it, where one did.
	Raw string `json:"raw,omitempty"`

	// Rule is the rule about names that refused it, and Source where that stands.
	Rule   string `json:"rule,omitempty"`
	Source string `json:"source,omitempty"`

	// Comm is what the thread that tried is called.
	Comm string `json:"comm,omitempty"`
}

// Event is one line of the stream, flat: type, time and session, and those of the other
// fields that belong to the type.
type Event struct {
	Type    Kind      `json:"type"`
	Time    time.Time `json:"time"`
	Session string    `json:"session"`

	// Data or Base64 is what the command wrote, of stdout and stderr: Data where the
	// piece is UTF-8, else Base64. The pieces in their order are every byte that was
	// written; where one ends means nothing.
	Data   string `json:"data,omitempty"`
	Base64 []byte `json:"base64,omitempty"`

	ExitCode *int  `json:"exitCode,omitempty"` // of exit; 128+n for a signal, 124 after a timeout
	Signal   int   `json:"signal,omitempty"`   // of exit: what killed the command
	Reason   Cause `json:"reason,omitempty"`   // of killed

	*Violation        // of violation: action, target, raw, rule, source, comm
	Count      uint64 `json:"count,omitempty"` // of violation: how often since the last of its kind

	Handle *Handle `json:"handle,omitempty"` // of starting, ready and exit

	// Fields are of denied and push: those that the control API shows.
	Fields map[string]any `json:"-"`
}

// plain is an Event without its methods.
type plain Event

// free reports whether the fields of a kind are the appliance's.
func (k Kind) free() bool { return k == Denied || k == Push }

// MarshalJSON writes the flat form.
func (e Event) MarshalJSON() ([]byte, error) {
	var v any = plain(e)
	if e.Type.free() {
		flat := map[string]any{}
		maps.Copy(flat, e.Fields)
		flat["type"], flat["time"], flat["session"] = e.Type, e.Time, e.Session
		v = flat
	}
	// json.Marshal would spell <, > and & in six bytes each: output is full of them.
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(buf.Bytes(), []byte{'\n'}), err
}

// UnmarshalJSON reads the flat form. Numbers in Fields become float64.
func (e *Event) UnmarshalJSON(data []byte) error {
	var head struct {
		Type    Kind      `json:"type"`
		Time    time.Time `json:"time"`
		Session string    `json:"session"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	*e = Event{Type: head.Type, Time: head.Time, Session: head.Session}
	if !head.Type.free() {
		return json.Unmarshal(data, (*plain)(e))
	}
	if err := json.Unmarshal(data, &e.Fields); err != nil {
		return err
	}
	for _, name := range []string{"type", "time", "session"} {
		delete(e.Fields, name)
	}
	return nil
}

// SetBytes puts what a command wrote into the event, in the form that keeps it whole.
func (e *Event) SetBytes(data []byte) {
	if utf8.Valid(data) {
		e.Data = string(data)
		return
	}
	e.Base64 = bytes.Clone(data)
}

// Bytes is what the command wrote.
func (e *Event) Bytes() []byte {
	if e.Base64 != nil {
		return e.Base64
	}
	return []byte(e.Data)
}

// Writer writes events, one a line, from any number of goroutines. A nil Writer writes
// nothing.
type Writer struct {
	session string
	mu      sync.Mutex
	w       io.Writer
	err     error
}

// NewWriter writes the events of one session.
func NewWriter(w io.Writer, session string) *Writer { return &Writer{w: w, session: session} }

// Write fills in session and time and writes the line. After the first error nothing
// more is written: half a line may be out.
func (w *Writer) Write(e Event) error {
	if w == nil {
		return nil
	}
	e.Session = w.session
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if e.Handle != nil {
		e.Handle = e.Handle.Copy()
	}
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if w.err = enc.Encode(e); w.err == nil {
		_, w.err = w.w.Write(line.Bytes())
	}
	return w.err
}

// Err is the first error of a Write.
func (w *Writer) Err() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
