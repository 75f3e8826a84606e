package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"postern/launcher/spec"
)

// A host is told what its run left that tools outside act on, and a person beside it.
func TestExecTellsOfChanges(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	h := w.sh(nil, `mkdir -p a; echo x > a/.npmrc; echo x > a/.envrc; echo x > plain`)
	told, _ := h.last(t).Handle.Details["changes"].([]any)
	var paths []string
	for _, c := range told {
		fields, _ := c.(map[string]any)
		path, _ := fields["path"].(string)
		what, _ := fields["what"].(string)
		if what == "" || fields["cure"] == "" || !strings.Contains(h.stderr, "postern: "+path+" "+what) {
			t.Errorf("%v, and on stderr %q", fields, h.stderr)
		}
		paths = append(paths, strings.TrimPrefix(path, w.tree+"/"))
	}
	if got := strings.Join(paths, " "); got != "a/.envrc a/.npmrc" {
		t.Errorf("told of %q", got)
	}
	if h := w.sh(nil, "true"); h.last(t).Handle.Details["changes"] != nil || strings.Contains(h.stderr, "is new") {
		t.Errorf("of what was there before: %q", h.stderr)
	}
	if h := w.sh(nil, "echo x > .zshrc", "--sandbox", "off"); h.last(t).Handle.Details["changes"] != nil {
		t.Error("a command without a sandbox is looked after")
	}
}

// The last event is the one that must not be lost: a run cannot make it too long to read.
func TestExecTellsOfSomeOfManyChanges(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	h := w.sh(nil, `n=$(printf %0220d 0); for i in $(seq 400); do : > .env$n$i; done`)
	exit := h.last(t)
	if told, _ := exit.Handle.Details["changes"].([]any); len(told) != maxTold {
		t.Errorf("told of %d", len(told))
	}
	if data, err := json.Marshal(exit); err != nil || len(data) > 256<<10 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if n := strings.Count(h.stderr, "is new"); n != maxAlike || !strings.Contains(h.stderr, "and 390 further files") {
		t.Errorf("%d lines on stderr", n)
	}
}

// A mask that is lifted from outside is told at once, in a run of a host as in any other.
func TestExecTellsOfALiftedMask(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	w.write("tree/.npmrc", "a=b\n", 0o600)
	e := w.begin(nil, nil, "/bin/sh", "-c", "echo on; while ! [ -e go ]; do sleep 0.05; done")
	lifted := false
	h := e.end(t, func(ev spec.Event) {
		if ev.Type != spec.Stdout || lifted {
			return
		}
		lifted = true
		made := w.write("tree/new", "a=c\n", 0o600)
		if err := os.Rename(made, filepath.Join(w.tree, ".npmrc")); err != nil {
			t.Error(err)
		}
		// The watch begins a moment after the command, and looks at what it has missed.
		time.Sleep(3 * time.Second)
		w.write("tree/go", "", 0o600)
	})
	if !strings.Contains(h.stderr, "the run may write it now") {
		t.Errorf("said %q", h.stderr)
	}
}
