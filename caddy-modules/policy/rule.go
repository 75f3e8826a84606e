package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Origin is where a rule was written.
type Origin struct {
	// File is a path as the operator wrote it, or a word: "session", "built-in".
	File string
	// Line counts from 1; 0 when the origin has no lines.
	Line int
}

// String is "configs/allow/baseline.list:3", or the file alone without a line.
func (o Origin) String() string {
	switch {
	case o.File == "":
		return "unnamed"
	case o.Line == 0:
		return printable(o.File)
	default:
		return printable(o.File) + ":" + strconv.Itoa(o.Line)
	}
}

// shape is how a rule's host is matched.
type shape uint8

const (
	shapeNone   shape = iota // the zero Rule
	shapeExact               // api.example.com
	shapeUnder               // *.example.com
	shapeMiddle              // bedrock.*.amazonaws.com
	shapeAddr                // an address or a prefix
)

// Rule is one parsed line. The zero Rule matches nothing and Compile refuses it.
type Rule struct {
	// Origin is told to whoever is refused or allowed by the rule.
	Origin Origin

	shape   shape
	name    string // exact name; what follows "*." ; what follows ".*." in a middle wildcard
	head    string // what stands before ".*." in a middle wildcard
	prefix  netip.Prefix
	ports   []uint16 // sorted; empty means the default of the list it stands in
	private bool
	tcp     bool
	scheme  Scheme // SchemeHTTP or SchemeTLS; SchemeTCP for any
	text    string // canonical
}

// String is the canonical text, which ParseRule reads back to the same rule:
// lower case, no root dot, ports ascending and once each, flags last.
func (r Rule) String() string { return r.text }

// ParseRule reads one rule:
//
//	HOST [PORT…] [http|https] [private] [tcp]
//
// HOST is an exact name, a name with one star as its first label and at least two
// labels after it, a name with one star as a label in the middle, an address, or
// a CIDR prefix without host bits. Blanks around it are trimmed and case does not
// matter. A pattern that could never match, or that matches by accident, is an
// error that says what to write instead: a star glued to text, a star over a
// whole top-level domain, over an IPv4 address or over localhost, a numeric
// top-level domain, a port, path or scheme written into the host, a name that is
// not in its A-label form. With http the rule is about plain HTTP alone, with https
// about TLS on port 443 alone; either means its own port where none is named. The
// line must hold no comment and no line break.
func ParseRule(line string, from Origin) (Rule, error) {
	r, err := parseRule(line)
	if err != nil {
		// A rule of one word is already named by what is wrong with it.
		if syntax, ok := errors.AsType[*SyntaxError](err); ok && syntax.Input == strings.Trim(line, " \t") {
			return Rule{}, fmt.Errorf("parse rule: %w", err)
		}
		return Rule{}, fmt.Errorf("parse rule %s: %w", quote(line), err)
	}
	r.Origin = from
	return r, nil
}

func parseRule(line string) (Rule, error) {
	if i := strings.IndexFunc(line, isControl); i >= 0 {
		return Rule{}, malformed(line[i:i+1], "is a control byte: a rule is one line of printable text")
	}
	fields := strings.FieldsFunc(line, func(c rune) bool { return c == ' ' || c == '\t' })
	if len(fields) == 0 {
		return Rule{}, malformed(line, "names no host")
	}
	r, err := parsePattern(fields[0])
	if err != nil {
		return Rule{}, err
	}
	for _, field := range fields[1:] {
		switch {
		case field == "http" && r.scheme != SchemeTLS:
			r.scheme = SchemeHTTP
		case field == "https" && r.scheme != SchemeHTTP:
			r.scheme = SchemeTLS
		case field == "http" || field == "https":
			return Rule{}, malformed(line, "is for http and for https: a rule without either is for both")
		case field == "private":
			r.private = true
		case field == "tcp":
			r.tcp = true
		case isDigit(field[0]):
			port, err := ParsePort(field)
			if err != nil {
				return Rule{}, err
			}
			r.ports = append(r.ports, port)
		default:
			return Rule{}, malformed(field, "is neither a port nor one of the flags http, https, private and tcp")
		}
	}
	if r.shape == shapeAddr {
		// An address is its own permission; the flag would say nothing.
		r.private = false
	}
	slices.Sort(r.ports)
	r.ports = slices.Compact(r.ports)
	if err := r.checkScheme(line); err != nil {
		return Rule{}, err
	}
	r.text = r.canonicalText()
	return r, nil
}

// checkScheme refuses what could never match: TLS is asked for on port 443, while
// what a tunnel to another port carries is not known when it is judged.
func (r *Rule) checkScheme(line string) error {
	switch {
	case r.scheme == SchemeTCP:
	case r.tcp:
		return malformed(line, "has the flag tcp, which lets a tunnel carry anything, and a scheme, which does not: leave one of them out")
	case r.scheme == SchemeTLS && slices.ContainsFunc(r.ports, func(p uint16) bool { return p != httpsPort }):
		return malformed(line, "is for https on a port other than 443, where a tunnel may carry anything: leave https out")
	}
	return nil
}

// isControl leaves the tab, which separates fields like a blank.
func isControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

func (r *Rule) canonicalText() string {
	var b strings.Builder
	b.WriteString(r.host())
	for _, port := range r.ports {
		b.WriteByte(' ')
		b.WriteString(strconv.Itoa(int(port)))
	}
	switch r.scheme {
	case SchemeHTTP:
		b.WriteString(" http")
	case SchemeTLS:
		b.WriteString(" https")
	case SchemeTCP:
	}
	if r.private {
		b.WriteString(" private")
	}
	if r.tcp {
		b.WriteString(" tcp")
	}
	return b.String()
}

// host is the canonical pattern without ports and flags.
func (r *Rule) host() string {
	switch r.shape {
	case shapeExact:
		return r.name
	case shapeUnder:
		return "*." + r.name
	case shapeMiddle:
		return r.head + ".*." + r.name
	case shapeAddr:
		return prefixText(r.prefix)
	default:
		return ""
	}
}

// prefixText writes a single address without its length.
func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
