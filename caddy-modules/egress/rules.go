package egress

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"postern/caddy-modules/policy"
	"postern/configs"
)

// Rule is one rule of a list. Its text form, one rule a line, is
//
//	HOST [PORT…] [http|https] [private] [tcp]
type Rule struct {
	// A name, *.NAME for every name below NAME, NAME with one star in the middle
	// for exactly one label, an address, or a network in CIDR notation.
	Host string `json:"host"`

	// The ports the rule is about. Default: 443 and 80 in a rule that allows,
	// every port in one that refuses.
	Ports []uint16 `json:"ports,omitempty"`

	// The one scheme the rule is about: `http`, which is plain HTTP, or `https`, which
	// is TLS on port 443. Default: any.
	Scheme string `json:"scheme,omitempty"`

	// Permit answers with private addresses for this name. Default: false.
	Private bool `json:"private,omitempty"`

	// Permit something other than TLS on port 443. Default: false.
	TCP bool `json:"tcp,omitempty"`

	// Where the rule was written, as FILE:LINE; set by the Caddyfile adapter and
	// named in every decision. Default: the rule's place in the JSON.
	From string `json:"from,omitempty"`
}

// Words that follow the ports of a rule.
const (
	flagHTTP    = "http"
	flagHTTPS   = "https"
	flagPrivate = "private"
	flagTCP     = "tcp"
)

// parseRuleWords makes a rule of the words of one line and has package policy
// judge it, which alone knows what a host may be.
func parseRuleWords(words []string, from policy.Origin) (Rule, error) {
	for _, w := range words {
		// A quoted word of a Caddyfile may hold blanks, and would be several
		// words to the parser of rules.
		if w == "" || strings.ContainsFunc(w, unicode.IsSpace) {
			return Rule{}, fmt.Errorf("parse rule: %q is not one word", w)
		}
	}
	if len(words) == 0 {
		return Rule{}, fmt.Errorf("parse rule: no host")
	}
	r := Rule{Host: words[0]}
	if from.File != "" {
		r.From = from.String()
	}
	for _, w := range words[1:] {
		switch {
		case w == flagHTTP || w == flagHTTPS:
			r.Scheme = w
		case w == flagPrivate:
			r.Private = true
		case w == flagTCP:
			r.TCP = true
		case isDigits(w):
			port, err := policy.ParsePort(w)
			if err != nil {
				return Rule{}, fmt.Errorf("parse rule %q: %w", strings.Join(words, " "), err)
			}
			r.Ports = append(r.Ports, port)
		}
	}
	// The words as they stand, so that an unknown or misplaced one is refused
	// there and not lost here.
	if _, err := policy.ParseRule(strings.Join(words, " "), from); err != nil {
		return Rule{}, err
	}
	return r, nil
}

// text is the rule as a list file has it.
func (r Rule) text() string {
	words := []string{r.Host}
	for _, p := range r.Ports {
		words = append(words, strconv.Itoa(int(p)))
	}
	if r.Scheme != "" {
		words = append(words, r.Scheme)
	}
	if r.Private {
		words = append(words, flagPrivate)
	}
	if r.TCP {
		words = append(words, flagTCP)
	}
	return strings.Join(words, " ")
}

// compileRules parses the rules at place, which names the list in the JSON for
// rules that do not say where they come from.
func compileRules(rules []Rule, place string) ([]policy.Rule, error) {
	out := make([]policy.Rule, 0, len(rules))
	for i, r := range rules {
		from := policy.Origin{File: place, Line: i + 1}
		if r.From != "" {
			var err error
			if from, err = parseOrigin(r.From); err != nil {
				return nil, fmt.Errorf("%s: rule %d: %w", place, i+1, err)
			}
		}
		if strings.ContainsFunc(r.Host, unicode.IsSpace) {
			return nil, fmt.Errorf("%s: rule %d: host %q holds a blank", place, i+1, r.Host)
		}
		if r.Scheme != "" && r.Scheme != flagHTTP && r.Scheme != flagHTTPS {
			return nil, fmt.Errorf("%s: rule %d: scheme %q is neither http nor https", place, i+1, r.Scheme)
		}
		rule, err := policy.ParseRule(r.text(), from)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		out = append(out, rule)
	}
	return out, nil
}

// parseOrigin reads FILE:LINE; the file may hold colons itself.
func parseOrigin(text string) (policy.Origin, error) {
	i := strings.LastIndexByte(text, ':')
	if i <= 0 {
		return policy.Origin{}, fmt.Errorf("parse from %q: want FILE:LINE", text)
	}
	line, err := strconv.Atoi(text[i+1:])
	if err != nil || line < 1 {
		return policy.Origin{}, fmt.Errorf("parse from %q: want FILE:LINE", text)
	}
	return policy.Origin{File: text[:i], Line: line}, nil
}

// builtin parses every embedded list of a folder, "allow" or "deny". They are
// tested with the program, so an error here is one of the build.
func builtin(folder string) ([]policy.Rule, error) {
	var rules []policy.Rule
	for _, name := range configs.Lists(folder) {
		f, err := configs.FS.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read built-in list: %w", err)
		}
		list, err := policy.ParseList(f, "built-in "+configs.Source(name))
		_ = f.Close() // an embedded file has nothing to lose
		if err != nil {
			return nil, fmt.Errorf("read built-in list: %w", err)
		}
		rules = append(rules, list...)
	}
	return rules, nil
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func cutRange(text string) (a, b string, ok bool) {
	a, b, ok = strings.Cut(text, "-")
	return strings.TrimSpace(a), strings.TrimSpace(b), ok
}
