package secrets

import (
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"
	"github.com/zricethezav/gitleaks/v8/config"
)

// Set is a compiled rule set. It is immutable and safe for concurrent use.
type Set struct {
	rules   []*rule
	words   *automaton
	allowed allowance // of every rule
}

// rule is one kind of credential.
type rule struct {
	id      string
	source  string
	re      func() *regexp.Regexp
	group   int
	entropy float64
	allowed []allowance

	// Where a literal was seen, a match begins at most before bytes ahead of it and
	// ends at most after bytes behind.
	before, after int64
	exact         []string // the match begins with one of these, letter for letter
	atWord        bool     // and not within a word
}

// allowance says what is no credential after all.
type allowance struct {
	target string // "" for the secret, "match" or "line"
	res    func() []*regexp.Regexp
	stops  []string
	paths  func() []*regexp.Regexp
}

// The parts of gitleaks' file that are used here.
type (
	fileAllow struct {
		Paths, Regexes, StopWords []string
		RegexTarget               string
	}
	fileRule struct {
		ID, Regex, Path string
		SecretGroup     int
		Entropy         float64
		Keywords        []string
		Allowlists      []fileAllow
	}
	file struct {
		Allowlist fileAllow
		Rules     []fileRule
	}
)

// Default is gitleaks' own set. It is compiled once, when it is first needed.
var Default = sync.OnceValues(func() (*Set, error) { return Parse(config.DefaultConfig) })

// Parse reads a set in gitleaks' format.
func Parse(text string) (*Set, error) {
	var f file
	if _, err := toml.Decode(text, &f); err != nil {
		return nil, fmt.Errorf("parse secret rules: %w", err)
	}
	s := &Set{allowed: f.Allowlist.compile()}
	words := map[string][]uint16{}
	for _, r := range f.Rules {
		if r.ID == "generic-api-key" || r.Path != "" || r.Regex == "" || len(r.Keywords) == 0 {
			continue
		}
		compiled, literals, err := r.compile()
		if err != nil {
			return nil, fmt.Errorf("parse secret rule %s: %w", r.ID, err)
		}
		for _, w := range literals {
			words[w] = append(words[w], uint16(len(s.rules))) //nolint:gosec // a few hundred
		}
		s.rules = append(s.rules, compiled)
	}
	var err error
	s.words, err = newAutomaton(words)
	return s, err
}

// reach is how far a match may extend where its expression sets no end.
const reach = 16 << 10

func (r fileRule) compile() (*rule, []string, error) {
	tree, err := syntax.Parse(r.Regex, syntax.Perl)
	if err != nil {
		return nil, nil, err
	}
	c := &rule{id: r.ID, source: r.Regex, group: r.SecretGroup, entropy: r.Entropy, before: 512, after: reach}
	c.re = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(r.Regex) })
	if n := longest(tree); n < reach {
		c.after = n + 64
	}
	for _, a := range r.Allowlists {
		c.allowed = append(c.allowed, a.compile())
	}
	var literals []string
	// Many addresses begin with https://, few hold the name of one service.
	if begins, fold := beginnings(tree); len(begins) > 0 && shortest(r.Keywords) < shortest(begins)+4 {
		c.atWord, c.before = atWord(tree), 8
		if !fold {
			c.exact = begins
		}
		for _, b := range begins {
			literals = append(literals, strings.ToLower(b))
		}
		return c, literals, nil
	}
	for _, k := range r.Keywords {
		literals = append(literals, strings.ToLower(k))
	}
	return c, literals, nil
}

func shortest(words []string) int {
	n := len(words[0])
	for _, w := range words {
		n = min(n, len(w))
	}
	return n
}

func (a fileAllow) compile() allowance {
	out := allowance{target: a.RegexTarget, stops: a.StopWords}
	lazily := func(list []string) func() []*regexp.Regexp {
		return sync.OnceValue(func() []*regexp.Regexp {
			var res []*regexp.Regexp
			for _, text := range list {
				res = append(res, regexp.MustCompile(text))
			}
			return res
		})
	}
	out.res, out.paths = lazily(a.Regexes), lazily(a.Paths)
	return out
}

// covers reports whether a match is no credential.
func (a allowance) covers(secret, match, line string) bool {
	text := secret
	switch a.target {
	case "match":
		text = match
	case "line":
		text = line
	}
	for _, re := range a.res() {
		if re.MatchString(text) {
			return true
		}
	}
	folded := strings.ToLower(secret)
	for _, stop := range a.stops {
		if strings.Contains(folded, strings.ToLower(stop)) {
			return true
		}
	}
	return false
}

func (a allowance) coversPath(path string) bool {
	for _, re := range a.paths() {
		if re.MatchString(path) {
			return true
		}
	}
	return false
}

// entropy is Shannon's, in bits for each character.
func entropy(s string) float64 {
	var counts [256]int
	for i := range len(s) {
		counts[s[i]]++
	}
	h := 0.0
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(s))
			h -= p * math.Log2(p)
		}
	}
	return h
}
