package namework

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// work is one kind of it.
type work struct {
	name  string
	needs []string // programs

	// prepare makes, outside, what the work begins with: twice, in the same place.
	prepare func(t *testing.T, p *place)

	script string         // of sh, which ends at the first failure
	aside  *regexp.Regexp // files whose content differs from one time to the next
}

// All kinds of work, in files by their subject.
var works = slices.Concat(gitWork, buildWork, packageWork, fileWork, editorWork)

// TestWork does each outside, and then where names are guarded.
func TestWork(t *testing.T) {
	postern(t)
	for i := range works {
		w := &works[i]
		t.Run(w.name, func(t *testing.T) {
			for _, program := range w.needs {
				if lacks(program) {
					lacking(t, program)
				}
			}
			w.compare(t)
		})
	}
}

// lacking skips work whose program is not here, or ends it under make namework, which has
// installed them.
func lacking(t *testing.T, program string) {
	t.Helper()
	if os.Getenv(sizeEnv) == "all" {
		t.Fatalf("there is no %s", program)
	}
	t.Skipf("SKIPPED, NOT PASSED: there is no %s; make namework installs it", program)
}

// lacks reports whether the work would not find a program.
func lacks(program string) bool {
	return exec.Command("/usr/bin/env", "-i", "PATH="+searched, "sh", "-c", "command -v "+program).Run() != nil
}

// compare does the work twice in the same place.
func (w *work) compare(t *testing.T) {
	t.Helper()
	p := newPlace(t)
	appliance(t, p.runs)
	do := func(run func(testing.TB, string) said) (said, map[string]string) {
		if w.prepare != nil {
			w.prepare(t, p)
		}
		got := run(t, w.script)
		return got, read(t, p.tree, w.aside)
	}
	out, left := do(p.outside)
	if out.code != 0 {
		t.Fatalf("outside: status %d\n%s%s", out.code, tail(out.out), tail(out.err))
	}
	if err := os.Rename(p.tree, filepath.Join(p.base, "outside")); err != nil {
		t.Fatal(err)
	}
	p.make(t, p.tree)
	in, leaves := do(p.inside)
	if in.code != 0 {
		t.Errorf("inside: status %d\n%s%s", in.code, tail(in.out), tail(in.err))
	}
	if out.out != in.out {
		t.Errorf("outside it says\n%sinside\n%s", tail(out.out), tail(in.out))
	}
	for _, line := range in.violations() {
		t.Error(line)
	}
	diff := differences(left, leaves)
	for _, line := range diff[:min(len(diff), 20)] {
		t.Error(line)
	}
	t.Logf("%d entries, %d of them differ", len(left), len(diff))
}

// tail is the end of what was said.
func tail(text string) string { return text[max(0, len(text)-3000):] }
