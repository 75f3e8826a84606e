package integration

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// specRow is a row of SPEC.md: a statement, what it says, the tests that prove it.
var specRow = regexp.MustCompile(`^\| (\d+) \| [^|]+ \| ([^|]+) \| ([^|]+) \|$`)

// namedTest is a test as SPEC.md names it: a package, a test, and a part of it.
var namedTest = regexp.MustCompile("`([a-z0-9/-]+)\\.((?:Test|Fuzz)\\w+)(?:/([^`]+))?`")

// TestSpec holds SPEC.md to its word: every statement of the sandbox has a row, and
// every test that a row names is there and runs on this system.
func TestSpec(t *testing.T) {
	text, err := os.ReadFile("SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	want := map[int]bool{}
	for _, span := range [][2]int{{1, 55}, {74, 98}, {112, 113}, {127, 130}} {
		for id := span[0]; id <= span[1]; id++ {
			want[id] = true
		}
	}
	packages := map[string]*testPackage{}
	for n, line := range strings.Split(string(text), "\n") {
		row := specRow.FindStringSubmatch(line)
		if row == nil {
			if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| id ") && !strings.HasPrefix(line, "| - ") {
				t.Errorf("SPEC.md:%d: not a row: %s", n+1, line)
			}
			continue
		}
		id, _ := strconv.Atoi(row[1])
		if !want[id] {
			t.Errorf("SPEC.md:%d: statement %d is none, or has a row already", n+1, id)
		}
		delete(want, id)
		tests := namedTest.FindAllStringSubmatch(row[2], -1)
		if len(tests) == 0 {
			t.Errorf("SPEC.md:%d: statement %d names no test", n+1, id)
		}
		for _, name := range tests {
			dir := name[1]
			if packages[dir] == nil {
				packages[dir] = readTests(t, dir)
			}
			if err := packages[dir].has(name[2], name[3]); err != nil {
				t.Errorf("SPEC.md:%d: statement %d: %v", n+1, id, err)
			}
		}
	}
	for id := range want {
		t.Errorf("statement %d has no row", id)
	}
}

// testPackage is the tests of a directory that are built here.
type testPackage struct {
	dir    string
	tests  map[string]string // by name: the file
	parts  map[string]bool   // every text in the files, as a part of a test's name would be written
	script map[string]bool   // testscripts
}

func readTests(t *testing.T, dir string) *testPackage {
	t.Helper()
	p := &testPackage{dir: dir, tests: map[string]string{}, parts: map[string]bool{}, script: map[string]bool{}}
	full := filepath.Join("..", dir)
	files, err := filepath.Glob(filepath.Join(full, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("%s has no tests (%v)", dir, err)
	}
	for _, file := range files {
		if ok, err := build.Default.MatchFile(full, filepath.Base(file)); err != nil || !ok {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil {
					p.tests[n.Name.Name] = file
				}
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					p.parts[strings.ReplaceAll(text, " ", "_")] = true
				}
			}
			return true
		})
	}
	scripts, err := filepath.Glob(filepath.Join(full, "testdata", "script", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scripts {
		p.script[strings.TrimSuffix(filepath.Base(s), ".txtar")] = true
	}
	return p
}

// has reports whether the test is there, with the part that is named.
func (p *testPackage) has(test, part string) error {
	if p.tests[test] == "" {
		return fmt.Errorf("%s has no %s", p.dir, test)
	}
	if part == "" {
		return nil
	}
	for at := range strings.SplitSeq(part, "/") {
		if !p.parts[strings.ReplaceAll(at, " ", "_")] && !p.script[at] {
			return fmt.Errorf("%s.%s has no part %q", p.dir, test, at)
		}
	}
	return nil
}
