package lease

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Types of events. A refusal by a rule is "denied"; "violation" is reserved for
// what the sandbox itself reports of system calls and never comes from here.
const (
	EventSessionOpen  = "session_open"
	EventSessionClose = "session_close"
	EventDenied       = "denied"
	EventPush         = "push"
	EventToken        = "token"  // the session's read token was renewed
	EventPolicy       = "policy" // the rules of a session changed
	EventAsked        = "asked"  // an approver is asked about a host
	EventAnswered     = "answered"
	EventDropped      = "dropped" // events were lost on this stream; count says how many
)

// How a session ended: the field "code" of its session_close event, beside a
// "reason" for people. A launcher obeys EndRequested and lends its listeners no
// more; after any other end, and after one without a word, it may.
const (
	EndRequested = CodeEnded // closed on request: final
	EndClosing   = "closing" // the appliance is shutting down
	EndFailed    = "failed"  // a listener failed
	EndLeft      = "left"    // the launcher hung up
)

// Event is something that happened, flat on the wire: the three fields here
// first, then Fields in the order of their names.
type Event struct {
	Time    time.Time
	Type    string
	Session string // empty for an event of the whole appliance

	// Fields are free, JSON-encodable, and shared: nobody may change the map
	// once the event has been published. The names time, type and session are
	// taken and left out.
	Fields map[string]any
}

// Text returns a field that is a string, else "".
func (e Event) Text(name string) string {
	s, _ := e.Fields[name].(string)
	return s
}

// MarshalJSON writes the flat form.
func (e Event) MarshalJSON() ([]byte, error) {
	var buf bytes.Buffer
	buf.WriteByte('{')
	put := func(name string, v any) error {
		if buf.Len() > 1 {
			buf.WriteByte(',')
		}
		for i, part := range []any{name, v} {
			if i == 1 {
				buf.WriteByte(':')
			}
			data, err := json.Marshal(part)
			if err != nil {
				return fmt.Errorf("encode event field %q: %w", name, err)
			}
			buf.Write(data)
		}
		return nil
	}
	if err := put("time", e.Time); err != nil {
		return nil, err
	}
	if err := put("type", e.Type); err != nil {
		return nil, err
	}
	if e.Session != "" {
		if err := put("session", e.Session); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Fields)) {
		if reserved(name) {
			continue
		}
		if err := put(name, e.Fields[name]); err != nil {
			return nil, err
		}
	}
	buf.WriteByte('}')
	return buf.Bytes(), nil
}

// UnmarshalJSON reads the flat form. Numbers in Fields become float64.
func (e *Event) UnmarshalJSON(data []byte) error {
	// A map, not a struct: encoding/json folds the case of struct fields.
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	out := Event{}
	text := func(name string) (s string, err error) {
		if v, there := fields[name]; there {
			var ok bool
			if s, ok = v.(string); !ok {
				err = fmt.Errorf("decode event: %s is not text", name)
			}
		}
		return s, err
	}
	var err error
	if out.Type, err = text("type"); err != nil {
		return err
	}
	if out.Session, err = text("session"); err != nil {
		return err
	}
	stamp, err := text("time")
	if err != nil {
		return err
	}
	if stamp != "" {
		if out.Time, err = time.Parse(time.RFC3339Nano, stamp); err != nil {
			return fmt.Errorf("decode event: %w", err)
		}
	}
	maps.DeleteFunc(fields, func(name string, _ any) bool { return reserved(name) })
	if len(fields) > 0 {
		out.Fields = fields
	}
	*e = out
	return nil
}

func reserved(name string) bool { return name == "time" || name == "type" || name == "session" }
