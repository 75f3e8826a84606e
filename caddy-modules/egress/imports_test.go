package egress

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

// TestLostImports puts an import that brings nothing beside one that does, in
// every block that takes rules.
func TestLostImports(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good.list":        "a.example.com\n",
		"empty/none.list":  "# nothing yet\n",
		"nested/more.list": "b.example.com\nimport lost/*.list\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, block := range []string{"always_deny", "deny", "allow"} {
		for name, test := range map[string]struct{ line, want string }{
			"all there":         {"import good.list", ""},
			"no file matches":   {"import good.list\nimport lost/*.list", "import lost/*.list matches no file"},
			"only comments":     {"import good.list\nimport empty/*.list", "has no rule in it"},
			"inside an import":  {"import nested/*.list", "import lost/*.list matches no file"},
			"a quoted brace":    {"import good.list\nimport `lost/*.list`", "matches no file"},
			"beside other text": {"b.example.com\nimport lost/x*.list", "matches no file"},
		} {
			t.Run(block+" "+name, func(t *testing.T) {
				inner := block + " {\n" + test.line + "\n}\n"
				switch block {
				case "deny":
					inner = "policy agent {\nbaseline\n" + inner + "}\n"
				case "allow":
					inner = "policy agent {\n" + inner + "}\n"
				}
				path := filepath.Join(dir, "Caddyfile")
				text := "{\nadmin off\negress {\n" + inner + "}\n}\n"
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				adapter := caddyfile.Adapter{ServerType: httpcaddyfile.ServerType{}}
				_, _, err := adapter.Adapt([]byte(text), map[string]any{"filename": path})
				switch {
				case test.want == "" && err != nil:
					t.Fatal(err)
				case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
					t.Fatalf("got %v, want %q", err, test.want)
				case test.want != "" && !strings.Contains(err.Error(), ":"):
					t.Fatalf("%v names no line", err)
				}
			})
		}
	}
}
