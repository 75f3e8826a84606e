package backend

import (
	"strings"
	"testing"
)

// SPEC 1: exactly three, and each is its own name.
func TestThreeBackends(t *testing.T) {
	if all := All(); len(all) != 3 {
		t.Fatalf("%d backends", len(all))
	}
	for _, name := range []string{"microvm", "native", "none"} {
		b, err := Parse(name)
		if err != nil || string(b) != name || ParseName(name) != b {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

// SPEC 2, 3, 4.
func TestParseName(t *testing.T) {
	for name, want := range map[string]Backend{
		"": None, "auto": None, "NATIVE": None, "Native": None, "Docker": None, "DOCKER": None, "native\n": None, "\tnative": None, "vm": None,
		"docker": Native, "native": Native, "microvm": MicroVM, "none": None,
	} {
		if got := ParseName(name); got != want {
			t.Errorf("%q is %s, want %s", name, got, want)
		}
	}
}

// SPEC 55: a name that a person gives is known, or the known ones are listed.
func TestParseRefusesTheUnknown(t *testing.T) {
	for _, name := range []string{"", "auto", "NATIVE", "Docker", "native ", "bwrap", "x\ny"} {
		b, err := Parse(name)
		if err == nil || b != "" {
			t.Errorf("%q is read as %q", name, b)
			continue
		}
		for _, valid := range All() {
			if !strings.Contains(err.Error(), string(valid)) {
				t.Errorf("%q: %v does not list %s", name, err, valid)
			}
		}
		if strings.ContainsAny(err.Error(), "\n") {
			t.Errorf("%q: the error has several lines: %q", name, err)
		}
	}
	if b, err := Parse("docker"); b != Native || err != nil {
		t.Errorf("docker: %q, %v", b, err)
	}
}

// SPEC 7, 8, 12.
func TestWhatABackendIsWorth(t *testing.T) {
	for _, b := range append(All(), "", "docker") {
		if b.Enclosed() != (b == MicroVM) {
			t.Errorf("%q: enclosed is %t", b, b.Enclosed())
		}
		if b.Wraps() != (b == Native || b == None) {
			t.Errorf("%q: wraps is %t", b, b.Wraps())
		}
	}
}
