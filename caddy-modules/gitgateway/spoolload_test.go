package gitgateway_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A folder that is not there is found as the configuration is loaded; the default one is
// made when the first pack is kept, for nobody else.
func TestSpoolIsLoaded(t *testing.T) {
	g := newGatewayTest(t, `"repos": [{"name": "github.com/acme/*", "rules": [{"verdict": "push", "refs": ["**"]}], "secrets": "deny"}]`)
	if out, err := g.push(t, "acme/app", "feature"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(filepath.Join(g.run, "spool"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
	none := filepath.Join(g.run, "none")
	if err := g.load(g.app() + fmt.Sprintf(`"spool": {"dir": %q}`, none)); err == nil || !strings.Contains(err.Error(), "make it with: mkdir -m 700 "+none) {
		t.Errorf("%v", err)
	}
}
