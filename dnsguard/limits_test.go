package dnsguard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBucket(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var b bucket
	for i := range 100 {
		if b.wait(now, 50, 100) != 0 {
			t.Fatalf("query %d of the burst waits", i)
		}
	}
	if got := b.wait(now, 50, 100); got != 20*time.Millisecond {
		t.Fatalf("after the burst: wait %v", got)
	}
	// A refusal costs nothing: the wait that was told is enough.
	now = now.Add(20 * time.Millisecond)
	if got := b.wait(now, 50, 100); got != 0 {
		t.Fatalf("after the wait: %v", got)
	}
	if b.wait(now.Add(-time.Hour), 50, 100) == 0 {
		t.Fatal("a clock that goes back gives tokens")
	}
	now = now.Add(time.Hour)
	for range 100 {
		b.wait(now, 50, 100)
	}
	if b.wait(now, 50, 100) == 0 {
		t.Fatal("an idle hour gives more than the burst")
	}
}

// TestBucketNeverExceedsItsRate holds the rate over any pattern of queries.
func TestBucketNeverExceedsItsRate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate, burst := rapid.IntRange(1, 100).Draw(rt, "rate"), rapid.IntRange(1, 100).Draw(rt, "burst")
		steps := rapid.SliceOfN(rapid.IntRange(0, 200), 1, 300).Draw(rt, "milliseconds")
		var b bucket
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		now, taken := start, 0
		for _, ms := range steps {
			now = now.Add(time.Duration(ms) * time.Millisecond)
			if b.wait(now, float64(rate), float64(burst)) == 0 {
				taken++
			}
			if most := float64(burst) + now.Sub(start).Seconds()*float64(rate) + 1e-6; float64(taken) > most {
				rt.Fatalf("%d taken after %v, at most %v", taken, now.Sub(start), most)
			}
		}
	})
}

func TestBudget(t *testing.T) {
	var b budget
	spend := func(rule, sub string) string { return b.spend(rule, sub, 3, 10, 25) }
	for _, c := range []struct{ rule, sub, want string }{
		{"*.a.com", "one", ""},
		{"*.a.com", "one", ""},
		{"*.a.com", strings.Repeat("x", 11), reasonWildcardSub},
		{"*.a.com", "two", ""},
		{"*.a.com", "three", ""},
		{"*.a.com", "four", reasonWildcardUnique},
		{"*.b.com", "four", ""},               // another rule, another count
		{"*.b.com", "one2345678", ""},         // 3+3+5+4+10 = 25 octets
		{"*.c.com", "x", reasonWildcardBytes}, // but one sum
		{"*.b.com", "four", ""},
	} {
		if got := spend(c.rule, c.sub); got != c.want {
			t.Errorf("%s %q: %q, want %q", c.rule, c.sub, got, c.want)
		}
	}
}

// TestBudgetIsACeiling holds what can leave under wildcards, whatever is asked.
func TestBudgetIsACeiling(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var b budget
		told := map[string]bool{}
		octets := 0
		names := map[string]int{}
		for range rapid.IntRange(1, 60).Draw(rt, "queries") {
			rule := rapid.SampledFrom([]string{"*.a.com", "b.*.com"}).Draw(rt, "rule")
			sub := rapid.StringMatching(`[a-z]{1,12}`).Draw(rt, "sub")
			if b.spend(rule, sub, 8, 10, 60) == "" && !told[rule+sub] {
				told[rule+sub] = true
				octets += len(sub)
				names[rule]++
			}
		}
		if octets > 60 || names["*.a.com"] > 8 || names["b.*.com"] > 8 {
			rt.Fatalf("%d octets, names %v", octets, names)
		}
	})
}

func TestSubName(t *testing.T) {
	for _, c := range []struct{ pattern, name, want string }{
		{"*.example.com", "a.example.com", "a"},
		{"*.example.com", "a.b.example.com", "a.b"},
		{"bedrock.*.amazonaws.com", "bedrock.us-east-1.amazonaws.com", "us-east-1"},
		{"example.com", "example.com", ""},
		{"*.example.com", "example.com", ""},
	} {
		if got := subName(c.pattern, c.name); got != c.want {
			t.Errorf("%s of %s: %q", c.pattern, c.name, got)
		}
	}
}

func TestHighEntropy(t *testing.T) {
	for sub, want := range map[string]bool{
		"www":                        false,
		"bedrock-runtime.us-east-1":  false,
		"mycompanyproductionwebsite": false,
		"4a6f686e20446f652c20536563726574.6b65793d414b4941": true,
		"mfrggzdfmztwq2lknnwg23tpob3a":                      true,
		strings.Repeat("ab", 20):                            false,
		"deadbeef":                                          false, // too short to tell
	} {
		if got := highEntropy(sub); got != want {
			t.Errorf("%s: %v", sub, got)
		}
	}
}

func TestQuiet(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var q quiet
	if ok, left := q.admit("a", "denied", now); !ok || left != 0 {
		t.Fatal("the first refusal is not recorded")
	}
	for range 9 {
		if ok, _ := q.admit("a", "denied", now); ok {
			t.Fatal("a repetition is recorded")
		}
	}
	if ok, left := q.admit("a", "rate", now); !ok || left != 9 {
		t.Fatalf("another reason: %v, %d left out", ok, left)
	}
	for i := range 10 * quietNames {
		q.admit(fmt.Sprint(i), "denied", now)
	}
	if len(q.seen) > quietNames {
		t.Fatalf("%d names are remembered", len(q.seen))
	}
	if ok, left := q.admit("z", "denied", now.Add(quietFor)); !ok || left != 9*quietNames+2 {
		t.Fatalf("after the window: %v, %d left out", ok, left)
	}
}

func TestShown(t *testing.T) {
	got := shown("a\x1b[31m\n\u202e" + strings.Repeat("x", 500))
	if strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) || len(got) > 4*maxShown {
		t.Errorf("%q", got)
	}
}
