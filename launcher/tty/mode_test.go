package tty

import (
	"os"
	"testing"
)

func TestParseMode(t *testing.T) {
	for text, want := range map[string]Mode{
		"": Auto, "auto": Auto, "AUTO": Auto, "on": On, "On": On, "true": On, "1": On, "yes": On, "off": Off, "false": Off, "0": Off, "no": Off,
	} {
		if got, err := ParseMode(text); err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"maybe", "on off", " on", "always"} {
		if got, err := ParseMode(text); err == nil {
			t.Errorf("%q is read as %q", text, got)
		}
	}
}

// Without a person at both ends only On gives a terminal.
func TestOpenWithoutATerminal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if Off.Open(r, w) != nil || Auto.Open(r, w) != nil {
		t.Error("a pipe is taken for a terminal")
	}
	c := On.Open(r, w)
	if c == nil {
		t.Fatal("none was opened")
	}
	if c.Size() != fallback || c.Modes() != nil || !c.Attach() {
		t.Errorf("size %v, modes %v", c.Size(), c.Modes())
	}
	c.Pause()
	c.Resume()
	c.Restore()
}
