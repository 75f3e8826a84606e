package integration_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"postern/caddy-modules/session/lease"
	"postern/integration/fakegithub"
)

// testKilledPush kills the appliance in the middle of a push, at each stage at which
// its write token lives: the next one revokes it, and the forge's log says so.
func testKilledPush(t *testing.T, caddy string) { //nolint:thelper // a subtest, no helper
	for _, c := range []struct {
		name   string
		faults fakegithub.Faults
		// at reports whether the push is where the appliance is to be killed.
		at func(*fakegithub.Server) bool
		// moved says that the forge had the push by then.
		moved bool
	}{
		{
			"between mint and forward",
			fakegithub.Faults{HoldAdvert: true},
			func(f *fakegithub.Server) bool {
				return len(f.Find(http.MethodGet, "/info/refs", "git-receive-pack")) > 0
			},
			false,
		},
		{
			"while it forwards",
			fakegithub.Faults{HoldPush: true},
			func(f *fakegithub.Server) bool { return len(f.Pushes()) > 0 },
			false,
		},
		{
			"between forward and revoke",
			fakegithub.Faults{HoldRevoke: true},
			func(f *fakegithub.Server) bool { return len(f.Find(http.MethodDelete, "/installation/token", "")) > 0 },
			true,
		},
		{
			"after a revocation that failed",
			fakegithub.Faults{Revoke: http.StatusBadGateway},
			func(f *fakegithub.Server) bool {
				tried := f.Find(http.MethodDelete, "/installation/token", "")
				return len(tried) > 0 && tried[0].Done
			},
			true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := runDir(t)
			forge := newForge(t)
			config := gatewayConfig(t, run, forge)
			first := startAppliance(t, caddy, run, config)
			httpLn, socksLn := listenTCP(t), listenTCP(t)
			held := lend(t, run, lease.Hello{Spec: lease.Spec{ID: "run", Repository: "github.com/acme/app"}}, httpLn, socksLn)
			forge.SetFaults(c.faults)
			push := startPush(t, forge, httpLn.Addr().String())
			waitUntil(t, "the push is at its stage", func() bool { return c.at(forge) })

			first.kill()
			killPush(push)
			write := forge.WriteTokens()
			if len(write) != 1 || write[0].Revoked() {
				t.Fatalf("%d write tokens, want one that lives", len(write))
			}
			info, err := os.Stat(filepath.Join(run, "tokens.ledger"))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the ledger: %v %v", info, err)
			}
			// Nothing but the ledger knows the token, and it is as secret as that is.
			if seen := findIn(t, run, write[0].Value); len(seen) != 1 || seen[0] != "tokens.ledger" {
				t.Errorf("the write token stands in %v", seen)
			}

			forge.SetFaults(fakegithub.Faults{})
			forge.ForgetRequests()
			second := startAppliance(t, caddy, run, config)
			waitUntil(t, "the write token is revoked", func() bool { return forge.WriteTokens()[0].Revoked() })
			revoked := false
			for _, r := range forge.Find(http.MethodDelete, "/installation/token", "") {
				revoked = revoked || r.Header.Get("Authorization") == "Bearer "+write[0].Value && r.Status == http.StatusNoContent
			}
			if !revoked {
				t.Error("the forge's log has no revocation of the write token")
			}
			if refs, _ := forge.Refs("acme/app"); (refs["refs/heads/x"] != "") != c.moved {
				t.Errorf("the forge has %v", refs)
			}

			// The run comes back with its own token, and ends.
			back := held.Answer()
			<-held.Done()
			again := lend(t, run, lease.Hello{
				Spec:   lease.Spec{ID: "run", Repository: "github.com/acme/app"},
				Resume: &lease.Resume{ReadToken: back.ReadToken, Born: back.Born},
			}, httpLn, socksLn)
			if err := again.Close(); err != nil {
				t.Error(err)
			}
			waitUntil(t, "no token lives", func() bool { return len(forge.Live()) == 0 })
			waitUntil(t, "the ledger is empty", func() bool {
				text, err := os.ReadFile(filepath.Join(run, "tokens.ledger"))
				return err == nil && len(text) == 0
			})
			for _, token := range forge.Tokens() {
				// A renewal that the run's end has overtaken writes its token down, and
				// takes it back.
				waitUntil(t, "no token stands in the run directory", func() bool { return len(findIn(t, run, token.Value)) == 0 })
				if strings.Contains(first.output.String()+second.output.String(), token.Value) {
					t.Error("a token stands in the log")
				}
			}
		})
	}
}

// newForge is a forge with one repository, and an app that is installed on it.
func newForge(t *testing.T) *fakegithub.Server {
	t.Helper()
	forge, err := fakegithub.New(fakegithub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = forge.Close() })
	if err := forge.AddRepo("acme/app"); err != nil {
		t.Fatal(err)
	}
	if _, err := forge.Commit("acme/app", "main", "begin", map[string]string{"README": "x"}); err != nil {
		t.Fatal(err)
	}
	forge.Install(fakegithub.Installation{Account: "acme"})
	return forge
}

// findIn names the files below dir that hold text.
func findIn(t *testing.T, dir, text string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil // it is replaced at the moment
		}
		if strings.Contains(string(content), text) {
			name, _ := filepath.Rel(dir, path)
			found = append(found, name)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return found
}
