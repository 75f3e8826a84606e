package main

import (
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"unicode"

	"postern/caddy-modules/session/lease"
	"postern/launcher/sandbox"
	"postern/launcher/violation"
)

// maxTargets bounds how many different refusals a summary tells apart, and maxShown
// how many it prints: a run can make up names faster than anybody reads.
const (
	maxTargets = 1000
	maxShown   = 10
	maxRefs    = 20 // of one push
)

// refusals collects what was denied to a run.
type refusals struct {
	mu    sync.Mutex
	order []string
	by    map[string]*refused
	more  uint64 // refusals of targets beyond maxTargets
}

// The kinds of what was denied.
const (
	kindDenied    = "denied"
	kindPush      = "push refused"
	kindViolation = "violation"
)

// refused is one target, and why it was denied.
type refused struct {
	kind   string
	What   string   `json:"target"`
	Why    string   `json:"reason,omitempty"`
	Code   string   `json:"code,omitempty"`
	Rule   string   `json:"rule,omitempty"`
	Source string   `json:"source,omitempty"` // file and line of the rule
	Refs   []string `json:"refs,omitempty"`   // of a push, each with its rule
	Cure   string   `json:"cure,omitempty"`
	Count  uint64   `json:"count"`

	action, raw, comm string // of a violation
	named             string // of one by a rule about names: which, in words
}

// String is one line. Most reasons begin with what was refused and need not be told.
func (r *refused) String() string {
	text := r.kind
	if r.Count > 1 {
		text += fmt.Sprintf(" %d times", r.Count)
	}
	if r.kind == kindViolation {
		return r.violation(text)
	}
	if !strings.HasPrefix(r.Why, r.What) || r.What == "" {
		text += ": " + r.What
	}
	if r.Why != "" {
		text += ": " + r.Why
	}
	return text
}

// violation is the line of a denied call. What the run said of it was read; who tried, and
// by which rule it failed, was not.
func (r *refused) violation(text string) string {
	text = strings.TrimSuffix(text+": "+r.action+" "+r.What, " ")
	if r.named == "" {
		return text
	}
	text += ": " + r.named
	if r.comm != "" {
		text += ", tried by " + r.comm
	}
	return text + "; " + r.Cure
}

// add takes an event that is a refusal, and no other.
func (r *refusals) add(e lease.Event) {
	d := &refused{Why: printable(e.Text("reason"))}
	switch {
	case e.Type == lease.EventDenied:
		d.kind, d.What = kindDenied, e.Text("target")
		d.Code, d.Rule, d.Source = printable(e.Text("code")), printable(e.Text("rule")), printable(e.Text("source"))
		// The sentence of the policy ends with what would change it.
		if i := strings.LastIndex(d.Why, "; "); i >= 0 {
			d.Cure = d.Why[i+2:]
		}
	case e.Type == lease.EventPush && e.Text("outcome") != "accepted":
		d.kind, d.What = kindPush, e.Text("repository")
		d.Refs = refsOf(e)
		d.Cure = "push to a ref that the gateway's rules allow, or have a rule added"
	default:
		return
	}
	d.Count = 1
	if n, ok := e.Fields["count"].(float64); ok && n >= 1 {
		d.Count = uint64(n)
	}
	r.take(d, d.What)
}

// refsOf names the refs of a push, each with the rule that decided about it.
func refsOf(e lease.Event) []string {
	refs, _ := e.Fields["refs"].([]any)
	var out []string
	for _, ref := range refs[:min(len(refs), maxRefs)] {
		fields, _ := ref.(map[string]any)
		name, _ := fields["ref"].(string)
		rule, _ := fields["rule"].(string)
		out = append(out, printable(strings.TrimSuffix(name+" ("+rule+")", " ()")))
	}
	return out
}

// violated takes a denied system call.
func (r *refusals) violated(v violation.Report) {
	d := &refused{
		kind: kindViolation, What: v.Target, action: printable(v.Action), raw: printable(v.Raw), Count: v.Count,
		Rule: printable(v.Rule), Source: printable(v.Source), comm: printable(v.Comm),
		Cure: "where the run needs it: show the folder with --bind, and take it out of --protect and --hide; what the system denies to you it denies to a run",
	}
	if v.Rule != "" {
		d.named, d.Cure = refusedName(v.Target, v.Rule, v.Source)
	}
	r.take(d, v.Action+" "+v.Target+" "+v.Rule)
}

// take counts one refusal of what is known by key among its kind.
func (r *refusals) take(d *refused, key string) {
	d.What = printable(d.What)
	key = d.kind + " " + printable(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.by[key]; known != nil {
		known.Count += d.Count
		return
	}
	if len(r.order) >= maxTargets {
		r.more += d.Count
		return
	}
	if r.by == nil {
		r.by = map[string]*refused{}
	}
	r.by[key] = d
	r.order = append(r.order, key)
}

// print writes the summary: at most maxShown refusals, and the changes.
func (r *refusals) print(w io.Writer, changes []sandbox.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := r.more
	for i, key := range r.order {
		d := r.by[key]
		if i >= maxShown {
			rest += d.Count
			continue
		}
		fmt.Fprintln(w, "postern:", d)
	}
	if rest > 0 {
		fmt.Fprintf(w, "postern: and %d refusals of other targets\n", rest)
	}
	printChanges(w, changes)
}

// maxAlike bounds how many changes of files of one name are printed, and maxChanges how
// many in all: a run can make files faster than anybody reads, and bury one under them.
const (
	maxAlike   = 10
	maxChanges = 400
)

// printChanges writes them, and how many more there are.
func printChanges(w io.Writer, changes []sandbox.Change) {
	alike := map[string]int{}
	shown := 0
	for _, c := range changes {
		name := strings.ToLower(path.Base(c.Path))
		if strings.HasPrefix(name, ".env") {
			name = ".env"
		}
		if alike[name] >= maxAlike || shown >= maxChanges {
			continue
		}
		alike[name]++
		shown++
		printChange(w, c)
	}
	if rest := len(changes) - shown; rest > 0 {
		fmt.Fprintf(w, "postern: and %d further files like these\n", rest)
	}
}

// printChange writes one line. What changed may quote what the run made: where a link
// led, what a file is called.
func printChange(w io.Writer, c sandbox.Change) {
	fmt.Fprintf(w, "postern: %s %s; %s\n", printable(c.Path), printable(c.What), c.Cure)
}

// printable keeps hostile text from moving the cursor, filling the screen, or reading
// otherwise than it is (characters that turn the direction of text, or are not seen).
func printable(text string) string { return printableTo(text, 400) }

// printableTo is printable of at most limit bytes, and what says that there were more.
func printableTo(text string, limit int) string {
	text = strings.ReplaceAll(text, "\n", "; ") // joined errors
	text = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}
