package sbpl

import (
	"slices"
	"strings"
)

// Rule is one (allow …) or (deny …) form.
type Rule struct {
	Allow   bool
	Ops     []string
	Message string // of (with message "…"), which ends the kernel's log line
	Quiet   bool   // (with no-report) or (with no-log)
	Line    int

	filters []filter // any of them; none at all matches everything
}

// Filtered reports whether the rule has a filter. An unfiltered rule sets the
// fallback of its operations.
func (r *Rule) Filtered() bool { return len(r.filters) > 0 }

// Profile is a profile that sandbox-exec would accept.
type Profile struct{ Rules []Rule }

// Load parses src and checks it as strictly as sandbox-exec does. params are the
// values of -D: (param "KEY") of an absent key fails the profile. All errors are
// *ProfileError.
func Load(src string, params map[string]string) (*Profile, error) {
	nodes, err := Parse(src)
	if err != nil {
		return nil, err
	}
	l := loader{params: params}
	p := &Profile{}
	for i, n := range nodes {
		switch n.head() {
		case "version":
			if i != 0 || len(n.Items) != 2 || n.Items[1].Kind != Int || n.Items[1].Int != 1 {
				return nil, failf(n.Line, "want (version 1), once and first")
			}
		case "allow", "deny":
			if i == 0 {
				return nil, failf(n.Line, "want (version 1) first")
			}
			r, err := l.rule(n)
			if err != nil {
				return nil, err
			}
			p.Rules = append(p.Rules, r)
		case "debug":
		default:
			return nil, failf(n.Line, "unbound variable: %s", describe(n))
		}
	}
	if len(nodes) == 0 {
		return nil, failf(1, "empty profile")
	}
	return p, nil
}

// describe names a node for an error.
func describe(n Node) string {
	if h := n.head(); h != "" {
		return h
	}
	if n.Text != "" {
		return n.Text
	}
	return "a list"
}

type loader struct{ params map[string]string }

func (l loader) rule(n Node) (Rule, error) {
	r := Rule{Allow: n.head() == "allow", Line: n.Line}
	items := n.Items[1:]
	for len(items) > 0 && items[0].Kind == Symbol {
		op := items[0].Text
		if _, ok := parents[op]; !ok {
			return Rule{}, failf(items[0].Line, "unbound variable: %s", op)
		}
		if slices.Contains(r.Ops, op) {
			return Rule{}, failf(items[0].Line, "%s twice in one rule", op)
		}
		r.Ops = append(r.Ops, op)
		items = items[1:]
	}
	if len(r.Ops) == 0 {
		return Rule{}, failf(n.Line, "%s without an operation", n.head())
	}
	for _, item := range items {
		if item.head() == "with" {
			if err := l.modifier(&r, item); err != nil {
				return Rule{}, err
			}
			continue
		}
		f, err := l.filter(item, 0)
		if err != nil {
			return Rule{}, err
		}
		r.filters = append(r.filters, f)
	}
	return r, nil
}

func (l loader) modifier(r *Rule, n Node) error {
	if len(n.Items) < 2 || n.Items[1].Kind != Symbol {
		return failf(n.Line, "want (with MODIFIER)")
	}
	switch name, args := n.Items[1].Text, n.Items[2:]; name {
	case "message":
		text, err := l.text(n, args)
		if err != nil {
			return err
		}
		r.Message = text
	case "no-report", "no-log":
		if len(args) != 0 {
			return failf(n.Line, "(with %s) takes nothing", name)
		}
		r.Quiet = true
	case "send-signal":
		if len(args) != 1 || args[0].Kind != Symbol || !strings.HasPrefix(args[0].Text, "SIG") {
			return failf(n.Line, "want (with send-signal SIGNAME)")
		}
		if r.Allow {
			return failf(n.Line, "send-signal on an allow rule")
		}
	default:
		return failf(n.Line, "unbound variable: %s", name)
	}
	return nil
}

// text evaluates exactly one string expression: a literal, (param "KEY") or
// (string-append …).
func (l loader) text(n Node, args []Node) (string, error) {
	if len(args) != 1 {
		return "", failf(n.Line, "%s takes one string", describe(n))
	}
	return l.stringOf(args[0], 0)
}

func (l loader) stringOf(n Node, depth int) (string, error) {
	if depth > maxDepth {
		return "", failf(n.Line, "nested deeper than %d", maxDepth)
	}
	switch {
	case n.Kind == String:
		return n.Text, nil
	case n.head() == "param" && len(n.Items) == 2 && n.Items[1].Kind == String:
		v, ok := l.params[n.Items[1].Text]
		if !ok {
			return "", failf(n.Line, "undefined parameter %q", n.Items[1].Text)
		}
		return v, nil
	case n.head() == "string-append":
		var b strings.Builder
		for _, item := range n.Items[1:] {
			s, err := l.stringOf(item, depth+1)
			if err != nil {
				return "", err
			}
			b.WriteString(s)
		}
		return b.String(), nil
	}
	return "", failf(n.Line, "want a string, not %s", describe(n))
}
