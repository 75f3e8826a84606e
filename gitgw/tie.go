package gitgw

import (
	"fmt"
	"slices"
	"strings"
)

// Tie finds two blocks that fit some repository equally well, where no third fits it
// better: pushes to it would be refused, and nothing else would tell. The error names
// both places and such a repository; it is nil where there is none.
func (r *Rules) Tie() error {
	if r == nil {
		return nil
	}
	for i, a := range r.blocks {
		for _, b := range r.blocks[i+1:] {
			if a.Pattern.host != b.Pattern.host || a.Pattern.rank() != b.Pattern.rank() {
				continue
			}
			if repo := meet(a.Pattern, b.Pattern, r.above(a.Pattern)); repo != "" {
				return fmt.Errorf("compile rules: the blocks %s (%s) and %s (%s) match %s/%s equally well, and neither would count; write one that is more specific for what both match, or one for both",
					a.Pattern, a.Source, b.Pattern, b.Source, a.Pattern.host, repo)
			}
		}
	}
	return nil
}

// above lists the patterns of p's host that count before it.
func (r *Rules) above(p RepoPattern) []RepoPattern {
	var list []RepoPattern
	for _, b := range r.blocks {
		if b.Pattern.host == p.host && less(p.rank(), b.Pattern.rank()) {
			list = append(list, b.Pattern)
		}
	}
	return list
}

// meet finds the shortest OWNER/NAME that a and b match and none of the others, "" where
// there is none. It walks through what is left of all the patterns at once, letter by
// letter. How far a text has come in a pattern is told by few numbers, since a later star
// takes all that an earlier one does: there are about as many states as letters, and the
// product is small where patterns are as people write them. Where it is not, the answer
// is how such a repository begins, unproved.
func meet(a, b RepoPattern, others []RepoPattern) string {
	globs := []string{a.owner + "/" + a.name, b.owner + "/" + b.name}
	for _, o := range others {
		globs = append(globs, o.owner+"/"+o.name)
	}
	letters := alphabet(globs)
	start := make(spots, len(globs))
	for i, g := range globs {
		start[i] = begin(g)
	}
	type step struct {
		at   spots
		text string
	}
	const most = 50_000
	queue, seen := []step{{start, ""}}, map[string]bool{start.key(): true}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if s.at.match(globs) && isRepo(s.text) {
			return s.text
		}
		if len(seen) > most {
			return s.text + "…"
		}
		for _, c := range letters {
			if c == '/' && !endsWell(s.text) {
				continue
			}
			next, text := make(spots, len(globs)), s.text+string(c)
			for i, g := range globs {
				next[i] = advance(g, s.at[i], c)
			}
			// Nothing more comes of it when either is at its end.
			// Two texts that came as far are the same but for whether they are names.
			key := fmt.Sprint(next.key(), endsWell(text))
			if len(next[0]) == 0 || len(next[1]) == 0 || seen[key] {
				continue
			}
			seen[key] = true
			queue = append(queue, step{next, text})
		}
	}
	return ""
}

// endsWell reports whether the last segment of a text is a name as it stands.
func endsWell(text string) bool {
	what, last := "owner", text
	if _, name, inName := strings.Cut(text, "/"); inName {
		what, last = "name", name
	}
	return checkSegment(what, last, false) == nil
}

// isRepo reports whether a forge could have a repository of that name.
func isRepo(text string) bool {
	owner, name, ok := strings.Cut(text, "/")
	return ok && checkSegment("owner", owner, false) == nil && checkSegment("name", name, false) == nil
}

// alphabet lists the letters that the patterns hold, and one that they do not.
func alphabet(globs []string) []byte {
	all := strings.Join(globs, "")
	letters := []byte{'/'}
	for _, c := range []byte("xabcdefghijklmnopqrstuvwyz0123456789-_.") {
		if strings.IndexByte(all, c) >= 0 {
			letters = append(letters, c)
		}
	}
	for _, c := range []byte("xyzwvutsrqponmlkjihgfedcba0123456789") {
		if strings.IndexByte(all, c) < 0 {
			return append(letters, c)
		}
	}
	return letters
}

// spots says for each pattern how far in it a text may have come.
type spots [][]int

func (s spots) key() string { return fmt.Sprint([][]int(s)) }

// match reports whether the text is one of the first two patterns' and of no other.
func (s spots) match(globs []string) bool {
	for i, g := range globs {
		if slices.Contains(s[i], len(g)) != (i < 2) {
			return false
		}
	}
	return true
}

// begin is where a pattern begins.
func begin(glob string) []int { return settle(glob, []int{0}) }

// advance reads one letter. A star takes any but a slash.
func advance(glob string, at []int, c byte) []int {
	var next []int
	for _, i := range at {
		switch {
		case i == len(glob):
		case glob[i] == '*' && c != '/':
			next = append(next, i)
		case glob[i] == c:
			next = append(next, i+1)
		}
	}
	return settle(glob, next)
}

// settle adds the places behind stars, which may stand for nothing, and drops those
// before the last star of the same segment that is reached.
func settle(glob string, at []int) []int {
	var all []int
	last := -1
	for _, i := range at {
		all = append(all, i)
		for ; i < len(glob) && glob[i] == '*'; i++ {
			last = max(last, i)
			all = append(all, i+1)
		}
	}
	all = slices.DeleteFunc(all, func(i int) bool { return i < last })
	slices.Sort(all)
	return slices.Compact(all)
}
