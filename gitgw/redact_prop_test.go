package gitgw

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const tokenBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// shaped draws a credential by whose shape it is known, and the part of it that is
// the secret.
func shaped(t *rapid.T) (text, secret string) {
	body := func(label, more string, least, most int) string {
		return rapid.StringOfN(rapid.SampledFrom([]rune(tokenBytes+more)), least, most, -1).Draw(t, label)
	}
	// No separator at the ends: there it may as well be the sentence's.
	core := body("first", "", 1, 1) + body("body", "", 20, 80) + body("last", "", 1, 1)
	part := func(label string) string { return body(label, "-_", 10, 60) }
	switch kind := rapid.IntRange(0, 8).Draw(t, "kind"); kind {
	case 0:
		return rapid.SampledFrom([]string{"ghs_", "ghp_", "gho_", "ghu_", "ghr_", "github_pat_"}).Draw(t, "prefix") + core, core
	case 1:
		return rapid.SampledFrom([]string{"glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "glagent-", "gloas-", "glimt-"}).Draw(t, "prefix") + core, core
	case 2: // the long form
		jwt := "eyJ" + part("head") + "." + part("claims") + "." + core
		return "ghs_412233_" + jwt, jwt
	case 3:
		jwt := "eyJ" + part("head") + "." + part("claims") + "." + core
		return jwt, jwt
	case 4:
		user := body("user", "", 0, 10)
		return "https://" + user + ":" + core + "@github.com/acme/app.git", core
	case 5:
		return rapid.SampledFrom([]string{"Authorization: Bearer ", "authorization: token ", "Proxy-Authorization: Basic ", `"Authorization":"Bearer `, "PRIVATE-TOKEN: ", "Job-Token: "}).Draw(t, "header") + core, core
	case 6:
		return rapid.SampledFrom([]string{"Basic ", "bearer ", "BEARER\t"}).Draw(t, "scheme") + core, core
	case 7:
		basic := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + core))
		return basic, basic
	default:
		return "x-access-token:" + core, core
	}
}

// around draws what may stand beside a credential: anything but what would be a
// part of it.
func around(t *rapid.T, label string) string {
	return rapid.SampledFrom([]string{
		"", " ", "\n", "\t", "remote: ", "error: ", "(", ")", "'", `"`, ",", ";", "<", ">", "[", "]", "\x1b[31m", "\x00", "é", "\xff", " 403 ", "token ",
		"https://github.com/acme/app ", "refs/heads/x ", "a b c ",
	}).Draw(t, label)
}

// Whatever stands around a credential of a known shape, nothing of it is left.
func TestRedactAnyShape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		var secrets []string
		for range rapid.IntRange(1, 4).Draw(t, "n") {
			one, secret := shaped(t)
			text.WriteString(around(t, "before") + " " + one + " " + around(t, "after"))
			secrets = append(secrets, secret)
		}
		for how, got := range map[string]string{"text": Redact(text.String()), "line": RedactLine(text.String())} {
			for _, secret := range secrets {
				// No run of twelve of its bytes either.
				for i := 0; i+12 <= len(secret); i++ {
					if strings.Contains(got, secret[i:i+12]) {
						t.Fatalf("%s of %q is %q", how, text.String(), got)
					}
				}
			}
			if again := Redact(got); again != got {
				t.Fatalf("%q becomes %q", got, again)
			}
		}
	})
}

// A token that is known is found whatever its shape is and however it is written.
func TestRedactAnyValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringOfN(rapid.SampledFrom([]rune(tokenBytes+"._~+/=-:%")), 16, 60, -1).Draw(t, "value")
		if strings.Contains(redacted, value) {
			t.Skip()
		}
		user := rapid.StringOfN(rapid.SampledFrom([]rune(tokenBytes)), 0, 9, -1).Draw(t, "user")
		basic := []byte(user + ":" + value)
		for how, form := range map[string]string{
			"as it is": value, "in a query": url.QueryEscape(value), "in a path": url.PathEscape(value), "in hex": hex.EncodeToString([]byte(value)),
			"in Basic": base64.StdEncoding.EncodeToString(basic), "in Basic without padding": base64.RawStdEncoding.EncodeToString(basic),
			"in base64 of URLs": base64.URLEncoding.EncodeToString(basic),
		} {
			text := around(t, "before") + form + around(t, "after")
			got := Redact(text, NewToken(value, time.Time{}))
			if strings.Contains(got, form) || !strings.Contains(got, redacted) {
				t.Fatalf("%s: %q is %q", how, text, got)
			}
			if strings.HasPrefix(how, "in Ba") || strings.HasPrefix(how, "in ba") {
				// What is left of the value's own digits is less than four.
				if middle := form[(len(user)+1)*4/3+4 : len(form)-6]; strings.Contains(got, middle) {
					t.Fatalf("%s: %q is %q", how, text, got)
				}
			}
		}
	})
}

func FuzzRedact(f *testing.F) {
	f.Add("remote: https://x-access-token:ghs_0123456789abcdefghij@github.com", "static-token-of-a-forge")
	f.Add("Authorization: Basic eC1hY2Nlc3MtdG9rZW46Z2hz\r\nstatic-token-of-a-forge", "static-token-of-a-forge")
	f.Add("eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiI0MTIyMzMifQ.x glpat-0123456789abcdefghij", "a+b/c==d%2F")
	f.Fuzz(func(t *testing.T, text, value string) {
		known := NewToken(value, time.Time{})
		got, line := Redact(text, known), RedactLine(text, known)
		if len(line) > 200 || strings.ContainsAny(line, "\n\r\x1b\x00") {
			t.Errorf("line %q", line)
		}
		// A value that holds a part of the word that stands for it may come about anew.
		if len(value) >= minKnown && !strings.ContainsAny(value, redacted) && strings.Contains(got, value) {
			t.Errorf("%q in %q", value, got)
		}
		if tokenShapes.MatchString(Redact(got)) && Redact(Redact(got)) != Redact(got) {
			t.Errorf("%q is not done", got)
		}
	})
}
