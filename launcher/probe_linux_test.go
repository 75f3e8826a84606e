package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// SPEC 16 to 19: what a host reads.
func TestProbe(t *testing.T) {
	needBwrap(t)
	w := newWorld(t)
	for _, tc := range []struct {
		name string
		env  []string
		code int
		want map[string]any
		line string
	}{
		{"there", nil, 0, map[string]any{"available": true, "requiresInstall": false, "backend": "native", "bridge": "builtin"}, "agent sandbox ON: bubblewrap: "},
		{"missing", []string{fakeDir + "=" + t.TempDir()}, 1, map[string]any{"available": false, "requiresInstall": true, "backend": "none", "reason": "bwrap_missing"}, "no OS-native agent sandbox on this host: install it: sudo apt-get install bubblewrap"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := w.env
			defer func() { w.env = env }()
			w.env = append(slices.Clone(env), tc.env...)
			got := w.postern("probe", "--json")
			var said map[string]any
			if err := json.Unmarshal([]byte(got.stdout), &said); err != nil || got.code != tc.code || got.stderr != "" {
				t.Fatalf("%+v, %v", got, err)
			}
			for key, want := range tc.want {
				if said[key] != want {
					t.Errorf("%s = %v, want %v", key, said[key], want)
				}
			}
			if note, _ := said["note"].(string); !strings.Contains(note, "bubblewrap") || !strings.Contains(note, "no kernel boundary") {
				t.Errorf("note %q", note)
			}
			if got := w.postern("probe"); got.code != tc.code || !strings.HasPrefix(got.stdout, tc.line) {
				t.Errorf("%+v", got)
			}
		})
	}
	if got := w.postern("probe", "x"); got.code != exitRefused {
		t.Errorf("usage: %+v", got)
	}
}
