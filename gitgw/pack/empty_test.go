package pack_test

import (
	"bytes"
	"context"
	"io"
	"testing"

	"postern/gitgw/pack"
)

// An object of no bytes is one: what is a delta against it is not the delta itself, and
// it can be shown twice.
func TestEmptyObjects(t *testing.T) {
	t.Parallel()
	var f forged
	base := f.object(3, 4, nil, []byte("oooo"))
	none := f.buf.Len() + 12
	f.object(6, 2, ofs(none-base), []byte("\x04\x00"))
	here := f.buf.Len() + 12
	f.object(6, 8, ofs(here-none), []byte("\x00\x04\x02se\x02cr"))
	data := f.bytes()
	var blobs []string
	p, err := pack.Open(context.Background(), bytes.NewReader(data), int64(len(data)), pack.Options{Blob: func(_ int, r io.Reader) error {
		content, err := io.ReadAll(r)
		blobs = append(blobs, string(content))
		return err
	}})
	if err != nil || len(blobs) != 3 || blobs[1] != "" || blobs[2] != "secr" {
		t.Fatalf("%q %v", blobs, err)
	}
	for i, want := range []string{"oooo", "", "", "secr"} {
		if _, content, err := p.Object(i - i/2); err != nil || string(content) != want {
			t.Errorf("%d: %q %v", i-i/2, content, err)
		}
	}
}

// The tree of no files is the first that is looked at, and looked at again.
func TestEmptyTree(t *testing.T) {
	t.Parallel()
	var f forged
	f.object(2, 0, nil, nil)
	data := f.bytes()
	p, err := pack.Open(context.Background(), bytes.NewReader(data), int64(len(data)), pack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if kind, content, err := p.Object(0); kind != pack.Tree || len(content) != 0 || err != nil {
			t.Errorf("%s %q %v", kind, content, err)
		}
	}
}
