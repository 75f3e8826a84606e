package integration_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "postern/caddy-modules"
)

var update = flag.Bool("update", false, "write the second half of the golden files anew")

// goldenCut separates a Caddyfile from what it adapts to, as in Caddy's own tests.
const goldenCut = "\n----------\n"

// TestAdapt holds the grammar: each file of testdata/adapt is a Caddyfile and
// below the line the JSON it becomes, or the error, with file and line, that
// refuses it.
func TestAdapt(t *testing.T) {
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	t.Setenv("POSTERN_RUN", "/run/postern")
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".caddyfiletest"), func(t *testing.T) { testGolden(t, name) })
	}
}

func testGolden(t *testing.T, name string) { //nolint:thelper // a subtest, no helper
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	input, want, ok := strings.Cut(string(data), goldenCut)
	if !ok {
		t.Fatalf("%s has no line of dashes", name)
	}
	input += "\n"
	if got := caddyfile.Format([]byte(input)); !bytes.Equal(got, []byte(input)) {
		t.Errorf("the Caddyfile is not as `caddy fmt` wants it:\n%s", got)
	}
	got := adapted(t, "testdata/adapt/Caddyfile", input)
	if *update {
		if err := os.WriteFile(name, []byte(strings.TrimSuffix(input, "\n")+goldenCut+got+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want = strings.TrimSpace(want); got != want && !*update {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// adapted returns the JSON of a Caddyfile, indented, or the text of the error.
func adapted(t *testing.T, name, input string) string {
	t.Helper()
	cfg, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(input), map[string]any{"filename": name})
	if err != nil {
		// An imported file has its full name in errors of the adapter.
		dir, wderr := os.Getwd()
		if wderr != nil {
			t.Fatal(wderr)
		}
		return strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), "")
	}
	for _, w := range warnings {
		t.Errorf("warning: %s", w)
	}
	var buf bytes.Buffer
	if err := json.Indent(&buf, cfg, "", "\t"); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

// TestAdaptedProvisions loads every golden that is a configuration as far as
// `caddy validate` would: a grammar that adapts to what the modules refuse is no
// grammar.
func TestAdaptedProvisions(t *testing.T) {
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	run := runDir(t)
	key := filepath.Join(run, "app.pem")
	if err := os.WriteFile(key, appKey(t), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("POSTERN_TEST_WRITE", "token that pushes")
	t.Setenv("POSTERN_TEST_READ", "token that reads")
	list := filepath.Join(run, "some.list")
	if err := os.WriteFile(list, []byte("listed.example.com\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	machine := strings.NewReplacer("/run/postern", run, "/etc/postern/app.pem", key, "/etc/postern/some.list", list)
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, cfg, _ := strings.Cut(string(data), goldenCut)
		if !strings.HasPrefix(cfg, "{") {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(name), ".caddyfiletest"), func(t *testing.T) {
			var c *caddy.Config
			if err := caddy.StrictUnmarshalJSON([]byte(machine.Replace(cfg)), &c); err != nil {
				t.Fatal(err)
			}
			if err := caddy.Validate(c); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestShippedCaddyfile holds what the first minute with Postern promises: the
// file is formatted, adapts without a warning and provisions with nothing
// prepared.
func TestShippedCaddyfile(t *testing.T) {
	runDir(t)
	data, err := os.ReadFile("../Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	if got := caddyfile.Format(data); !bytes.Equal(got, data) {
		t.Errorf("not formatted, `caddy fmt` makes it:\n%s", got)
	}
	text := adapted(t, "../Caddyfile", string(data))
	var cfg *caddy.Config
	if err := caddy.StrictUnmarshalJSON([]byte(text), &cfg); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if err := caddy.Validate(cfg); err != nil {
		t.Fatal(err)
	}
}

// TestREADME holds the Caddyfile that a reader copies first: it loads, once there is a
// key or no token.
func TestREADME(t *testing.T) {
	runDir(t)
	data, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "```caddyfile\n")
	text, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("README.md has no Caddyfile")
	}
	if got := caddyfile.Format([]byte(text)); string(got) != text {
		t.Errorf("not formatted, `caddy fmt` makes it:\n%s", got)
	}
	key := filepath.Join(t.TempDir(), "app.pem")
	if err := os.WriteFile(key, appKey(t), 0o600); err != nil {
		t.Fatal(err)
	}
	text = strings.ReplaceAll(text, "/etc/postern/github-app.pem", key)
	var cfg *caddy.Config
	if err := caddy.StrictUnmarshalJSON([]byte(adapted(t, "Caddyfile", text)), &cfg); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(cfg); err != nil {
		t.Fatal(err)
	}
}

// appKey makes the private key of a GitHub App, as GitHub hands it out.
func appKey(t *testing.T) []byte {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
}

// runDir makes a run directory for the test and exports it. It is short, since
// the path of a socket has about a hundred bytes, and t.TempDir may be long.
func runDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "postern-test-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("POSTERN_RUN", dir)
	return dir
}
