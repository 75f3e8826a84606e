package violation

import (
	"encoding/json"
	"strings"
)

// entry is what is read of a line of log stream --style ndjson.
type entry struct {
	EventMessage string `json:"eventMessage"`
}

// denial is one report of the kernel's sandbox:
//
//	Sandbox: node(4711) deny(1) file-write-create /Users/me/x
//
// The number behind deny may be missing, the target may have spaces or be missing, and a
// tag may end it, on a line of its own or not.
type denial struct{ process, op, target, raw string }

// parseLog reads one line of the log's stream. Of the messages that do not end in tag
// nothing is ours; an empty tag takes all.
func parseLog(line []byte, tag string) (denial, bool) {
	var e entry
	if json.Unmarshal(line, &e) != nil {
		return denial{}, false // the stream begins with a line for people
	}
	text := strings.TrimSpace(e.EventMessage)
	text, ours := strings.CutSuffix(text, tag)
	if tag != "" && !ours || strings.Contains(text, "duplicate report") {
		return denial{}, false
	}
	text = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), `""`))
	who, what, ok := strings.Cut(text, " deny")
	if !ok {
		return denial{}, false
	}
	if what, ok = strings.CutPrefix(what, "("); ok {
		if _, what, ok = strings.Cut(what, ")"); !ok {
			return denial{}, false
		}
	}
	if what = strings.TrimPrefix(what, " "); what == "" || what[0] == ' ' {
		return denial{}, false // no operation
	}
	d := denial{raw: clip(printable(text), maxRaw)}
	d.op, d.target, _ = strings.Cut(what, " ")
	if !isOperation(d.op) {
		return denial{}, false
	}
	d.target = clip(printable(strings.TrimSpace(d.target)), maxTarget)
	who = strings.TrimSpace(strings.TrimPrefix(who, "Sandbox:"))
	if open := strings.LastIndexByte(who, '('); open > 0 {
		d.process = who[:open]
	}
	return d, true
}

func isOperation(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < 'a' || c > 'z') && c != '-' && c != '*' {
			return false
		}
	}
	return len(text) <= maxAction
}

// printable keeps to one line what a file's name may spread over several.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || 0x80 <= r && r < 0xa0 {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

// The noise of a system at work (SPEC 92): what every program tries, and nobody misses.
var (
	// Only where there is no tag to say whose a line is.
	knownProcesses = []string{"pi", "sandbox-exec", "node", "python3", "python", "bash", "zsh", "sh", "git", "gh", "curl", "wget"}

	noisyOps = []string{"mach-lookup", "user-preference-write", "system-"}

	// Reads below these are of the system's own caches and settings.
	noisyReads = []string{
		"/System/", "/Library/", "/Applications/", "/usr/lib/", "/usr/share/", "/usr/bin/",
		"/private/etc/", "/private/var/db/", "/private/var/folders/", "/.fseventsd",
	}
	noisyReadEnds = []string{".node", ".dylib", ".so"}
	noisyTargets  = []string{"/dev/tty", "/private/var/run/syslog"}
	noisyWords    = []string{"mDNSResponder", "com.apple.diagnosticd", "com.apple.analyticsd"}
)

// noise reports whether a denial says nothing that a person could act on.
func (d *denial) noise(tagged bool) bool {
	has := func(list []string, match func(string, string) bool, in string) bool {
		for _, e := range list {
			if match(in, e) {
				return true
			}
		}
		return false
	}
	same := func(a, b string) bool { return a == b }
	read := strings.HasPrefix(d.op, "file-read")
	switch {
	case !tagged && !has(knownProcesses, same, d.process):
		return true
	case has(noisyOps, strings.HasPrefix, d.op):
		return true
	case read && (has(noisyReads, strings.HasPrefix, d.target) || has(noisyReadEnds, strings.HasSuffix, d.target)):
		return true
	case has(noisyTargets, strings.HasPrefix, d.target), has(noisyWords, strings.Contains, d.target):
		return true
	case d.op == "network-outbound" && d.target == "":
		return true // getaddrinfo's control socket, which has no name
	}
	return false
}
