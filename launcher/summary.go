package main

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"postern/caddy-modules/session/lease"
	"postern/launcher/sandbox"
)

// maxTargets bounds how many different refusals a summary tells apart, and maxShown
// how many it prints: a run can make up names faster than anybody reads.
const (
	maxTargets = 1000
	maxShown   = 10
)

// refusals collects what was denied to a run.
type refusals struct {
	mu    sync.Mutex
	order []string
	by    map[string]*refused
	more  uint64 // refusals of targets beyond maxTargets
}

type refused struct {
	kind, what, why string
	count           uint64
}

// String is one line. Most reasons begin with what was refused and need not be told.
func (r *refused) String() string {
	text := r.kind
	if r.count > 1 {
		text += fmt.Sprintf(" %d times", r.count)
	}
	if !strings.HasPrefix(r.why, r.what) || r.what == "" {
		text += ": " + r.what
	}
	if r.why != "" {
		text += ": " + r.why
	}
	return text
}

// add takes an event that is a refusal, and no other.
func (r *refusals) add(e lease.Event) {
	var what, why, kind string
	switch {
	case e.Type == lease.EventDenied:
		kind, what, why = "denied", e.Text("target"), e.Text("reason")
	case e.Type == lease.EventPush && e.Text("outcome") != "accepted":
		kind, what, why = "push refused", e.Text("repository"), e.Text("reason")
	default:
		return
	}
	count := uint64(1)
	if n, ok := e.Fields["count"].(float64); ok && n >= 1 {
		count = uint64(n)
	}
	what = printable(what)

	r.mu.Lock()
	defer r.mu.Unlock()
	key := kind + " " + what
	if known := r.by[key]; known != nil {
		known.count += count
		return
	}
	if len(r.order) >= maxTargets {
		r.more += count
		return
	}
	if r.by == nil {
		r.by = map[string]*refused{}
	}
	r.by[key] = &refused{kind: kind, what: what, why: printable(why), count: count}
	r.order = append(r.order, key)
}

// print writes the summary: at most maxShown refusals and every change.
func (r *refusals) print(w io.Writer, changes []sandbox.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := r.more
	for i, key := range r.order {
		d := r.by[key]
		if i >= maxShown {
			rest += d.count
			continue
		}
		fmt.Fprintln(w, "postern:", d)
	}
	if rest > 0 {
		fmt.Fprintf(w, "postern: and %d refusals of other targets\n", rest)
	}
	for _, c := range changes {
		fmt.Fprintf(w, "postern: %s %s; %s\n", printable(c.Path), c.What, c.Cure)
	}
}

// printable keeps hostile text from moving the cursor or filling the screen.
func printable(text string) string {
	const limit = 400
	text = strings.ReplaceAll(text, "\n", "; ") // joined errors
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || 0x80 <= r && r < 0xa0 {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}
