package mint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"postern/gitgw"
	"postern/gitgw/mint"
)

// script writes a program. Its arguments and input are its own affair.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "helper")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommand(t *testing.T) {
	seen := filepath.Join(t.TempDir(), "seen")
	c := &mint.Command{Argv: []string{script(t, `
read -r line
echo "$# $1 $line" >>"$2"
case $line in *'"mint"'*) echo '{"token":"tok-12345678","expires_at":"2030-01-02T03:04:05Z","extra":1}' ;; esac
`), "a b; $(touch /nope) *", seen}}
	token, err := c.Mint(t.Context(), repo(t, "github.com/acme/app"), gitgw.Write)
	if err != nil || token.Value() != "tok-12345678" || !token.Expires().Equal(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("%v %v", token.Value(), err)
	}
	if err := c.Revoke(t.Context(), token); err != nil {
		t.Error(err)
	}
	got, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	want := `2 a b; $(touch /nope) * {"action":"mint","access":"write","host":"github.com","owner":"acme","name":"app"}
2 a b; $(touch /nope) * {"action":"revoke","token":"tok-12345678"}
`
	if string(got) != want {
		t.Errorf("the program saw\n%s", got)
	}
}

func TestCommandAnswers(t *testing.T) {
	for _, c := range []struct{ name, body, want, reason string }{
		{"bare", "echo tok-12345678", "tok-12345678", ""},
		{"spaces around", "printf '\\n  tok-12345678 \\n\\n'", "tok-12345678", ""},
		{"nothing", "true", "", "the token command gave no token"},
		{"two words", "echo tok en", "", "the token command gave no token"},
		{"two lines", "printf 'a\\nb\\n'", "", "the token command gave no token"},
		{"not ASCII", "printf 'tök\\n'", "", "the token command gave no token"},
		{"half JSON", `echo '{"token":"secret-half'`, "", "the token command gave no token"},
		{"JSON without", `echo '{"tok":"x"}'`, "", "the token command gave no token"},
		{"JSON with a control character", `echo '{"token":"a\u0000b"}'`, "", "the token command gave no token"},
		{"fails", "echo secret-out; echo no key >&2; exit 3", "", "the token command failed"},
		{"too much", "head -c 200000 /dev/zero", "", "the token command said too much"},
		{"slow", "sleep 60", "", "the token command did not answer in time"},
		{"slow child", "sleep 60 & echo tok", "", "the token command did not answer in time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Written before any of the others runs: a program that a forked process
			// still has open for writing cannot be started.
			program := script(t, c.body)
			t.Parallel()
			m := &mint.Command{Argv: []string{program}, Timeout: 30 * time.Second}
			if strings.HasPrefix(c.name, "slow") {
				m.Timeout = 300 * time.Millisecond
			}
			started := time.Now()
			token, err := m.Mint(t.Context(), repo(t, "github.com/acme/app"), gitgw.Write)
			if took := time.Since(started); took > 20*time.Second {
				t.Errorf("took %s", took)
			}
			if c.reason == "" {
				if err != nil || token.Value() != c.want {
					t.Errorf("%q %v", token.Value(), err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), c.reason) || strings.Contains(err.Error(), "secret-") || !token.IsZero() {
				t.Errorf("%v, want %q", err, c.reason)
			}
		})
	}
	if _, err := (&mint.Command{}).Mint(t.Context(), gitgw.Repo{}, gitgw.Write); err == nil {
		t.Error("no command minted")
	}
	if _, err := (&mint.Command{Argv: []string{"/nonexistent/helper"}}).Mint(t.Context(), gitgw.Repo{}, gitgw.Write); err == nil {
		t.Error("a missing command minted")
	}
}

func TestStatic(t *testing.T) {
	s := mint.NewStatic("w-token", "r-token")
	for access, want := range map[gitgw.Access]string{gitgw.Write: "w-token", gitgw.Read: "r-token", gitgw.Look: "r-token"} {
		token, err := s.Mint(t.Context(), gitgw.Repo{}, access)
		if err != nil || token.Value() != want || s.Revoke(t.Context(), token) != nil {
			t.Errorf("%s: %v %v", access, token.Value(), err)
		}
	}
	// Who only reads never gets the token that writes.
	if _, err := mint.NewStatic("w-token", "").Mint(t.Context(), gitgw.Repo{}, gitgw.Read); err == nil || err.Error() != "no read token is configured" {
		t.Errorf("%v", err)
	}
	if _, err := mint.NewStatic("", "r-token").Mint(t.Context(), gitgw.Repo{}, gitgw.Write); err == nil || err.Error() != "no push token is configured" {
		t.Errorf("%v", err)
	}
}
