package backend

import (
	"strings"
	"testing"
)

// SPEC 5, 13.
func TestNativeTool(t *testing.T) {
	for _, tc := range []struct {
		goos, release string
		want          Tool
		wsl           bool
	}{
		{"darwin", "", Seatbelt, false},
		{"linux", "6.1.0-18-amd64\n", Bubblewrap, false},
		{"linux", "", Bubblewrap, false},
		{"linux", "5.15.153.1-microsoft-standard-WSL2\n", Bubblewrap, true},
		{"linux", "5.15.153.1-MICROSOFT-STANDARD-wsl2+\n", Bubblewrap, true},
		{"linux", "4.19.104-microsoft-standard\n", Bubblewrap, true},
		{"linux", "4.19.84-Microsoft-WSL2", Bubblewrap, true},
		{"linux", "6.6.0-custom-WSL2\n", Bubblewrap, true},
		{"linux", "4.4.0-22621-Microsoft\n", "", true},
		{"linux", "4.4.0-22621-MICROSOFT\n", "", true},
		{"linux", "4.4.0-19041-microsoft\n", "", true},
		{"windows", "", "", false},
		{"freebsd", "", "", false},
		{"", "", "", false},
	} {
		if got := NativeTool(tc.goos, tc.release); got != tc.want {
			t.Errorf("%s %q: %q, want %q", tc.goos, tc.release, got, tc.want)
		}
		if got := WSL(tc.release); got != tc.wsl {
			t.Errorf("%q: WSL is %t", tc.release, got)
		}
	}
}

// SPEC 14, 16, 17, 19: the note says what it is, and what it is not.
func TestNotes(t *testing.T) {
	for _, tc := range []struct {
		goos string
		want []string
	}{
		{"darwin", []string{"sandbox-exec (Seatbelt)", "namespace", "no kernel boundary"}},
		{"linux", []string{"bubblewrap", "namespace", "no kernel boundary"}},
		{"windows", []string{"no native sandbox is offered", "windows"}},
		{"freebsd", []string{"no native sandbox is offered", "freebsd"}},
	} {
		note := NativeTool(tc.goos, "").Note(tc.goos)
		for _, want := range tc.want {
			if !strings.Contains(note, want) {
				t.Errorf("%s: %q says nothing of %q", tc.goos, note, want)
			}
		}
	}
}

// SPEC 20: one line of three, and off wins.
func TestStartLine(t *testing.T) {
	const (
		on   = "agent sandbox ON"
		no   = "no OS-native agent sandbox on this host"
		off  = "agent sandbox DISABLED by --sandbox off"
		note = "bubblewrap: so and so"
		hint = "apt-get install bubblewrap"
	)
	for _, tc := range []struct {
		off, available bool
		want           []string
	}{
		{false, true, []string{on, note}},
		{false, false, []string{no, hint}},
		{true, true, []string{off}},
		{true, false, []string{off}},
	} {
		line := StartLine(tc.off, tc.available, note, hint)
		for _, want := range tc.want {
			if !strings.Contains(line, want) {
				t.Errorf("%+v: %q", tc, line)
			}
		}
		said := 0
		for _, text := range []string{on, no, off} {
			if strings.HasPrefix(line, text) {
				said++
			}
		}
		if said != 1 || strings.Contains(line, "\n") {
			t.Errorf("%+v: %q is not one of the three lines", tc, line)
		}
	}
	if got := StartLine(false, true, "", ""); got != on {
		t.Errorf("without a note: %q", got)
	}
	if got := StartLine(false, false, note, ""); got != no {
		t.Errorf("without a hint: %q", got)
	}
}
