package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"postern/caddy-modules/session/lease"
	"postern/launcher/sandbox"
)

// TestSPEC95ViolationsOfARun: what the command says of denied calls is told at the end,
// each once, and in the summary for programs.
func TestSPEC95ViolationsOfARun(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	path := filepath.Join(w.home, "s.json")
	secret := w.write("tree/secret", "x", 0o644)
	got := w.script(`cat secret; for i in 1 2 3; do cat secret; done; echo "EPERM" >&2; echo "cat: y: Permission denied"; exit 3`, "--hide", secret, "--summary", path)
	if got.code != 3 {
		t.Fatalf("%+v", got)
	}
	r := readReport(t, path)
	if len(r.Violations) != 2 || r.Violations[0].Target != "secret" || r.Violations[0].Count != 4 || r.Violations[0].Raw != "cat: secret: Permission denied" || r.Violations[1].Raw != "EPERM" || r.ExitCode != 3 {
		t.Errorf("%+v", r)
	}
	if !strings.HasSuffix(got.stderr, "EPERM\npostern: violation 4 times: access secret\npostern: violation: access\n") {
		t.Errorf("stderr %q", got.stderr)
	}
	// Quiet is quiet, and the summary is written all the same.
	got = w.script("cat secret", "--hide", secret, "--summary", path, "--quiet")
	if r := readReport(t, path); len(r.Violations) != 1 || got.stderr != "cat: secret: Permission denied\n" {
		t.Errorf("%+v, %q", r, got.stderr)
	}
	if got = w.script("true", "--summary", filepath.Join(w.home, "none", "x")); got.code != exitRefused || !strings.Contains(got.stderr, "[usage]") {
		t.Errorf("%+v", got)
	}
}

// TestSPEC95AtATerminal: what is said at the command's own terminal is looked at as well,
// and stays a terminal.
func TestSPEC95AtATerminal(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	secret := w.write("tree/secret", "x", 0o644)
	c := newConsole(t)
	cmd := c.start(w.command("run", "--hide", secret, "--", "/bin/sh", "-c", "test -t 2 && echo a terminal; cat secret; exit 4"))
	c.sees("a terminal\r\n")
	c.sees("cat: secret: Permission denied\r\n")
	c.sees("postern: violation: access secret\r\n")
	if code := c.ends(cmd); code != 4 {
		t.Errorf("status %d", code)
	}
}

// TestSPEC96TwoRuns: a violation is told to the run that it happened in.
func TestSPEC96TwoRuns(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	secret := w.write("tree/secret", "x", 0o644)
	hostile := w.command("run", "--hide", secret, "--", "/bin/sh", "-c", "cat secret; read x")
	peaceful := w.command("run", "--hide", secret, "--", "/bin/sh", "-c", "read x")
	var errs [2]bytes.Buffer
	hostile.Stderr, peaceful.Stderr = &errs[0], &errs[1]
	for _, cmd := range []interface{ Start() error }{hostile, peaceful} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if hostile.Wait() == nil || peaceful.Wait() == nil { // read meets the end of the input
		t.Error("both end with 1")
	}
	if !strings.Contains(errs[0].String(), "postern: violation: access secret") || errs[1].Len() != 0 {
		t.Errorf("hostile %q, peaceful %q", errs[0].String(), errs[1].String())
	}
}

// TestSPEC98DenialIsNoViolation: what a rule refuses is denied, and no violation.
func TestSPEC98DenialIsNoViolation(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	path := filepath.Join(w.home, "s.json")
	cmd := w.command("run", "--summary", path, "--", "/bin/sh", "-c", "echo ready; read x; "+
		"POSTERN_SOCKS=$POSTERN_SOCKS "+sandbox.InnerExe+" connect evil.example 443; curl -sS http://evil.example/; true")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	a.send(lease.Event{Type: lease.EventDenied, Fields: map[string]any{"target": "evil.example:443", "reason": "evil.example:443 is refused: EPERM Permission denied", "code": "not_allowed", "rule": "r", "source": "f:1", "count": 1}})
	_, _ = in.Write([]byte("go\n"))
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	r := readReport(t, path)
	if len(r.Violations) != 0 || len(r.Denied) != 1 || r.Denied[0].Rule != "r" || r.Denied[0].Source != "f:1" || r.Denied[0].Code != "not_allowed" {
		t.Errorf("%+v; %s", r, stderr.String())
	}
}

// TestSummaryDescriptor: a host gets the summary on a descriptor, and the command does
// not get the descriptor.
func TestSummaryDescriptor(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := w.command("run", "--summary", "fd:3", "--", "/bin/sh", "-c", "ls /proc/self/fd; true")
	cmd.ExtraFiles = []*os.File{out}
	list, err := cmd.Output()
	_ = out.Close()
	if err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.NewDecoder(r).Decode(&got); err != nil || got.Session == "" {
		t.Errorf("%+v, %v", got, err)
	}
	if fields := strings.Fields(string(list)); len(fields) != 4 { // and the one that ls reads
		t.Errorf("the command has descriptors %v", fields)
	}
}
