package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRunsThatShareAFolder(t *testing.T) {
	view := func(text string) *view {
		v := &view{denied: map[string]string{}, patterns: map[string]bool{}}
		for word := range strings.FieldsSeq(text) {
			switch kind, rest := word[:1], word[1:]; kind {
			case "w", "r":
				v.roots = append(v.roots, Root{Path: rest, Writable: kind == "w"})
			case "p":
				v.patterns[rest] = true
			case "d":
				path, pattern, _ := strings.Cut(rest, "=")
				v.denied[path] = pattern
			}
		}
		return v
	}
	for _, tc := range []struct {
		name, one, other string
		ok               bool
	}{
		{"nothing asked for", "w/w", "w/w", true},
		{"the same", "w/w d/w/x", "w/w d/w/x", true},
		{"one less", "w/w d/w/x", "w/w", false},
		{"another", "w/w d/w/x", "w/w d/w/y", false},
		{"covered by more", "w/w d/w/x/y", "w/w d/w/x", false}, // the other way round it is not
		{"both, one wider", "w/w d/w/x/y d/w/x", "w/w d/w/x", true},
		{"elsewhere", "w/w d/w/x", "w/v", true},
		{"a folder within", "w/w d/w/s/x", "w/w/s", false},
		{"a folder around", "w/w/s d/w/s/x", "w/w", false},
		{"only read there", "w/w d/w/x", "r/w", true},
		{"read by the one that denies", "r/w d/w/x", "w/w", false},
		{"the denied itself is the other's root", "w/w d/w/x", "w/w/x", true},
		{"a deeper root decides", "w/w d/w/s/x", "w/w r/w/s", false}, // s may be renamed by the first
		{"a folder that is only read", "w/w r/w/s", "w/w", false},
		{"which both only read", "w/w r/w/s", "w/w r/w/s", true},
		{"a name like it", "w/w d/w/x", "w/wx", true},
		{"a pattern that both have", "w/w p*.k d/w/a.k=*.k", "w/w p*.k d/w/b.k=*.k", true},
		{"a pattern of one", "w/w p*.k d/w/a.k=*.k", "w/w", false},
		{"a pattern of one that found nothing", "w/w p*.k", "w/w", true},
		{"by path and by pattern", "w/w d/w/a.k", "w/w p*.k d/w/a.k=*.k", true},
	} {
		one, other := view(tc.one), view(tc.other)
		for i, err := range []error{one.conflict(other), other.conflict(one)} {
			if (err == nil) != tc.ok {
				t.Errorf("%s, %d: got %v", tc.name, i, err)
			}
			if err != nil {
				refusal(t, err, ReasonShared)
			}
		}
	}
}

func TestViewsComeBack(t *testing.T) {
	in := &view{name: "agent", roots: []Root{{Path: "/w\xff", Writable: true}, {Path: "/r"}}, denied: map[string]string{"/w/x\n": "", "/w/y": "*y"}, patterns: map[string]bool{"*y": true}}
	data, err := in.encode()
	must(t, err)
	out, err := decodeView(data)
	must(t, err)
	again, err := out.encode()
	must(t, err)
	if len(again) != len(data) || out.name != "agent" || len(out.roots) != 2 || !out.roots[0].Writable || out.denied["/w/y"] != "*y" || !out.patterns["*y"] {
		t.Errorf("got %+v", out)
	}
	for _, bad := range []string{"", "x", "x\x00", viewVersion + "\x00", viewVersion + "\x00n\x00z\x00", viewVersion + "\x00n\x00d/x\x00", viewVersion + "\x00n\x00\x00"} {
		if _, err := decodeView([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// While a run is on, one that shares its folder on other terms is refused, and told
// which it is. What a killed launcher left keeps nobody.
func TestRunsAreHeldToEachOther(t *testing.T) {
	needBwrap(t)
	w := newWorld(t)
	write(t, w.tree+"/key", "k")
	write(t, w.tree+"/other", "o")
	start := func(name string, hide ...string) (*Process, error) {
		p := w.profile()
		p.Name, p.Hidden = name, hide
		return Start(t.Context(), gather(t, p), Options{Stdin: devNull(t), Stdout: capture(t), Stderr: capture(t)})
	}
	first, err := start("first", w.tree+"/key")
	must(t, err)
	same, err := start("same", w.tree+"/key")
	must(t, err)
	for _, hide := range [][]string{nil, {w.tree + "/other"}, {w.tree + "/other", w.tree + "/key"}} {
		p, err := start("second", hide...)
		if err == nil {
			p.Close()
		}
		refusal(t, err, ReasonShared)
		if text := err.Error(); !strings.Contains(text, "first") && !strings.Contains(text, "same") || !strings.Contains(text, w.tree) {
			t.Errorf("the refusal says %q", text)
		}
	}
	first.Close()
	same.Close()
	stale := filepath.Join(w.run, ".view-1")
	write(t, stale, viewVersion+"\x00gone\x00w"+w.tree+"\x00d"+w.tree+"/key\x00\x00")
	after, err := start("after")
	must(t, err)
	if _, err := os.Lstat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Error("the note of a run that is gone is left")
	}
	after.Close()
	if left, _ := filepath.Glob(w.run + "/.view-*"); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}
