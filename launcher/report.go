package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"postern/launcher/sandbox"
)

// report is the summary of a run for programs: what --summary writes.
type report struct {
	Session    string       `json:"session"`
	ExitCode   int          `json:"exitCode"`
	Denied     []refused    `json:"denied"`
	Pushes     []refused    `json:"pushes"`
	Violations []violated   `json:"violations"`
	Changes    []changeLine `json:"changes"`

	// More is how many refusals and violations of further targets there were.
	More uint64 `json:"more"`
}

// violated is a denied system call.
type violated struct {
	Action string `json:"action"`
	Target string `json:"target"`
	Raw    string `json:"raw,omitempty"`
	Rule   string `json:"rule,omitempty"`   // the rule about names that refused it
	Source string `json:"source,omitempty"` // where that stands
	Comm   string `json:"comm,omitempty"`   // what the thread that tried is called
	Count  uint64 `json:"count"`
	Cure   string `json:"cure"`
}

// changeLine is something that the run made or replaced, and tools outside act on.
type changeLine struct {
	Path string `json:"path"`
	What string `json:"what"`
	Cure string `json:"cure"`
}

// report gives everything that was collected.
func (r *refusals) report(session string, code int, changes []sandbox.Change) *report {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &report{
		Session: session, ExitCode: code, More: r.more,
		Denied: []refused{}, Pushes: []refused{}, Violations: []violated{}, Changes: []changeLine{},
	}
	for _, key := range r.order {
		switch d := r.by[key]; d.kind {
		case kindPush:
			out.Pushes = append(out.Pushes, *d)
		case kindViolation:
			out.Violations = append(out.Violations, violated{d.action, d.What, d.raw, d.Rule, d.Source, d.comm, d.Count, d.Cure})
		default:
			out.Denied = append(out.Denied, *d)
		}
	}
	for _, c := range changes {
		out.Changes = append(out.Changes, changeLine{c.Path, c.What, c.Cure})
	}
	return out
}

// destination is where a report is written when the run has ended. It is taken hold of
// before: the run may write the folder that a path leads through, and replace it.
type destination struct {
	dir  *os.Root
	name string
	fd   *os.File
}

// openDestination reads FILE or fd:N. What cannot be written is better found before
// anything runs.
func openDestination(text string) (*destination, error) {
	if number, ok := strings.CutPrefix(text, "fd:"); ok {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || n < 3 {
			return nil, fmt.Errorf("--summary %s: want fd:N with N from 3 on", text)
		}
		f := os.NewFile(uintptr(n), text)
		if err := handedOver(int(n)); err != nil {
			return nil, fmt.Errorf("--summary %s: %w", text, err)
		}
		syscall.CloseOnExec(int(n)) // the sandbox is not to have it
		return &destination{fd: f}, nil
	}
	path, err := filepath.Abs(text)
	if err != nil || text == "" {
		return nil, fmt.Errorf("--summary %q: not a path", text)
	}
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("--summary %s: it is there and is no file", text)
	}
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("--summary %s: %w", text, err)
	}
	return &destination{dir: dir, name: filepath.Base(path)}, nil
}

// close lets go without a word. It may be called on nil, and again.
func (d *destination) close() {
	if d != nil && d.dir != nil {
		_ = d.dir.Close()
	}
}

// write writes one line of JSON: a file is there as a whole or as it was.
func (d *destination) write(r *report) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	data = append(data, '\n')
	if d.fd != nil {
		_, err := d.fd.Write(data)
		return errors.Join(err, d.fd.Close())
	}
	defer d.close()
	made := "." + d.name + "." + newID()
	f, err := d.dir.OpenFile(made, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = d.dir.Rename(made, d.name)
	}
	if err != nil {
		if rerr := d.dir.Remove(made); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}
