package gitgw

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Every reason has a code of its own and a cure that git shows whole, in one line; and
// no code is there that nothing is refused with.
func TestEveryRefusalHasACure(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	declared, used := map[string]string{}, map[string]bool{}
	names, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				if kind, ok := n.Type.(*ast.Ident); ok && kind.Name == "Code" && len(n.Values) == 1 {
					value, err := strconv.Unquote(n.Values[0].(*ast.BasicLit).Value)
					if err != nil {
						t.Fatal(err)
					}
					declared[n.Names[0].Name] = value
				}
			case *ast.Ident:
				if name != "refusal.go" {
					used[n.Name] = true
				}
			}
			return true
		})
	}
	if len(declared) < 50 || len(cures) != len(declared) {
		t.Errorf("%d codes, %d cures", len(declared), len(cures))
	}
	seen := map[string]bool{}
	for name, code := range declared {
		cure := Code(code).cure()
		if seen[code] || code == "" || strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") != "" {
			t.Errorf("%s: code %q", name, code)
		}
		seen[code] = true
		g := &Gateway{}
		if line := g.notice(cure); len(cure) < 8 || (&redactor{}).line(line) != line || strings.HasSuffix(cure, ".") || cure[0] >= 'A' && cure[0] <= 'Z' {
			t.Errorf("%s: cure %q does not fit", name, cure)
		}
		if !used[name] && name != "CodeQuestions" {
			t.Errorf("%s: nothing is refused with it", name)
		}
	}
	for code, words := range spoolWords {
		if code.cure() == "" || words == "" {
			t.Errorf("%s: %q", code, words)
		}
	}
}
