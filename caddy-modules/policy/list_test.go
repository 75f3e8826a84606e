package policy

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestParseList(t *testing.T) {
	const list = "\ufeff# Source and packages.\r\n" +
		"github.com 443\r\n" +
		"\n" +
		"  \t# indented\n" +
		"  *.golang.org   443 # the registry\n" +
		"\t10.0.0.5\t5432\n" +
		"last.example.com"
	rules, err := ParseList(strings.NewReader(list), "allow/x.list")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"allow/x.list:2 github.com 443",
		"allow/x.list:5 *.golang.org 443",
		"allow/x.list:6 10.0.0.5 5432",
		"allow/x.list:7 last.example.com",
	}
	if len(rules) != len(want) {
		t.Fatalf("got %d rules, want %d: %v", len(rules), len(want), rules)
	}
	for i, r := range rules {
		if got := r.Origin.String() + " " + r.String(); got != want[i] {
			t.Errorf("got %q, want %q", got, want[i])
		}
	}
}

func TestParseListEmpty(t *testing.T) {
	for _, list := range []string{"", "\n\n", "# nothing\n", "\ufeff"} {
		if rules, err := ParseList(strings.NewReader(list), "x"); err != nil || len(rules) != 0 {
			t.Errorf("%q: got %v, %v", list, rules, err)
		}
	}
}

func TestParseListRefuses(t *testing.T) {
	broken := errors.New("disk on fire")
	for _, c := range []struct {
		name string
		in   io.Reader
		want string
	}{
		{"bad rule", strings.NewReader("a.com\n\n*b.com\n"), `x.list:3: parse rule: "*b.com" has a star glued`},
		{"glued comment", strings.NewReader("a.com#b\n"), "x.list:1: parse rule: "},
		{"carriage return inside", strings.NewReader("a.com\rb.com\n"), "x.list:1: parse rule"},
		{"long line", strings.NewReader("a.com\n" + strings.Repeat("a", 2000) + "\n"), "x.list:2: parse list: line longer than 1024 bytes"},
		{"reader fails", io.MultiReader(strings.NewReader("a.com\n"), iotest.ErrReader(broken)), "x.list:2: read list: disk on fire"},
		{"byte order mark later", strings.NewReader("a.com\n\ufeffb.com\n"), "x.list:2: parse rule"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rules, err := ParseList(c.in, "x.list")
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if rules != nil {
				t.Errorf("refused, and still gives %v", rules)
			}
		})
	}
}
