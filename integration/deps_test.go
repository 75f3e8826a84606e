package integration_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// listed is what these tests read of `go list -json`.
type listed struct {
	ImportPath string
	Doc        string
	Deps       []string
}

func goList(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Doc,Deps"}, args...)...)
	cmd.Dir = ".."
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	var pkgs []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("decode go list: %v", err)
		}
		pkgs = append(pkgs, p)
	}
	if len(pkgs) == 0 {
		t.Fatalf("go list %s: no packages", strings.Join(args, " "))
	}
	return pkgs
}

// TestImportDirections holds the rule glue → core → std over the whole graph, not
// only over direct imports: a decision must be testable without a web server,
// and the launcher must start in milliseconds.
func TestImportDirections(t *testing.T) {
	caddy := []string{"github.com/caddyserver/", "go.uber.org/zap", "postern/caddy-modules/egress", "postern/caddy-modules/gitgateway"}
	for _, rule := range []struct {
		pkgs   []string
		reject []string
		why    string
	}{
		{
			[]string{"./caddy-modules/policy/...", "./caddy-modules/proxy/...", "./caddy-modules/session/...", "./dnsguard/...", "./gitgw/...", "./configs/..."},
			caddy, "core never reaches Caddy or zap",
		},
		{
			[]string{"./launcher/..."},
			append([]string{"github.com/go-git/", "postern/gitgw", "postern/caddy-modules/session$", "postern/caddy-modules/proxy"}, caddy...),
			"the launcher reaches neither Caddy nor go-git",
		},
		{
			[]string{"./caddy-modules/policy/..."},
			[]string{"postern/caddy-modules/proxy", "postern/caddy-modules/session", "net/http$", "github.com/", "golang.org/x/"},
			"the decision needs the standard library only",
		},
		{
			[]string{"./gitgw/..."},
			[]string{"postern/caddy-modules/"},
			"the gateway knows no sessions: its caller arrives in the context",
		},
	} {
		for _, p := range goList(t, rule.pkgs...) {
			for _, dep := range p.Deps {
				for _, reject := range rule.reject {
					if matches(dep, reject) {
						t.Errorf("%s reaches %s: %s", p.ImportPath, dep, rule.why)
					}
				}
			}
		}
	}
}

// matches reports whether the import path begins with pattern, or equals it
// where the pattern ends in "$".
func matches(path, pattern string) bool {
	if exact, ok := strings.CutSuffix(pattern, "$"); ok {
		return path == exact
	}
	return strings.HasPrefix(path, pattern)
}

// Who opens the code finds each package said what it is, in it and in the overview.
func TestEveryPackageHasADoc(t *testing.T) {
	overview, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range goList(t, "./...") {
		if name := strings.TrimPrefix(p.ImportPath, "postern/"); !strings.Contains(string(overview), "`"+name+"`") {
			t.Errorf("ARCHITECTURE.md does not name %s", name)
		}
		if p.Doc == "" {
			t.Errorf("%s has no package documentation", p.ImportPath)
		}
	}
}
