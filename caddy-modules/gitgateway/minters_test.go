package gitgateway

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"postern/gitgw"
	"postern/gitgw/mint"
)

func forges(t *testing.T, hosts ...string) []gitgw.Forge {
	t.Helper()
	var all []Forge
	for _, h := range hosts {
		all = append(all, Forge{Host: h})
	}
	compiled, err := compileForges(all)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func keyFile(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "app.pem")
	data := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestGitHubAppIsOfOneForge holds that an app's tokens are asked of one place: a
// JWT sent to another forge would tell that one who we are.
func TestGitHubAppIsOfOneForge(t *testing.T) {
	t.Setenv("POSTERN_TEST_KEY", keyFile(t))
	for _, c := range []struct {
		name, forge string
		hosts       []string
		want, err   string
	}{
		{"the only one", "", []string{"github.com"}, "github.com", ""},
		{"none named", "", nil, "github.com", ""},
		{"one of two", "ghe.example", []string{"github.com", "ghe.example"}, "ghe.example", ""},
		{"two and none named", "", []string{"github.com", "ghe.example"}, "", "several forges"},
		{"another", "gitlab.example", []string{"github.com"}, "", "no forge"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := (&GitHubApp{AppID: "7", KeyFile: "{env.POSTERN_TEST_KEY}", Forge: c.forge}).NewMinter(forges(t, c.hosts...))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if app := m.(*mint.GitHubApp); app.Forge.Host != c.want || app.AppID != "7" || app.Key == nil {
				t.Errorf("app %s of %s", app.AppID, app.Forge.Host)
			}
		})
	}
}

// TestStatic holds that a session never gets the token that pushes.
func TestStatic(t *testing.T) {
	t.Setenv("POSTERN_TEST_A", "one")
	t.Setenv("POSTERN_TEST_B", "one")
	repo, err := gitgw.ParseRepo("github.com/acme/app")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		m     Static
		lends bool
		err   string
	}{
		{"write alone", Static{Write: "{env.POSTERN_TEST_A}"}, false, ""},
		{"both", Static{Write: "{env.POSTERN_TEST_A}", Read: "two"}, true, ""},
		{"the same value by two names", Static{Write: "{env.POSTERN_TEST_A}", Read: "{env.POSTERN_TEST_B}"}, true, "must not have it"},
		{"an empty variable", Static{Write: "{env.POSTERN_TEST_NOT_SET}"}, false, "resolve write"},
		{"an unknown placeholder", Static{Write: "{secret.push}"}, false, "resolve write"},
		{"an empty read token", Static{Write: "one", Read: "{env.POSTERN_TEST_NOT_SET}"}, true, "resolve read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.m.Lends(); got != c.lends {
				t.Errorf("lends: %v", got)
			}
			m, err := c.m.NewMinter(nil)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			write, err := m.Mint(t.Context(), repo, gitgw.Write)
			if err != nil || write.Value() != "one" {
				t.Errorf("write: %v, %v", write, err)
			}
			if read, err := m.Mint(t.Context(), repo, gitgw.Read); (err == nil) != c.lends || read.Value() == "one" {
				t.Errorf("read: %v, %v", read, err)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	for name, err := range map[string]error{
		"app without id":            (&GitHubApp{KeyFile: "k"}).Validate(),
		"app without key":           (&GitHubApp{AppID: "1"}).Validate(),
		"static without write":      (&Static{Read: "r"}).Validate(),
		"static with one for both":  (&Static{Write: "t", Read: "t"}).Validate(),
		"command without program":   (&Command{}).Validate(),
		"command with an empty one": (&Command{Command: []string{""}}).Validate(),
		"command with no time":      (&Command{Command: []string{"x"}, Timeout: -1}).Validate(),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestBroker holds what sessions are given: a token of their own forge, and none
// elsewhere.
func TestBroker(t *testing.T) {
	b := broker{mint.NewStatic("push", "read"), forges(t, "github.com")}
	value, _, revoke, err := b.Mint(t.Context(), "github.com/Acme/App")
	if err != nil || value != "read" || revoke == nil || revoke(t.Context()) != nil {
		t.Errorf("own forge: %q, %v", value, err)
	}
	if value, _, _, err := b.Mint(t.Context(), "gitlab.example/acme/app"); err != nil || value != "" {
		t.Errorf("another forge: %q, %v", value, err)
	}
	if _, _, _, err := b.Mint(t.Context(), "acme/app"); err == nil {
		t.Error("no repository: accepted")
	}
	if err := b.Adopt("earlier")(t.Context()); err != nil {
		t.Errorf("adopt: %v", err)
	}
}
