package integration_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// testHost runs the scripts of an agent host: the appliance and the launcher as they
// are shipped, and real sandboxes.
func testHost(t *testing.T, caddy string) { //nolint:thelper // a subtest, no helper
	bin := filepath.Dir(buildLauncher(t))
	files, err := filepath.Glob("testdata/script/host_*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	testscript.Run(t, testscript.Params{
		Files: files,
		Setup: func(env *testscript.Env) error {
			run, err := os.MkdirTemp("/tmp", "postern-test-") //nolint:usetesting // the path of a socket must be short
			if err != nil {
				return err
			}
			env.Defer(func() {
				// A script that failed half-way leaves its appliance.
				stop := exec.Command(caddy, "stop")
				stop.Env = append(os.Environ(), "POSTERN_RUN="+run)
				_ = stop.Run()
				_ = os.RemoveAll(run)
			})
			env.Setenv("PATH", bin+string(os.PathListSeparator)+filepath.Dir(caddy)+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("POSTERN_RUN", run)
			env.Setenv("BIN", bin)
			env.Setenv("HOME", env.WorkDir)
			data, err := json.Marshal(map[string]any{
				"sessionId": "s-1", "workspaceId": "w", "bindMounts": []map[string]string{{"hostPath": filepath.Join(env.WorkDir, "tree")}},
			})
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(env.WorkDir, "spec.json"), data, 0o600)
		},
	})
}

// buildLauncher returns the postern command, as it is shipped.
func buildLauncher(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "postern")
	build := exec.Command("go", "build", "-o", path, "./launcher")
	build.Dir = ".."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the launcher: %v\n%s", err, out)
	}
	return path
}
