package violation

import "strings"

// name finds what was tried, and on what, in the words around one of the texts. Every
// program says it in its own way; what fits none of the ways stays unnamed.
func name(before, after string) (action, target string) {
	if action, target = behind(before, after); target != "" {
		return action, target
	}
	before = strings.TrimRight(before, " :(-[")
	before = strings.TrimSuffix(before, "EACCES")
	before = strings.TrimRight(before, " :(-[")
	if action, target = call(before); action != "" {
		return action, target
	}
	segment := lastSegment(before)
	if action, target = quoted(segment); target != "" {
		return action, target
	}
	return plain(segment, before)
}

// behind reads what follows the text.
func behind(before, after string) (action, target string) {
	switch {
	case strings.HasPrefix(after, ", ") && !strings.HasPrefix(after, ", errno"): // node: , open '/x'
		verb, rest, _ := strings.Cut(after[2:], " ")
		if target = unquoted(rest); target != "" && isWord(verb) {
			return verb, target
		}
	case strings.HasPrefix(after, " @ "): // ruby: @ rb_sysopen - /x (Errno::EACCES)
		if _, rest, ok := strings.Cut(after, " - "); ok {
			target, _, _ = strings.Cut(rest, " (Errno::")
			return "", target
		}
	case strings.HasPrefix(after, ": "): // python: '/x'; zsh: /x
		if target = unquoted(after[2:]); target != "" {
			return "", target
		}
		if rest := after[2:]; !strings.Contains(rest, " ") {
			return "", rest
		}
	}
	// One line of an error object: { errno: -1, code: 'EPERM', syscall: 'open', path: '/x' }
	if target = property(after, "path: "); target == "" {
		target = property(before, "path: ")
	}
	if target != "" {
		if action = property(after, "syscall: "); action == "" {
			action = property(before, "syscall: ")
		}
	}
	return action, target
}

func property(text, name string) string {
	if _, rest, ok := strings.Cut(text, name); ok {
		return unquoted(rest)
	}
	return ""
}

// call reads the form of a system call: openat(AT_FDCWD, "/x", O_RDONLY) = -1
func call(before string) (action, target string) {
	before = strings.TrimSuffix(strings.TrimSuffix(before, "EPERM"), " = -1 EACCES")
	before = strings.TrimSuffix(strings.TrimRight(before, " "), " = -1")
	if !strings.HasSuffix(before, ")") {
		return "", ""
	}
	open := strings.LastIndexByte(before, '(')
	if open <= 0 {
		return "", ""
	}
	start := open
	for start > 0 && wordAt(before, start-1) {
		start--
	}
	if start == open {
		return "", ""
	}
	arguments := before[open+1 : len(before)-1]
	if i := strings.IndexAny(arguments, `"'`); i >= 0 {
		target = unquoted(arguments[i:])
	} else if !strings.Contains(arguments, " ") {
		target = arguments
	}
	return before[start:open], target
}

// lastSegment is what stands behind the last ": ", or all of it.
func lastSegment(text string) string {
	if i := strings.LastIndex(text, ": "); i >= 0 && i+2 < len(text) {
		return text[i+2:]
	}
	return text
}

// quotes are the pairs in which programs write names.
var quotes = []struct{ open, close string }{{"'", "'"}, {"\u2018", "\u2019"}, {`"`, `"`}, {"`", "'"}, {"`", "`"}}

// quoted reads a name in quotes and the words before it: cannot touch 'x'.
func quoted(segment string) (action, target string) {
	for _, q := range quotes {
		before, rest, ok := strings.Cut(segment, q.open)
		if !ok {
			continue
		}
		if inner, _, ok := strings.Cut(rest, q.close); ok && inner != "" {
			return verb(before), inner
		}
	}
	return "", ""
}

// unquoted is the name in quotes that text begins with.
func unquoted(text string) string {
	for _, q := range quotes {
		if rest, ok := strings.CutPrefix(text, q.open); ok {
			if inner, _, ok := strings.Cut(rest, q.close); ok {
				return inner
			}
		}
	}
	return ""
}

// attempts are how programs begin to say that they could not.
var attempts = []string{
	"cannot ", "can't ", "can not ", "could not ", "couldn't ", "unable to ", "failed to ", "failure to ", "error while ", "error ",
}

// attempt takes such words off.
func attempt(text string) (rest string, ok bool) {
	for _, a := range attempts {
		if len(text) >= len(a) && strings.EqualFold(text[:len(a)], a) {
			return text[len(a):], true
		}
	}
	return text, false
}

// verb makes an action of the words before a name.
func verb(words string) string {
	words, _ = attempt(strings.TrimSpace(words))
	words = strings.TrimSpace(words)
	if words == "" || len(words) > maxAction || strings.ContainsAny(words, "/=()[]{}") {
		return ""
	}
	return strings.ToLower(words)
}

// calls are verbs that stand alone before a path, as Go writes them.
var calls = map[string]string{
	"open": "open", "mkdir": "mkdir", "rename": "rename", "remove": "remove", "unlink": "unlink", "unlinkat": "unlinkat", "rmdir": "rmdir",
	"symlink": "symlink", "link": "link", "chmod": "chmod", "chown": "chown", "stat": "stat", "lstat": "lstat", "truncate": "truncate",
	"read": "read", "write": "write", "fork/exec": "exec", "exec": "exec", "execve": "exec", "kill": "kill", "mount": "mount",
	"create": "create", "creating": "create", "opening": "open", "writing": "write", "reading": "read", "scandir": "scandir",
	"connect": "connect", "bind": "bind", "listen": "listen", "socket": "socket", "ptrace": "ptrace", "setxattr": "setxattr", "utime": "utime",
}

// plain reads a segment without quotes: cannot create /x, open /x, /x, dial tcp a:1.
func plain(segment, before string) (action, target string) {
	words, tried := attempt(segment)
	first, rest, several := strings.Cut(words, " ")
	if known, ok := calls[strings.ToLower(first)]; ok {
		rest, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(rest, "file "), "directory "), " for ")
		switch head := strings.TrimSuffix(before, ": "+segment); {
		case several && rest != "":
			return known, rest
		case strings.HasPrefix(lastSegment(head), "dial "): // dial tcp 10.0.0.1:443: connect
			fields := strings.Fields(lastSegment(head))
			return known, fields[len(fields)-1]
		}
		return known, ""
	}
	switch {
	case tried && several:
		if last := words[strings.LastIndexByte(words, ' ')+1:]; isPath(last) {
			return verb(strings.TrimSuffix(words, last)), last
		}
		return verb(words), ""
	case isPath(segment), segment != before && !strings.Contains(segment, " "):
		return "", segment
	}
	return "", ""
}

func isPath(text string) bool {
	return text != "" && (strings.HasPrefix(text, "/") || strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../") || strings.HasPrefix(text, "~/") ||
		!strings.ContainsAny(text, " ") && strings.Contains(text, "/"))
}

func isWord(text string) bool {
	for i := range len(text) {
		if !wordAt(text, i) {
			return false
		}
	}
	return text != ""
}
