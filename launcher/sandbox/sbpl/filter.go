package sbpl

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// filter is one condition of a rule.
type filter interface {
	match(q Request, how Reading) bool
}

// filter reads one filter expression.
func (l loader) filter(n Node, depth int) (filter, error) {
	if depth > maxDepth {
		return nil, failf(n.Line, "nested deeper than %d", maxDepth)
	}
	args := n.Items
	if len(args) > 0 {
		args = args[1:]
	}
	switch name := n.head(); name {
	case "require-all", "require-any", "require-not":
		return l.combined(n, args, depth)
	case "literal", "subpath", "prefix":
		return l.path(n, name, args)
	case "regex":
		return l.regex(n, args)
	case "remote", "local":
		return l.endpoint(n, name, args)
	case "global-name", "local-name", "preference-domain", "sysctl-name", "iokit-user-client-class":
		text, err := l.text(n, args)
		return nameFilter{text}, err
	case "global-name-regex":
		f, err := l.regex(n, args)
		return nameRegex{f}, err
	case "target":
		return symbol(n, args, func(q Request) string { return q.Target }, "self", "same-sandbox", "others", "children", "pgrp")
	case "vnode-type":
		return symbol(n, args, func(q Request) string { return cmpOr(q.Vnode, "REGULAR-FILE") },
			"REGULAR-FILE", "DIRECTORY", "SYMLINK", "SOCKET", "FIFO", "CHARACTER-DEVICE", "BLOCK-DEVICE", "TTY")
	case "socket-domain":
		return symbol(n, args, func(q Request) string { return q.Socket.Domain }, "AF_UNIX", "AF_INET", "AF_INET6", "AF_SYSTEM", "AF_ROUTE")
	case "socket-type":
		return symbol(n, args, func(q Request) string { return q.Socket.Type }, "SOCK_STREAM", "SOCK_DGRAM", "SOCK_RAW")
	case "socket-protocol":
		if len(args) != 1 || args[0].Kind != Int {
			return nil, failf(n.Line, "want (socket-protocol NUMBER)")
		}
		return symbolFilter{args[0].Text, func(q Request) string { return q.Socket.Protocol }}, nil
	default:
		return nil, failf(n.Line, "unbound variable: %s", describe(n))
	}
}

func cmpOr(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

type symbolFilter struct {
	want string
	of   func(Request) string
}

func (f symbolFilter) match(q Request, _ Reading) bool { return f.of(q) == f.want }

func symbol(n Node, args []Node, of func(Request) string, known ...string) (filter, error) {
	if len(args) != 1 || args[0].Kind != Symbol || !slices.Contains(known, args[0].Text) {
		return nil, failf(n.Line, "%s takes one of %s", n.head(), strings.Join(known, " "))
	}
	return symbolFilter{args[0].Text, of}, nil
}

type combination struct {
	form string
	of   []filter
}

func (l loader) combined(n Node, args []Node, depth int) (filter, error) {
	c := combination{form: n.head()}
	for _, a := range args {
		f, err := l.filter(a, depth+1)
		if err != nil {
			return nil, err
		}
		c.of = append(c.of, f)
	}
	if len(c.of) == 0 || (c.form == "require-not" && len(c.of) != 1) {
		return nil, failf(n.Line, "%s with %d filters", c.form, len(c.of))
	}
	return c, nil
}

func (c combination) match(q Request, how Reading) bool {
	hit := func(f filter) bool { return f.match(q, how) }
	switch c.form {
	case "require-all":
		return !slices.ContainsFunc(c.of, func(f filter) bool { return !hit(f) })
	case "require-any":
		return slices.ContainsFunc(c.of, hit)
	default:
		return !hit(c.of[0])
	}
}

type pathFilter struct{ form, path string }

// path reads literal, subpath and prefix. A subpath that ends in a slash never
// matches anything in the kernel, so it is refused here.
func (l loader) path(n Node, form string, args []Node) (filter, error) {
	path, err := l.text(n, args)
	switch {
	case err != nil:
		return nil, err
	case !strings.HasPrefix(path, "/"):
		return nil, failf(n.Line, "%s %q is not absolute", form, path)
	case form == "subpath" && path != "/" && strings.HasSuffix(path, "/"):
		return nil, failf(n.Line, "subpath %q ends in a slash and never matches", path)
	}
	return pathFilter{form, path}, nil
}

func (f pathFilter) match(q Request, how Reading) bool {
	if q.Path == "" {
		return false
	}
	path, want := q.Path, f.path
	if how.FoldCase {
		path, want = strings.ToLower(path), strings.ToLower(want)
	}
	switch f.form {
	case "literal":
		return path == want
	case "prefix":
		return strings.HasPrefix(path, want)
	default:
		return path == want || want == "/" || strings.HasPrefix(path, want+"/")
	}
}

type regexFilter struct{ re *regexp.Regexp }

// regex reads one or more expressions. "(?" is refused: one public measurement
// has it break the profile, another has the rule silently never fire.
func (l loader) regex(n Node, args []Node) (filter, error) {
	either := combination{form: "require-any"}
	for _, a := range args {
		text := a.Text
		if a.Kind != Regex {
			var err error
			if text, err = l.stringOf(a, 0); err != nil {
				return nil, err
			}
		}
		if strings.Contains(text, "(?") {
			return nil, failf(n.Line, "regex %q: (? is not part of the dialect", text)
		}
		re, err := regexp.Compile(text)
		if err != nil {
			return nil, failf(n.Line, "regex %q: %v", text, err)
		}
		either.of = append(either.of, regexFilter{re})
	}
	if len(either.of) == 0 {
		return nil, failf(n.Line, "regex without an expression")
	}
	return either, nil
}

// match is case-sensitive under every reading: regex rules are, even on a volume
// that folds case, which is why names go into them as letter classes.
func (f regexFilter) match(q Request, _ Reading) bool {
	return q.Path != "" && f.re.MatchString(q.Path)
}

type nameFilter struct{ name string }

func (f nameFilter) match(q Request, _ Reading) bool { return q.Name != "" && q.Name == f.name }

type nameRegex struct{ path filter }

func (f nameRegex) match(q Request, how Reading) bool {
	return f.path.match(Request{Path: q.Name}, how)
}

type endpointFilter struct {
	local bool
	proto string // ip, tcp, udp, with 4 or 6 where given
	host  string // localhost or *
	port  int    // -1 is *
}

// endpoint reads (remote|local PROTO "HOST:PORT") and (… unix-socket [(path-literal P)…]).
func (l loader) endpoint(n Node, side string, args []Node) (filter, error) {
	if len(args) > 0 && args[0].Kind == Symbol && args[0].Text == "unix-socket" {
		return l.unixSocket(n, args[1:])
	}
	if len(args) < 1 || len(args) > 2 || args[0].Kind != Symbol {
		return nil, failf(n.Line, "want (%s PROTOCOL [\"HOST:PORT\"])", side)
	}
	f := endpointFilter{local: side == "local", proto: args[0].Text, host: "*", port: -1}
	if !slices.Contains([]string{"ip", "ip4", "ip6", "tcp", "tcp4", "tcp6", "udp", "udp4", "udp6"}, f.proto) {
		return nil, failf(n.Line, "unknown protocol %s", f.proto)
	}
	if len(args) == 1 {
		return f, nil
	}
	text, err := l.stringOf(args[1], 0)
	if err != nil {
		return nil, err
	}
	host, port, ok := strings.Cut(text, ":")
	if !ok || (host != "*" && host != "localhost") {
		return nil, failf(n.Line, "%q: host must be * or localhost", text)
	}
	f.host = host
	if port != "*" {
		f.port, err = strconv.Atoi(port)
		if err != nil || f.port < 1 || f.port > 65535 || strconv.Itoa(f.port) != port {
			return nil, failf(n.Line, "%q: want a port from 1 to 65535 or *", text)
		}
	}
	return f, nil
}

func (f endpointFilter) match(q Request, _ Reading) bool {
	end := q.Remote
	if f.local {
		// A filter on the local end of an outbound socket matches whatever the
		// remote end is: it once opened a whole network.
		end = q.Local
	}
	if end == nil {
		return false
	}
	family := f.proto[len(f.proto)-1:]
	if (family == "4" && end.IPv6) || (family == "6" && !end.IPv6) {
		return false
	}
	if proto := strings.TrimRight(f.proto, "46"); proto != "ip" && proto != end.Proto {
		return false
	}
	if f.host == "localhost" && end.Host != "localhost" {
		return false
	}
	return f.port < 0 || f.port == end.Port
}

type unixFilter struct{ paths []filter }

func (l loader) unixSocket(n Node, args []Node) (filter, error) {
	var f unixFilter
	for _, a := range args {
		form, ok := strings.CutPrefix(a.head(), "path-")
		if !ok || (form != "literal" && form != "regex" && form != "subpath") {
			return nil, failf(n.Line, "unix-socket takes path-literal, path-subpath or path-regex")
		}
		var p filter
		var err error
		if form == "regex" {
			p, err = l.regex(a, a.Items[1:])
		} else {
			p, err = l.path(a, form, a.Items[1:])
		}
		if err != nil {
			return nil, err
		}
		f.paths = append(f.paths, p)
	}
	return f, nil
}

func (f unixFilter) match(q Request, how Reading) bool {
	if q.Path == "" || q.Remote != nil || q.Local != nil {
		return false
	}
	return len(f.paths) == 0 || slices.ContainsFunc(f.paths, func(p filter) bool { return p.match(q, how) })
}
