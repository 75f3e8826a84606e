package gitgw

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind is what a rule says. The zero value denies.
type Kind uint8

// The verdicts.
const (
	Deny Kind = iota
	Ask
	Allow
)

// String is the verdict, as records, questions and rule sources say it.
func (k Kind) String() string {
	switch k {
	case Allow:
		return "allow"
	case Ask:
		return "ask"
	default:
		return "deny"
	}
}

// MarshalText writes the verdict.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads allow, ask or deny and nothing else.
func (k *Kind) UnmarshalText(text []byte) error {
	for _, kind := range []Kind{Deny, Ask, Allow} {
		if string(text) == kind.String() {
			*k = kind
			return nil
		}
	}
	return fmt.Errorf("parse verdict %q: want allow, ask or deny", text)
}

// ruleWord is what a rule that says so begins with: one that allows names what.
func (k Kind) ruleWord() string {
	if k == Allow {
		return "push"
	}
	return k.String()
}

// ParseRuleWord reads the word that a rule begins with: push, ask or deny.
func ParseRuleWord(word string) (Kind, error) {
	for _, kind := range []Kind{Deny, Ask, Allow} {
		if word == kind.ruleWord() {
			return kind, nil
		}
	}
	return Deny, fmt.Errorf("parse verdict %q: want push, ask or deny", word)
}

// Action is what one command does to its ref, as far as the command says: the
// old id is the client's claim, which the forge's own compare-and-swap checks.
type Action uint8

// The actions. A forced update looks like any update in a command list: that it
// is one is found in the pack, where a rule needs to know ([Forced]).
const (
	ActionCreate Action = iota + 1
	ActionUpdate
	ActionDelete
	ActionForce
)

// String is the configuration's word.
func (a Action) String() string {
	switch a {
	case ActionCreate:
		return "create"
	case ActionUpdate:
		return "update"
	case ActionDelete:
		return "delete"
	case ActionForce:
		return "force"
	default:
		return "unknown"
	}
}

// MarshalText writes the configuration's word.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads create, update, delete or force.
func (a *Action) UnmarshalText(text []byte) error {
	parsed, ok := parseAction(string(text))
	if !ok {
		return fmt.Errorf("parse action %q: want create, update, delete or force", text)
	}
	*a = parsed
	return nil
}

func parseAction(word string) (Action, bool) {
	for a := ActionCreate; a <= ActionForce; a++ {
		if word == a.String() {
			return a, true
		}
	}
	return 0, false
}

// RefRule is one line of a repository's block, as in
//
//	push agent/**
//	push agent/** delete
//	ask main release/*
//	deny tag:*
//
// Without actions, push and ask speak of creations and updates, and deny of
// everything: a deletion loses what others may need, and so does a forced update,
// so they are allowed only by a rule that names them. With actions, a rule speaks
// of exactly those.
type RefRule struct {
	Kind    Kind
	Refs    []RefPattern
	Actions []Action
	// Reason is shown in git's output instead of the words made from the rule.
	Reason string
	// Source is where the rule was written, as in "Caddyfile:41".
	Source string
	// Conditions hold for a push that this rule lets through or asks about. Paths
	// are protected by the block, not by a rule.
	Conditions Conditions
}

// ParseRefRule reads a rule's words after the verdict: patterns, and then actions. A
// pattern with a slash, a colon or a star may stand behind an action; any other word
// there, and a word that is almost an action, is an error. A branch whose name is an
// action's, or almost, is written refs/heads/delete.
func ParseRefRule(verdict string, words []string, source string) (RefRule, error) {
	kind, err := ParseRuleWord(verdict)
	if err != nil {
		return RefRule{}, err
	}
	rule := RefRule{Kind: kind, Source: source}
	for _, word := range words {
		if action, ok := parseAction(word); ok {
			rule.Actions = append(rule.Actions, action)
			continue
		}
		if err := checkWord(word, len(rule.Actions) > 0); err != nil {
			return RefRule{}, err
		}
		pattern, err := ParseRefPattern(word)
		if err != nil {
			return RefRule{}, err
		}
		rule.Refs = append(rule.Refs, pattern)
	}
	if len(rule.Refs) == 0 {
		return RefRule{}, fmt.Errorf("parse rule %q: names no ref", strings.TrimSpace(verdict+" "+strings.Join(words, " ")))
	}
	return rule, nil
}

// String is the rule as it would be written.
func (r RefRule) String() string {
	words := []string{r.Kind.ruleWord()}
	for _, p := range r.Refs {
		words = append(words, p.String())
	}
	for _, a := range r.Actions {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

// speaksOf reports whether the rule's actions include action.
func (r RefRule) speaksOf(action Action) bool {
	if slices.Contains(r.Actions, action) {
		return true
	}
	return len(r.Actions) == 0 && (r.Kind == Deny || action == ActionCreate || action == ActionUpdate)
}

// RepoRules is one repository block.
type RepoRules struct {
	Pattern RepoPattern
	Rules   []RefRule
	// Conditions hold for every push to the repository.
	Conditions Conditions
	// Options are the push options that may be passed on.
	Options []OptionPattern
	// Source is where the block begins, as in "Caddyfile:40".
	Source string
}

// Rules decides pushes. It is immutable and safe for concurrent use; a nil
// *Rules denies everything.
type Rules struct{ blocks []RepoRules }

// NewRules holds blocks together. Two blocks for the same pattern are an error,
// since one of them would never speak.
func NewRules(blocks ...RepoRules) (*Rules, error) {
	seen := make(map[RepoPattern]string, len(blocks))
	for _, b := range blocks {
		if b.Pattern == (RepoPattern{}) {
			return nil, errors.New("compile rules: a block without repository")
		}
		if first, twice := seen[b.Pattern]; twice {
			return nil, fmt.Errorf("compile rules: %s is named at %s and again at %s", b.Pattern, first, b.Source)
		}
		seen[b.Pattern] = b.Source
	}
	return &Rules{blocks: append([]RepoRules(nil), blocks...)}, nil
}

// block finds the one block that governs repo: the most specific pattern (see
// RepoPattern.rank). Blocks are not merged. Two equally specific blocks leave
// the question open, and an open question denies.
func (r *Rules) block(repo Repo) (RepoRules, error) {
	if r == nil {
		return RepoRules{}, errors.New("no push rules are configured")
	}
	var best RepoRules
	var rank [3]int
	found, tie := false, ""
	for _, b := range r.blocks {
		if !b.Pattern.Match(repo) {
			continue
		}
		switch next := b.Pattern.rank(); {
		case !found || less(rank, next):
			best, rank, found, tie = b, next, true, ""
		case rank == next:
			tie = b.Source
		}
	}
	switch {
	case !found:
		return RepoRules{}, fmt.Errorf("no rule names %s", repo.FullName())
	case tie != "":
		return RepoRules{}, fmt.Errorf("the blocks at %s and %s match %s equally well", best.Source, tie, repo.FullName())
	}
	return best, nil
}

func less(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}
