package integration_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Who changes something finds every way to try it, and a soak of any length comes to its
// end: go test kills after ten minutes what names no time of its own.
func TestMakeIsDocumented(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"test", "lint", "fuzz", "bench", "clients", "soak", "demo"} {
		if !strings.Contains(string(makefile), "\n"+name+":") {
			t.Errorf("the Makefile has no target %s", name)
		}
		if !strings.Contains(string(guide), "\nmake "+name+" ") {
			t.Errorf("CONTRIBUTING.md does not say what make %s does", name)
		}
	}
	_, soak, _ := strings.Cut(string(makefile), "\nsoak:")
	soak, _, _ = strings.Cut(soak, "\n\n")
	runs := regexp.MustCompile(`(?m)^\t.*test .*$`).FindAllString(soak, -1)
	for _, run := range runs {
		if !strings.Contains(run, " -timeout 0 ") {
			t.Errorf("a soak may be killed by %q", run)
		}
	}
	if len(runs) != 2 {
		t.Errorf("a soak runs %q", runs)
	}
}
