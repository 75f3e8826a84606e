package gitgw

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestRedactShapes(t *testing.T) {
	jwt := "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiI0MTIyMzMifQ." + strings.Repeat("Ab-_9", 60)
	long := "ghs_412233_" + jwt
	for _, secret := range []string{
		"ghs_0123456789abcdefghijklmnopqrstuvwxyz", "ghp_0123456789abcdefghijklmnopqrstuvwxyz", "gho_0123456789abcdefghijklmnop",
		"ghu_0123456789abcdefghijklmnop", "ghr_0123456789abcdefghijklmnop", "github_pat_0123456789abcdefghij_klmnop", long, jwt,
	} {
		for _, form := range []string{"%s", "token=%s.", "https://x-access-token:%s@github.com/a/b", "Authorization: Bearer %s", "(%s)"} {
			got := (&redactor{}).text(fmt.Sprintf(form, secret))
			if strings.Contains(got, secret[8:]) || !strings.Contains(got, redacted) {
				t.Errorf("%q became %q", fmt.Sprintf(form, secret), got)
			}
		}
		if got := (&redactor{}).text("Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("x-access-token:"+secret))); strings.Contains(got, "eC1h") {
			t.Errorf("%q", got)
		}
	}
	for _, plain := range []string{"ghs_short", "Basic facts of bearer tokens", "refs/heads/ghs_x", "remote: Resolving deltas: 100% (3/3), done.", "eyJ.a.b"} {
		if got := (&redactor{}).text(plain); got != plain {
			t.Errorf("%q became %q", plain, got)
		}
	}
}

func TestRedactValues(t *testing.T) {
	r := &redactor{}
	r.know(NewToken("hunter2-of-a-static-forge", time.Time{}))
	r.know(NewToken("short", time.Time{})) // would blank ordinary words
	in := "hunter2-of-a-static-forge " + basicAuth("hunter2-of-a-static-forge") + " short"
	if got := r.text(in); got != redacted+" "+redacted+" short" {
		t.Errorf("%q", got)
	}
}

func TestLine(t *testing.T) {
	r := &redactor{}
	for in, want := range map[string]string{
		"plain":                    "plain",
		"a\nb\rc\x1b[31md\x00e":    "a b c [31md e",
		" padded \n":               "padded",
		"bad \xff utf":             "bad ? utf",
		"a\u2028b\u202ec\u200bd":   "a b c d",
		"größe":                    "größe",
		strings.Repeat("x", 200):   strings.Repeat("x", 200),
		strings.Repeat("x", 201):   strings.Repeat("x", 197) + "…",
		strings.Repeat("é", 150):   strings.Repeat("é", 98) + "…",
		"\x00\x00":                 "",
		"ghs_" + long(40) + "\nok": redacted + " ok",
	} {
		got := r.line(in)
		if got != want || len(got) > 200 || !utf8.ValidString(got) {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// However a token is printed, logged or encoded, its value does not show.
func TestTokenNeverShows(t *testing.T) {
	const value = "very-secret-value-0123456789"
	tok := NewToken(value, time.Unix(1, 0))
	holder := struct {
		T  Token
		P  *Token
		In []Token
	}{tok, &tok, []Token{tok}}
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
		fmt.Fprintf(&out, verb+" "+verb+"\n", tok, holder)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", slog.Any("token", tok), slog.Any("holder", holder))
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", slog.Any("token", tok), slog.Any("p", &tok))
	encoded, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	all := out.String() + log.String() + string(encoded) + fmt.Sprint(tok) + fmt.Errorf("revoke %s: %v", tok, tok).Error()
	if strings.Contains(all, value) || strings.Contains(all, fmt.Sprintf("%x", value)) {
		t.Errorf("the value shows:\n%s", all)
	}
	if !strings.Contains(all, tok.ID()) || len(tok.ID()) != 16 {
		t.Errorf("no id %q:\n%s", tok.ID(), all)
	}
	if tok.Value() != value || tok.Expires() != time.Unix(1, 0) || tok.IsZero() || !(Token{}).IsZero() || (Token{}).ID() != "" || (Token{}).String() != "no token" {
		t.Error("accessors")
	}
}

func TestPushRecord(t *testing.T) {
	p := Push{Duration: 1500 * time.Millisecond, Repository: mustRepo("github.com/acme/app"), Outcome: Accepted, Refs: []PushedRef{{
		RefVerdict: RefVerdict{Ref: "refs/heads/x", Action: ActionCreate, Verdict: Allow, Old: zero40, New: idA}, Result: "ok",
	}}}
	out, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"durationSeconds":1.5`, `"repository":"github.com/acme/app"`, `"verdict":"allow"`, `"action":"create"`, `"result":"ok"`, `"outcome":"accepted"`} {
		if !strings.Contains(string(out), part) {
			t.Errorf("%s lacks %s", out, part)
		}
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("push", slog.Any("push", p))
	if !strings.Contains(log.String(), "allow create refs/heads/x") {
		t.Errorf("%s", log.String())
	}
}
