package sbpl

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind says what a Node is.
type Kind uint8

// The kinds of a Node.
const (
	List Kind = iota
	Symbol
	String
	Regex // a raw #"…" literal
	Int
)

// Node is one expression of a profile.
type Node struct {
	Kind  Kind
	Text  string // the symbol, the unescaped string, or the raw regex
	Int   int64
	Items []Node // of a List
	Line  int    // where it begins, from 1
}

// head returns the leading symbol of a list, or "".
func (n Node) head() string {
	if n.Kind == List && len(n.Items) > 0 && n.Items[0].Kind == Symbol {
		return n.Items[0].Text
	}
	return ""
}

// ProfileError is a profile that sandbox-exec would refuse.
type ProfileError struct {
	Line   int
	Reason string
}

func (e *ProfileError) Error() string {
	return fmt.Sprintf("load profile: line %d: %s", e.Line, e.Reason)
}

func failf(line int, format string, args ...any) error {
	return &ProfileError{Line: line, Reason: fmt.Sprintf(format, args...)}
}

// maxDepth bounds the nesting of lists; real profiles stay below ten.
const maxDepth = 64

// Parse reads the expressions of src. It fails on unbalanced parentheses, a
// string without end or with a line feed in it, and an unknown escape.
func Parse(src string) ([]Node, error) {
	p := &parser{src: src, line: 1}
	var nodes []Node
	for {
		p.skip()
		if p.at >= len(p.src) {
			return nodes, nil
		}
		if p.src[p.at] == ')' {
			return nil, failf(p.line, "unbalanced )")
		}
		n, err := p.node(0)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
}

type parser struct {
	src  string
	at   int
	line int
}

// skip passes blanks and comments.
func (p *parser) skip() {
	for p.at < len(p.src) {
		switch c := p.src[p.at]; c {
		case '\n':
			p.line++
			p.at++
		case ' ', '\t', '\r':
			p.at++
		case ';':
			for p.at < len(p.src) && p.src[p.at] != '\n' {
				p.at++
			}
		default:
			return
		}
	}
}

func (p *parser) node(depth int) (Node, error) {
	if depth > maxDepth {
		return Node{}, failf(p.line, "nested deeper than %d", maxDepth)
	}
	switch rest := p.src[p.at:]; {
	case rest[0] == '(':
		return p.list(depth)
	case rest[0] == '"':
		return p.quoted()
	case strings.HasPrefix(rest, `#"`):
		return p.regex()
	default:
		return p.atom()
	}
}

func (p *parser) list(depth int) (Node, error) {
	n := Node{Kind: List, Line: p.line}
	p.at++
	for {
		p.skip()
		if p.at >= len(p.src) {
			return Node{}, failf(n.Line, "( without )")
		}
		if p.src[p.at] == ')' {
			p.at++
			return n, nil
		}
		item, err := p.node(depth + 1)
		if err != nil {
			return Node{}, err
		}
		n.Items = append(n.Items, item)
	}
}

func (p *parser) quoted() (Node, error) {
	n := Node{Kind: String, Line: p.line}
	var text strings.Builder
	for p.at++; p.at < len(p.src); p.at++ {
		switch c := p.src[p.at]; c {
		case '"':
			p.at++
			n.Text = text.String()
			return n, nil
		case '\n':
			return Node{}, failf(n.Line, "line feed in a string")
		case 0:
			return Node{}, failf(n.Line, "NUL in a string")
		case '\\':
			p.at++
			if p.at >= len(p.src) || (p.src[p.at] != '"' && p.src[p.at] != '\\') {
				return Node{}, failf(n.Line, `unknown escape in a string; only \" and \\ are known`)
			}
			text.WriteByte(p.src[p.at])
		default:
			text.WriteByte(c)
		}
	}
	return Node{}, failf(n.Line, "string without end")
}

// regex reads a raw literal: a backslash belongs to the expression, and only an
// escaped quote does not end it.
func (p *parser) regex() (Node, error) {
	n := Node{Kind: Regex, Line: p.line}
	begin := p.at + 2
	for p.at = begin; p.at < len(p.src); p.at++ {
		switch p.src[p.at] {
		case '"':
			n.Text = p.src[begin:p.at]
			p.at++
			return n, nil
		case '\n':
			return Node{}, failf(n.Line, "line feed in a regex")
		case '\\':
			p.at++
		}
	}
	return Node{}, failf(n.Line, "regex without end")
}

func (p *parser) atom() (Node, error) {
	begin := p.at
	for p.at < len(p.src) && !strings.ContainsRune(" \t\r\n();\"", rune(p.src[p.at])) {
		if p.src[p.at] < ' ' || p.src[p.at] > '~' {
			return Node{}, failf(p.line, "byte %#x outside a string", p.src[p.at])
		}
		p.at++
	}
	text := p.src[begin:p.at]
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return Node{Kind: Int, Int: i, Text: text, Line: p.line}, nil
	}
	return Node{Kind: Symbol, Text: text, Line: p.line}, nil
}
