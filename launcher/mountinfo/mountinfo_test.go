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

func TestParseLine(t *testing.T) {
	got, err := ParseLine(`36 35 98:0 /mnt\0401 /mnt/two\040words rw,noatime master:1 - ext3 /dev/root rw,errors=continue`)
	if want := (Mount{ID: 36, Device: "98:0", Root: "/mnt 1", At: "/mnt/two words", Type: "ext3", Writable: true}); err != nil || got != want {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
	if got, err := ParseLine("1 0 0:1 / / ro - tmpfs t rw"); err != nil || got.Writable {
		t.Errorf("read-only: %+v (%v)", got, err)
	}
	for _, line := range []string{"", "x", "x 1 0:1 / / rw - tmpfs t rw", "-1 1 0:1 / / rw - tmpfs t rw", "1 1 0:1 / / rw tmpfs t rw", "1 1 0:1 / rw - tmpfs t rw", "1 1 0:1 / / rw - "} {
		if got, err := ParseLine(line); err == nil {
			t.Errorf("%q: %+v", line, got)
		}
	}
}
