package gitgw

import (
	"fmt"
	"strings"
)

// configWords are words of a repository's block that are no refs where they stand alone:
// verdicts, and the options of a rule, of which each has a line of its own.
var configWords = []string{"push", "ask", "deny", "allow", "reason", "max_refs", "max_pack", "secrets", "protect", "options"}

// checkWord refuses a word of a rule that is to be a ref and more likely is a slip:
// almost an action, a word of the configuration, or a word between actions. Read as a
// branch it would make a rule of something else, and the rule for all actions that the
// misspelt one was to be kept from. A branch of that name is written in full.
func checkWord(word string, afterAction bool) error {
	if word == "" || strings.ContainsAny(word, "/:*") {
		return nil // no action looks like that
	}
	if action, near := nearAction(word); near {
		return fmt.Errorf("parse rule: %q is no action; did you mean %s? A branch of that name is refs/heads/%s", word, action, word)
	}
	for _, w := range configWords {
		if strings.EqualFold(word, w) {
			return fmt.Errorf("parse rule: %q is a word of the configuration; rules and their options have lines of their own, as in: push main { … }. A branch of that name is refs/heads/%s", word, word)
		}
	}
	if afterAction {
		return fmt.Errorf("parse rule: %q stands behind an action and is none; want create, update, delete or force, and refs before them. A branch of that name is refs/heads/%s", word, word)
	}
	return nil
}

// nearAction finds the action that a word is a slip for: begun and not ended, in
// another case, or at most two letters away.
func nearAction(word string) (Action, bool) {
	folded := strings.ToLower(word)
	best, least := Action(0), 3
	for a := ActionCreate; a <= ActionForce; a++ {
		d := distance(folded, a.String())
		if len(folded) >= 3 && strings.HasPrefix(a.String(), folded) {
			d = min(d, 1)
		}
		if d < least {
			best, least = a, d
		}
	}
	// Of three letters two others make any word.
	return best, least < 3 && (least < 2 || len(folded) > 3)
}

// distance is how many letters have to be put in, left out, replaced or swapped with the
// next to make b of a.
func distance(a, b string) int {
	if len(a) > len(b)+2 || len(b) > len(a)+2 {
		return 3 // far enough
	}
	rows := [3][]int{}
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
	}
	for i := 0; i <= len(a); i++ {
		row, last, before := rows[i%3], rows[(i+2)%3], rows[(i+1)%3]
		for j := 0; j <= len(b); j++ {
			switch {
			case i == 0:
				row[j] = j
				continue
			case j == 0:
				row[j] = i
				continue
			}
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}
