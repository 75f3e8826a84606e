package egress

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// TestProcessLogFollowsReloads writes through one logger while Caddy's default
// log moves from file to file: each record goes where the log is by then.
func TestProcessLogFollowsReloads(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	log := processLog().With(slog.String("fixed", "yes")).WithGroup("group")
	for i := range 3 {
		file := filepath.Join(dir, fmt.Sprintf("%d.log", i))
		config := fmt.Sprintf(`{"admin": {"disabled": true, "config": {"persist": false}},
			"logging": {"logs": {"default": {"level": "INFO", "writer": {"output": "file", "filename": %q}, "encoder": {"format": "json"}}}}}`, file)
		if err := caddy.Load([]byte(config), true); err != nil {
			t.Fatal(err)
		}
		log.Info("said", slog.Int("n", i))
		log.Debug("unsaid")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var found int
		for line := range strings.Lines(string(data)) {
			var entry struct {
				Msg, Logger, Fixed string
				Group              struct{ N *int }
			}
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			switch entry.Msg {
			case "unsaid":
				t.Error("a debug record got through")
			case "said":
				found++
				if entry.Logger != moduleID || entry.Fixed != "yes" || entry.Group.N == nil || *entry.Group.N != i {
					t.Errorf("%s", line)
				}
			}
		}
		if found != 1 {
			t.Errorf("%s has the record %d times:\n%s", file, found, data)
		}
	}
}
