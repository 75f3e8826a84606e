package main

import (
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"postern/launcher/sandbox"
)

// refuse prints why nothing was started.
func refuse(stderr io.Writer, err error) int {
	fmt.Fprintln(stderr, "postern: refused:", printable(err.Error()))
	return exitRefused
}

// explainExec adds what a shell does not know: why a program that the user has may
// be missing.
func explainExec(e *sandbox.ExecError, name string) string {
	text := "cannot run the command: " + e.Detail
	if e.Code == 127 {
		text += "; the sandbox shows the system's programs and the run's folders: show another beside this one with --bind . --bind DIR:ro"
		if filepath.Base(name) != name {
			return text
		}
		text += ", and have it in PATH"
	}
	return text
}

// talker prints lines of the launcher's own, from several goroutines.
type talker struct {
	mu    sync.Mutex
	w     io.Writer
	quiet bool
}

func (t *talker) warn(format string, args ...any) {
	if t.quiet {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintln(t.w, "postern:", printable(fmt.Sprintf(format, args...)))
}

// change prints what must not wait for the end, in a quiet run too.
func (t *talker) change(c sandbox.Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	printChange(t.w, c)
}
