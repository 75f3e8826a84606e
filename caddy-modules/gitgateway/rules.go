package gitgateway

import (
	"errors"
	"fmt"
	"strings"

	"postern/gitgw"
)

// Repo is the block of one repository, or of the repositories of a pattern.
type Repo struct {
	// HOST/OWNER/NAME; owner and name may hold stars, as in github.com/acme/*.
	// The most specific of the patterns that match a repository governs it, alone.
	Name string `json:"name"`

	// The rules for refs. Without one, nothing may be pushed. Default: none.
	Rules []RefRule `json:"rules,omitempty"`

	Conditions

	// Paths that a push may not change: `.github/workflows` and all below it,
	// `**/CODEOWNERS` at any depth. Default: none here; the forge keeps
	// `.github/workflows` from the gateway's tokens.
	Protect []string `json:"protect,omitempty"`

	// The push options that are passed on, with `*` for any characters. Default:
	// none, for some forges change a repository on such a word.
	Options []string `json:"options,omitempty"`

	// Writes down that no push option is passed on.
	DenyOptions bool `json:"deny_options,omitempty"`

	// Where the block was written, as FILE:LINE; set by the Caddyfile adapter and
	// named in verdicts. Default: the block's place in the JSON.
	From string `json:"from,omitempty"`
}

// RefRule is one rule for refs.
type RefRule struct {
	// What happens to a push that the rule is about: `push` lets it through,
	// `ask` asks the approver, `deny` refuses it. A deny beats the others.
	Verdict string `json:"verdict"`

	// The refs: `main` is a branch, `tag:v*` tags, `refs/…` any full name. `*`
	// stays within one segment, `**` crosses slashes.
	Refs []string `json:"refs"`

	// Which of `create`, `update`, `delete` and `force` the rule is about; a push
	// that loses commits of a branch, or moves a tag, is not update but force.
	// Default: create and update for push and ask, all four for deny.
	Actions []string `json:"actions,omitempty"`

	// What git prints instead of the words made from the rule. Default: those.
	Reason string `json:"reason,omitempty"`

	Conditions

	// Where the rule was written, as FILE:LINE. Default: the rule's place in the
	// JSON.
	From string `json:"from,omitempty"`
}

// compile makes what the gateway decides by. It is all that `caddy git check` needs, so
// that the command and the gateway cannot differ. Rules for a forge that nothing is known
// of would be kept by nobody: a slip in its name, or a forge that is still to be named.
func (h *Handler) compile() (*gitgw.Rules, []gitgw.Forge, error) {
	rules, err := compileRules(h.Repos)
	if err != nil {
		return nil, nil, err
	}
	forges, err := compileForges(h.Forges)
	if err != nil {
		return nil, nil, err
	}
	for i, r := range h.Repos {
		host, _, _ := strings.Cut(strings.ToLower(r.Name), "/")
		if _, known := findForge(forges, host); !known {
			place := r.From
			if place == "" {
				place = fmt.Sprintf("repos[%d]", i)
			}
			return nil, nil, fmt.Errorf("%s: the rules of %s are for a forge that is not configured; add `forge %s`", place, r.Name, host)
		}
	}
	return rules, forges, nil
}

// compileRules makes the gateway's rules of the configuration's.
func compileRules(repos []Repo) (*gitgw.Rules, error) {
	blocks := make([]gitgw.RepoRules, 0, len(repos))
	for i, r := range repos {
		block, err := r.compile(fmt.Sprintf("repos[%d]", i))
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, block)
	}
	rules, err := gitgw.NewRules(blocks...)
	if err != nil {
		return nil, err
	}
	// Otherwise the first push to such a repository would be what tells.
	return rules, rules.Tie()
}

// compile makes one block; place is where it stands in the JSON.
func (r Repo) compile(place string) (gitgw.RepoRules, error) {
	if r.From != "" {
		place = r.From
	}
	pattern, err := gitgw.ParseRepoPattern(r.Name)
	if err != nil {
		return gitgw.RepoRules{}, fmt.Errorf("%s: %w", place, err)
	}
	block := gitgw.RepoRules{Pattern: pattern, Source: place}
	if err := r.compileContent(&block); err != nil {
		return gitgw.RepoRules{}, fmt.Errorf("%s: %w", place, err)
	}
	for i, rule := range r.Rules {
		source := rule.From
		if source == "" {
			source = fmt.Sprintf("%s.rules[%d]", place, i)
		}
		compiled, err := rule.compile(source)
		if err != nil {
			return gitgw.RepoRules{}, fmt.Errorf("%s: %w", source, err)
		}
		block.Rules = append(block.Rules, compiled)
	}
	return block, nil
}

func (r RefRule) compile(source string) (gitgw.RefRule, error) {
	kind, err := gitgw.ParseRuleWord(r.Verdict)
	if err != nil {
		return gitgw.RefRule{}, err
	}
	rule := gitgw.RefRule{Kind: kind, Source: source, Reason: r.Reason}
	if len(r.Refs) == 0 {
		return gitgw.RefRule{}, fmt.Errorf("parse rule %q: names no ref", strings.Join(append([]string{r.Verdict}, r.Actions...), " "))
	}
	for _, ref := range r.Refs {
		// In the words of a Caddyfile refs and actions are told apart by what they are,
		// in JSON each has its field, and one in the other's is a slip.
		if new(gitgw.Action).UnmarshalText([]byte(ref)) == nil {
			return gitgw.RefRule{}, fmt.Errorf("parse refs: %q is an action; a branch of that name is refs/heads/%s", ref, ref)
		}
		pattern, err := gitgw.ParseRefPattern(ref)
		if err != nil {
			return gitgw.RefRule{}, err
		}
		rule.Refs = append(rule.Refs, pattern)
	}
	for _, word := range r.Actions {
		var action gitgw.Action
		if err := action.UnmarshalText([]byte(word)); err != nil {
			return gitgw.RefRule{}, err
		}
		rule.Actions = append(rule.Actions, action)
	}
	if rule.Kind == gitgw.Deny && r.Conditions != (Conditions{}) {
		// Read as "deny only pushes with secrets", it would say what does not hold.
		return gitgw.RefRule{}, errors.New("a deny refuses whatever the push holds; max_refs, max_pack and secrets belong to rules that let pushes through")
	}
	rule.Conditions, err = r.Conditions.compile()
	return rule, err
}
