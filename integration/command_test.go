package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestCaddy holds what a real process is needed for: one that can be killed, and
// one that is started as a person starts it. The binary is built once for all.
func TestCaddy(t *testing.T) {
	caddy := buildCaddy(t)
	t.Run("commands", func(t *testing.T) { testCommands(t, caddy) })
	t.Run("crash", func(t *testing.T) { testCrash(t, caddy) })
	t.Run("changed and killed", func(t *testing.T) { testChangedCrash(t, caddy) })
	t.Run("tokens", func(t *testing.T) { testTokens(t, caddy) })
	t.Run("killed push", func(t *testing.T) { testKilledPush(t, caddy) })
	t.Run("renewed token", func(t *testing.T) { testRenewedToken(t, caddy) })
	t.Run("large push", func(t *testing.T) { testLargePush(t, caddy) })
	t.Run("terminate", func(t *testing.T) { testTerminate(t, caddy) })
	t.Run("second appliance", func(t *testing.T) { testSecondAppliance(t, caddy) })
	t.Run("host", func(t *testing.T) { testHost(t, caddy) })
}

// testCommands runs the scripts that need the caddy command alone; those of the
// launcher are run where their equipment is made.
func testCommands(t *testing.T, caddy string) { //nolint:thelper // a subtest, no helper
	files, err := filepath.Glob("testdata/script/caddy_*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	bin := filepath.Dir(caddy)
	testscript.Run(t, testscript.Params{
		Files: files,
		Setup: func(env *testscript.Env) error {
			run, err := os.MkdirTemp("/tmp", "postern-test-") //nolint:usetesting // the path of a socket must be short
			if err != nil {
				return err
			}
			env.Defer(func() {
				// A script that failed half-way leaves its appliance.
				stop := exec.Command(filepath.Join(bin, "caddy"), "stop")
				stop.Env = append(os.Environ(), "POSTERN_RUN="+run)
				_ = stop.Run()
				_ = os.RemoveAll(run)
			})
			env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("POSTERN_RUN", run)
			env.Setenv("HOME", env.WorkDir)
			return nil
		},
	})
}
