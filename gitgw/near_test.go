package gitgw

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A slip is refused with the word, what was likely meant and how a branch of that name
// is written; that way it is read.
func TestMisspeltActions(t *testing.T) {
	for action, slips := range map[string]string{
		"create": "creat crete craete ccreate created creates Create CREATE cre",
		"update": "updte udpate upadte updat uptade updated updates upd Update upgate updaet",
		"delete": "delte deltee delet dlete del deleted deletes Delete",
		"force":  "forc froce foce frce forced for Force forse fforce",
	} {
		for slip := range strings.FieldsSeq(slips) {
			for _, words := range [][]string{{"main", slip}, {slip, "agent/**"}, {slip}, {"main", "create", slip}} {
				_, err := ParseRefRule("push", words, "")
				switch {
				case err == nil:
					t.Errorf("%q was read", words)
				case !strings.Contains(err.Error(), "did you mean "+action+"?") || !strings.Contains(err.Error(), "refs/heads/"+slip) || !strings.Contains(err.Error(), `"`+slip+`"`):
					t.Errorf("%q: %v", words, err)
				}
			}
			if _, err := ParseRefRule("push", []string{"main", "refs/heads/" + slip, "tag:" + slip, slip + "/*", "update"}, ""); err != nil {
				t.Errorf("written in full: %v", err)
			}
		}
	}
}

func TestConfigurationAmongRefs(t *testing.T) {
	for _, words := range []string{"main secrets deny", "main max_refs 3", "main reason closed", "main deny", "ask main", "main Push", "main max_pack 50MB"} {
		if _, err := ParseRefRule("push", strings.Fields(words), ""); err == nil || !strings.Contains(err.Error(), "lines of their own") {
			t.Errorf("push %s: %v", words, err)
		}
	}
	for _, words := range []string{"main delete other", "delete main"} {
		if _, err := ParseRefRule("push", strings.Fields(words), ""); err == nil || !strings.Contains(err.Error(), "refs before them") {
			t.Errorf("push %s: %v", words, err)
		}
	}
	for _, words := range []string{"main", "master develop release trunk", "feature hotfix staging production", "gh-pages dev test", "v1 next beta"} {
		if _, err := ParseRefRule("push", strings.Fields(words), ""); err != nil {
			t.Errorf("push %s: %v", words, err)
		}
	}
}

// The distance is one: zero for the same, either way the same, and no longer than what
// it took to get there.
func TestDistance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 0, 8, -1)
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		if distance(a, a) != 0 || distance(a, b) != distance(b, a) || (distance(a, b) == 0) != (a == b) {
			t.Fatalf("%q %q: %d, %d", a, b, distance(a, b), distance(b, a))
		}
		i := rapid.IntRange(0, len(a)).Draw(t, "i")
		if d := distance(a, a[:i]+"x"+a[i:]); d != 1 {
			t.Fatalf("%q with a letter more: %d", a, d)
		}
	})
}
