package mountinfo

import "testing"

func TestUnescape(t *testing.T) {
	for text, want := range map[string]string{
		"/plain":          "/plain",
		`/a\040b`:         "/a b",
		`/tab\011\012end`: "/tab\t\nend",
		`/back\134slash`:  `/back\slash`,
		`/\04`:            `/\04`,
		`/\400`:           `/\400`,
		`/\9x0`:           `/\9x0`,
		`\`:               `\`,
	} {
		if got := Unescape(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
