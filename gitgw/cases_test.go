package gitgw_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// gitCase is a line of testdata/cases.jsonl: a push and what must come of it. The
// scenarios say the same in Go, and are named after it.
type gitCase struct {
	ID     string   `json:"id"`
	Setup  string   `json:"setup"`
	Cmd    []string `json:"cmd"`
	Expect struct {
		Output   []string `json:"output"`
		Exit     int      `json:"exit"`
		Upstream string   `json:"upstream"`
	} `json:"expect"`
}

func readCases(t *testing.T) []gitCase {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var cases []gitCase
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var c gitCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatalf("case %d: %v", len(cases)+1, err)
		}
		if c.ID == "" || len(c.Cmd) == 0 || c.Expect.Upstream == "" || len(c.Expect.Output) == 0 {
			t.Errorf("case %d lacks something: %s", len(cases)+1, lines.Bytes())
		}
		cases = append(cases, c)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return cases
}

// How a scenario is named: a test of its own, or a part of one.
var (
	ownTest  = regexp.MustCompile(`func Test([A-M]\d\d)[(A-Z]`)
	partTest = regexp.MustCompile(`"([A-M]\d\d)[ "]`)
)

// scenarioPlaces are the folders that hold scenarios. Those about where git goes by
// itself need a sandbox, an appliance and a forge with TLS.
var scenarioPlaces = []string{".", "../integration", "../integration/doors"}

// TestCases fails where a case has no scenario.
func TestCases(t *testing.T) {
	t.Parallel()
	have := map[string]bool{}
	for _, place := range scenarioPlaces {
		files, err := filepath.Glob(filepath.Join(place, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if filepath.Base(name) == "cases_test.go" {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, form := range []*regexp.Regexp{ownTest, partTest} {
				for _, found := range form.FindAllStringSubmatch(string(text), -1) {
					have[found[1]] = true
				}
			}
		}
	}
	cases := readCases(t)
	if len(cases) != 101 {
		t.Errorf("%d cases, want 101", len(cases))
	}
	seen := map[string]bool{}
	for _, c := range cases {
		if seen[c.ID] {
			t.Errorf("%s stands twice in the file", c.ID)
		}
		seen[c.ID] = true
		if !have[c.ID] {
			t.Errorf("%s has no scenario: %s; %s", c.ID, c.Setup, strings.Join(c.Cmd, "; "))
		}
	}
	for _, id := range tooLarge {
		if !seen[id] {
			t.Errorf("%s is left out of TestEightBytes and is no case", id)
		}
	}
	if !slices.IsSorted(tooLarge) {
		t.Error("tooLarge is not in order")
	}
}

func mustGlob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %q %v", pattern, names, err)
	}
	return names
}
