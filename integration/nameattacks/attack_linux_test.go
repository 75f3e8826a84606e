package nameattacks

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// attack is one hostile program.
type attack struct {
	group, name string

	// native says why it comes to nothing in a bare sandbox either; empty: it succeeds
	// there.
	native string

	// either says why it may come to something in a bare sandbox, or not.
	either string

	// prepare makes, outside, what the attack begins with.
	prepare func(t *testing.T, b *bed)

	// run is the program. Its error is shown and means nothing: the disk counts.
	run func() error

	// says is what it prints, in both sandboxes, where its answer counts and not the disk.
	// An attack that has it is one on the service, and leaves the disk alone.
	says string

	// check looks at more than the disk, after the guarded run.
	check func(t *testing.T, b *bed, r result)

	// skip says why it cannot be tried here.
	skip func() string

	inside bool // it needs what only our own sandbox has
	quiet  bool // refused by the kernel or Landlock, so no rule is named
	deadly bool // it ends everything in its sandbox
	raced  bool // it lasts as long as races do
	alone  bool // it disturbs others, or is disturbed
}

// The groups, in the order in which they are tried.
var attacks = slices.Concat(direct, existing, scoped, forms, names, ancestors, descriptors, inherited, races, pathRaces, linkRaces, moveRaces, doors, rings, tracing, machine, volumes, storms, stalls, limits)

// program finds an attack by its name.
func program(name string) *attack {
	for i := range attacks {
		if attacks[i].name == name {
			return &attacks[i]
		}
	}
	return nil
}

func TestTable(t *testing.T) {
	seen, can := map[string]bool{}, 0
	for _, a := range attacks {
		if a.name == "" || a.group == "" || a.run == nil || seen[a.name] {
			t.Errorf("%q in %q is not complete, or is there twice", a.name, a.group)
		}
		if a.native == "" && a.says == "" {
			can++
		}
		seen[a.name] = true
	}
	if len(attacks) < 80 {
		t.Errorf("%d attacks", len(attacks))
	}
	t.Logf("%d attacks, of which %d succeed in a bare sandbox", len(attacks), can)
}

// How long races last: in a bare sandbox the first try succeeds.
const barely = 100 * time.Millisecond

func raceTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("POSTERN_RACE")
	if text == "" {
		return 3 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("POSTERN_RACE: %v", err)
	}
	return d
}

// TestAttacks runs all of them, those that disturb others first and by themselves.
func TestAttacks(t *testing.T) {
	need(t)
	compile(t)
	for _, alone := range []bool{true, false} {
		for i := range attacks {
			a := &attacks[i]
			if a.alone != alone {
				continue
			}
			t.Run(a.group+"/"+a.name, func(t *testing.T) {
				if a.skip != nil {
					if why := a.skip(); why != "" {
						t.Skip(why)
					}
				}
				if !alone {
					t.Parallel()
				}
				a.bare(t)
				a.guarded(t)
			})
		}
	}
}

// bare runs the attack where nothing guards names.
func (a *attack) bare(t *testing.T) {
	t.Helper()
	b := a.bed(t)
	r := start(t, b, false, a.name, barely)
	harm := b.harm(t)
	switch {
	case r.broken():
		t.Fatalf("bare: %s", r)
	case a.says != "":
		if r.said() != a.says {
			t.Errorf("bare: it says %q, and not %q", r.said(), a.says)
		}
	case a.either != "":
	case a.native == "" && len(harm) == 0:
		t.Errorf("bare: it comes to nothing, so that it shows nothing: %s", r)
	case a.native != "" && len(harm) != 0:
		t.Errorf("bare: it succeeds, although %s: %q", a.native, harm)
	}
}

// guarded runs it where the rules hold.
func (a *attack) guarded(t *testing.T) {
	t.Helper()
	b := a.bed(t)
	r := start(t, b, true, a.name, raceTime(t))
	if a.raced {
		t.Logf("%s", r.said())
	}
	for _, harm := range b.harm(t) {
		t.Errorf("guarded: %s; %s", harm, r)
	}
	if r.broken() {
		t.Errorf("guarded: %s", r)
	}
	if a.says != "" && r.said() != a.says {
		t.Errorf("guarded: it says %q, and not %q", r.said(), a.says)
	}
	if !a.deadly && !b.alive() {
		t.Errorf("guarded: nothing works any more: %s", r)
	}
	if a.native == "" && a.either == "" && a.says == "" && !a.quiet && len(r.Violations) == 0 {
		t.Errorf("guarded: no rule is named: %s", r)
	}
	for _, fault := range r.Faults {
		t.Errorf("guarded: a fault of the guard: %s", fault)
	}
	if a.check != nil {
		a.check(t, b, r)
	}
}

func (a *attack) bed(t *testing.T) *bed {
	t.Helper()
	b := newBed(t)
	if a.prepare != nil {
		a.prepare(t, b)
	}
	b.before = b.look(t)
	return b
}

// result is what a run came to.
type result struct {
	Out        string
	Code       int
	Violations []string
	Faults     []string
	late       bool
}

// said is what the attack printed.
func (r *result) said() string { return strings.TrimSpace(r.Out) }

// broken reports whether the test is at fault, and not what is tested.
func (r *result) broken() bool {
	return r.late || strings.Contains(r.Out, "panic: ") || strings.Contains(r.Out, "fatal error: ") || strings.Contains(r.Out, brokenMark)
}

// brokenMark begins what a part of the test says that cannot do its work.
const brokenMark = "nameattacks: "

func (r result) String() string {
	return fmt.Sprintf("exit %d, late %t, %q, refused %q", r.Code, r.late, r.said(), r.Violations)
}
