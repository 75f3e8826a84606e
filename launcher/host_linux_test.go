package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"testing"

	"postern/launcher/spec"
)

// fields are those of a spec, over those that must be there.
type fields map[string]any

// spec writes a spec for the worktree to a file out of its sight, and returns the path.
func (w *world) spec(over fields) string {
	w.t.Helper()
	all := fields{"sessionId": "s-1", "workspaceId": "w", "bindMounts": []fields{{"hostPath": w.tree}}}
	maps.Copy(all, over)
	data, err := json.Marshal(all)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.write("spec.json", string(data), 0o600)
}

// execution is postern exec with its events on descriptor 3.
type execution struct {
	cmd    *exec.Cmd
	out    bytes.Buffer
	err    bytes.Buffer
	events io.ReadCloser
}

func (w *world) execution(over fields, flags []string, command ...string) *execution {
	w.t.Helper()
	args := append([]string{"exec", "--events", "3", "--spec", w.spec(over)}, flags...)
	return &execution{cmd: w.command(append(append(args, "--"), command...)...)}
}

func (e *execution) start(tb testing.TB) *execution {
	tb.Helper()
	r, events, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	e.events = r
	e.cmd.ExtraFiles, e.cmd.Stdout, e.cmd.Stderr = []*os.File{events}, &e.out, &e.err
	err = e.cmd.Start()
	if err := errors.Join(err, events.Close()); err != nil {
		tb.Fatal(err)
	}
	return e
}

func (w *world) begin(over fields, flags []string, command ...string) *execution {
	w.t.Helper()
	return w.execution(over, flags, command...).start(w.t)
}

// heard is what an execution said, and how it ended.
type heard struct {
	all            []spec.Event
	code           int
	stdout, stderr string // of the launcher
}

// end reads events until there are no more, and calls each with every one.
func (e *execution) end(tb testing.TB, each func(spec.Event)) heard {
	tb.Helper()
	var h heard
	for dec := json.NewDecoder(e.events); ; {
		var ev spec.Event
		err := dec.Decode(&ev)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			tb.Fatal(err)
		}
		h.all = append(h.all, ev)
		if each != nil {
			each(ev)
		}
	}
	_ = e.events.Close()
	_ = e.cmd.Wait() // the state says what the error would
	h.code, h.stdout, h.stderr = e.cmd.ProcessState.ExitCode(), e.out.String(), e.err.String()
	return h
}

// host runs postern exec to its end.
func (w *world) host(over fields, flags []string, command ...string) heard {
	w.t.Helper()
	return w.begin(over, flags, command...).end(w.t, nil)
}

// sh is host with a shell script.
func (w *world) sh(over fields, script string, flags ...string) heard {
	w.t.Helper()
	return w.host(over, flags, "/bin/sh", "-c", script)
}

func (h heard) kinds() []spec.Kind {
	var out []spec.Kind
	for _, e := range h.all {
		out = append(out, e.Type)
	}
	return slices.Compact(out)
}

func (h heard) of(kind spec.Kind) []spec.Event {
	var out []spec.Event
	for _, e := range h.all {
		if e.Type == kind {
			out = append(out, e)
		}
	}
	return out
}

func (h heard) said(kind spec.Kind) string {
	var out []byte
	for _, e := range h.of(kind) {
		out = append(out, e.Bytes()...)
	}
	return string(out)
}

// last is the exit event, which every run must end with.
func (h heard) last(tb testing.TB) spec.Event {
	tb.Helper()
	exits := h.of(spec.Exit)
	if len(exits) != 1 || h.all[len(h.all)-1].Type != spec.Exit || exits[0].ExitCode == nil || exits[0].Handle == nil {
		tb.Fatalf("want one exit event, the last, with status and handle: %+v\n%s", h.all, h.stderr)
	}
	if *exits[0].ExitCode != h.code {
		tb.Errorf("the event says %d, the launcher ended with %d", *exits[0].ExitCode, h.code)
	}
	return exits[0]
}
