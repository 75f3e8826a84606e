package spec

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"
)

// SPEC 88, 90: what a host hears of a sandbox is these kinds and no other. None of them
// waits for an answer: a sandbox runs, is denied, or ends.
func TestNothingAsks(t *testing.T) {
	want := []string{"denied", "exit", "killed", "push", "ready", "starting", "stderr", "stdout", "violation"}
	tree, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	ast.Inspect(tree, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Kind" {
			return true
		}
		for _, value := range spec.Values {
			if text, ok := value.(*ast.BasicLit); ok {
				name, err := strconv.Unquote(text.Value)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, name)
			}
		}
		return true
	})
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("kinds of events: %q, want %q", got, want)
	}
}
