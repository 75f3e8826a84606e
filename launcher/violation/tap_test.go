package violation

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func message(text string) string {
	quoted, _ := json.Marshal(text)
	return `{"timestamp":"2026-01-02 03:04:05.678901+0100","eventType":"logEvent","senderImagePath":"\/System\/Library\/Extensions\/Sandbox.kext","eventMessage":` +
		string(quoted) + `,"processID":0}`
}

// recorded is a stream as log stream prints it, of two runs at a time.
var recorded = strings.Join([]string{
	`Filtering the log data using "sender == \"Sandbox\""`,
	message("Sandbox: touch(4711) deny(1) file-write-create /Users/me/src/checkout/a file\npostern-mine"),
	message("Sandbox: node(4712) deny(1) file-read-data /Users/me/.ssh/id_ed25519 postern-mine"),
	message("Sandbox: node(99) deny(1) file-read-data /Users/me/.aws/credentials\npostern-theirs"),
	message("Sandbox: node(100) deny(1) file-read-data /Users/me/.netrc"),
	message("1 duplicate report for Sandbox: node(4712) deny(1) file-read-data /Users/me/.ssh/id_ed25519\npostern-mine"),
	message("Sandbox: node(4712) deny(1) mach-lookup com.apple.SecurityServer\npostern-mine"),
	message("Sandbox: python3.12(4713) deny(1) network-outbound 192.0.2.1:443\npostern-mine"),
	message("Sandbox: node(4712) deny(1) file-read-data /Users/me/.ssh/id_ed25519\npostern-mine"),
	"not JSON", "", "{}", `{"eventMessage":7}`, strings.Repeat("x", 3*maxLogLine),
	message("Sandbox: git(4714) deny file-write-unlink /Users/me/src/checkout/.git\npostern-mine"),
}, "\n") + "\n"

func mine(t *testing.T, got []Report) {
	t.Helper()
	want := []Report{
		{Violation{Action: "file-write-create", Target: "/Users/me/src/checkout/a file", Raw: "Sandbox: touch(4711) deny(1) file-write-create /Users/me/src/checkout/a file"}, 1},
		{Violation{Action: "file-read-data", Target: "/Users/me/.ssh/id_ed25519", Raw: "Sandbox: node(4712) deny(1) file-read-data /Users/me/.ssh/id_ed25519"}, 1},
		{Violation{Action: "network-outbound", Target: "192.0.2.1:443", Raw: "Sandbox: python3.12(4713) deny(1) network-outbound 192.0.2.1:443"}, 1},
		{Violation{Action: "file-write-unlink", Target: "/Users/me/src/checkout/.git", Raw: "Sandbox: git(4714) deny file-write-unlink /Users/me/src/checkout/.git"}, 1},
		{Violation{Action: "file-read-data", Target: "/Users/me/.ssh/id_ed25519", Raw: "Sandbox: node(4712) deny(1) file-read-data /Users/me/.ssh/id_ed25519"}, 1}, // the second one, at the end
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// fake is a log program that prints the recorded stream when it is asked as it should
// be, and then does what script says.
func fake(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "stream"), []byte(recorded), 0o600); err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(dir, "log")
	text := "#!/bin/sh\ncd " + dir + "\nprintf '%s\\n' \"$@\" >asked.tmp; env >env; mv asked.tmp asked\n" + script
	if err := os.WriteFile(exe, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return exe
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// TestSPEC91LogTap reads a recorded stream, tells what is the run's own, and ends with
// the run though the log goes on.
func TestSPEC91LogTap(t *testing.T) {
	exe := fake(t, "cat stream; >printed; exec sleep 60\n")
	t.Setenv("DYLD_INSERT_LIBRARIES", "/evil.dylib")
	var got []Report
	reports := make(chan Report, 16)
	sink := NewSink(func(r Report) { reports <- r })
	tap := StartTap(exe, "postern-mine", sink)
	for range 4 {
		select {
		case r := <-reports:
			got = append(got, r)
		case <-time.After(20 * time.Second):
			t.Fatalf("got only %+v", got)
		}
	}
	pid := tap.cmd.Process.Pid
	tap.Close()
	sink.Close()
	close(reports)
	for r := range reports {
		got = append(got, r)
	}
	mine(t, got)
	if err := syscall.Kill(pid, 0); err == nil {
		t.Error("the log is still read")
	}
	asked, err := os.ReadFile(filepath.Join(filepath.Dir(exe), "asked"))
	if err != nil {
		t.Fatal(err)
	}
	want := "stream\n--style\nndjson\n--predicate\n(sender == \"Sandbox\" OR subsystem == \"com.apple.sandbox\") AND eventMessage ENDSWITH \"postern-mine\"\n"
	if string(asked) != want {
		t.Errorf("asked\n%swant\n%s", asked, want)
	}
	env, err := os.ReadFile(filepath.Join(filepath.Dir(exe), "env"))
	if err != nil || strings.Contains(string(env), "DYLD_") {
		t.Errorf("environment %s, %v", env, err)
	}
}

// TestSPEC91NoTelemetry is for users whom the log is refused, and hosts without one.
func TestSPEC91NoTelemetry(t *testing.T) {
	for name, exe := range map[string]string{
		"refused": fake(t, "echo 'log: Must be admin to run' >&2; exit 64\n"),
		"missing": filepath.Join(t.TempDir(), "log"),
		"closed":  fake(t, "exec >&-; exec sleep 60\n"),
		"garbage": fake(t, "head -c 300000 /dev/zero; exec sleep 60\n"),
	} {
		t.Run(name, func(t *testing.T) {
			sink := NewSink(func(r Report) { t.Errorf("told %+v", r) })
			tap := StartTap(exe, "postern-mine", sink)
			if name != "missing" {
				eventually(t, "it was not asked", func() bool {
					_, err := os.Stat(filepath.Join(filepath.Dir(exe), "asked"))
					return err == nil
				})
			}
			tap.Close()
			sink.Close()
		})
	}
}

func TestParseLog(t *testing.T) {
	for _, tc := range []struct {
		text, tag string
		want      denial
		ok        bool
	}{
		{"Sandbox: a b(12) deny(1) file-read-data /a b  c", "", denial{"a b", "file-read-data", "/a b  c", ""}, true},
		{"Sandbox: x(1) deny file-read-data /a", "", denial{"x", "file-read-data", "/a", ""}, true},
		{"Sandbox: x(1) deny(1) sysctl-write", "", denial{"x", "sysctl-write", "", ""}, true},
		{"deny(1) file-read-data /a", "", denial{}, false}, // nobody's; " deny" is missing
		{"Sandbox: deny(1) file-read-data /a", "", denial{"", "file-read-data", "/a", ""}, true},
		{"Sandbox: x(1) deny(1)", "", denial{}, false},
		{"Sandbox: x(1) deny(1) ", "", denial{}, false},
		{"Sandbox: x(1) deny(1  file-read-data", "", denial{}, false},
		{"Sandbox: x(1) deny(1)  /a", "", denial{}, false},
		{"Sandbox: x(1) allow(1) file-read-data /a", "", denial{}, false},
		{"Sandbox: x(1) deny(1) file-read-data /a TAG", "TAG", denial{"x", "file-read-data", "/a", ""}, true},
		{"Sandbox: x(1) deny(1) file-read-data /a\nTAG\n", "TAG", denial{"x", "file-read-data", "/a", ""}, true},
		{"Sandbox: x(1) deny(1) file-read-data /TAG/a", "TAG", denial{}, false},
		{"Sandbox: x(1) deny(1) file-read-data /a\x1b[2J\nb", "", denial{"x", "file-read-data", "/a?[2J?b", ""}, true},
	} {
		got, ok := parseLog([]byte(message(tc.text)), tc.tag)
		if !strings.HasPrefix(got.raw, "Sandbox: ") && ok {
			t.Errorf("%q: raw %q", tc.text, got.raw)
		}
		got.raw = ""
		if got != tc.want || ok != tc.ok {
			t.Errorf("%q: got %+v, %v; want %+v, %v", tc.text, got, ok, tc.want, tc.ok)
		}
	}
}

// TestSPEC92Noise is the table of what nobody can act on.
func TestSPEC92Noise(t *testing.T) {
	for _, tc := range []struct {
		process, op, target string
		tagged, noise       bool
	}{
		{"node", "file-write-create", "/Users/me/x", false, false},
		{"launchd", "file-write-create", "/Users/me/x", false, true},
		{"claude", "file-write-create", "/Users/me/x", true, false}, // the tag says whose it is
		{"node", "mach-lookup", "com.apple.x", true, true},
		{"node", "user-preference-write", "kCF", true, true},
		{"node", "system-socket", "", true, true},
		{"node", "file-read-data", "/System/x", true, true},
		{"node", "file-read-metadata", "/private/var/folders/a", true, true},
		{"node", "file-write-create", "/private/var/folders/a", true, false},
		{"node", "file-write-create", "/Library/x", true, false},
		{"node", "file-read-data", "/Users/me/.ssh/id", true, false},
		{"node", "file-read-data", "/Users/me/a.dylib", true, true},
		{"node", "file-read-data", "/Users/me/.node/key", true, false},
		{"node", "file-write-data", "/dev/ttys001", true, true},
		{"node", "network-outbound", "/private/var/run/mDNSResponder", true, true},
		{"node", "network-outbound", "/private/var/run/syslog", true, true},
		{"node", "network-outbound", "", true, true},
		{"node", "network-outbound", "192.0.2.1:443", true, false},
		{"node", "process-exec", "/private/tmp/x", true, false},
	} {
		d := denial{process: tc.process, op: tc.op, target: tc.target}
		if got := d.noise(tc.tagged); got != tc.noise {
			t.Errorf("%+v: noise is %v", tc, got)
		}
	}
}

func TestPredicateIsQuoted(t *testing.T) {
	if got := predicate(`a" OR TRUE OR "\`); !strings.HasSuffix(got, `ENDSWITH "a\" OR TRUE OR \"\\"`) {
		t.Errorf("got %s", got)
	}
}

func FuzzParseLog(f *testing.F) {
	f.Add([]byte(message("Sandbox: touch(4711) deny(1) file-write-create /Users/me/a\nTAG")), "TAG")
	f.Add([]byte(message("Sandbox: deny( deny) \n")), "")
	f.Fuzz(func(t *testing.T, line []byte, tag string) {
		d, ok := parseLog(line, tag)
		if ok && (d.op == "" || len(d.op) > maxAction || len(d.target) > maxTarget || len(d.raw) > maxRaw || strings.ContainsAny(d.op+d.target+d.raw, "\x00\x1b\n\r")) {
			t.Fatalf("read %+q", []string{d.op, d.target, d.raw})
		}
		d.noise(tag != "")
	})
}
