package gitgateway

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// Blocks of which neither would count are refused as the file is read, naming both.
func TestTiesOfBlocks(t *testing.T) {
	err := new(Handler).UnmarshalCaddyfile(caddyfile.NewTestDispenser("git_gateway {\n\trepo github.com/a*/app {\n\t\tpush x\n\t}\n\trepo github.com/*b/app\n}\n"))
	if err == nil {
		t.Fatal("read")
	}
	for _, want := range []string{"github.com/a*/app (Testfile:2)", "github.com/*b/app (Testfile:5)", "match github.com/ab/app equally well", "more specific"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := compileRules([]Repo{{Name: "github.com/a*/app"}, {Name: "github.com/*b/app"}}); err == nil || !strings.Contains(err.Error(), "repos[1]") {
		t.Errorf("in JSON: %v", err)
	}
}
