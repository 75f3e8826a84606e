package pack_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"postern/gitgw/pack"
)

// A tree means one thing: git takes every mode for something, and a reader that takes
// it for something else would not look into what is a folder to git.
func TestParseTree(t *testing.T) {
	var f forged
	f.object(3, 0, nil, nil)
	data := f.bytes()
	p, err := pack.Open(context.Background(), bytes.NewReader(data), int64(len(data)), pack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	id := strings.Repeat("i", 20)
	for _, head := range []string{"100644 a", "100755 a", "100664 a", "120000 a", "160000 a", "40000 a", "040000 a"} {
		entries, err := p.ParseTree([]byte(head + "\x00" + id))
		if err != nil || len(entries) != 1 || entries[0].Name != "a" || entries[0].IsTree() != strings.HasSuffix(head, "40000 a") {
			t.Errorf("%q: %v %v", head, entries, err)
		}
	}
	for _, head := range []string{
		"40001 a", "40755 a", "120001 a", "160644 a", "200040000 a", "7 a", "0 a", " a", "4000x a", "100600 a",
		"40000 ", "40000 .", "40000 ..", "40000 a/b", "40000",
	} {
		if entries, err := p.ParseTree([]byte(head + "\x00" + id)); err == nil {
			t.Errorf("%q: %v", head, entries)
		}
	}
	twice := "40000 a\x00" + id + "100644 a\x00" + id
	if _, err := p.ParseTree([]byte(twice)); err == nil {
		t.Error("one name twice was taken")
	}
}
