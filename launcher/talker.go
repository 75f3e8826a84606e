package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"

	"postern/launcher/sandbox"
)

// refuse prints why nothing was started.
func refuse(stderr io.Writer, err error) int {
	fmt.Fprintln(stderr, "postern: refused:", refusalLine(err))
	return exitRefused
}

// maxRefusal is how much of a refusal is printed, in bytes: it may list what the user wrote.
const maxRefusal = 1000

// refusalLine is a refusal in one line. However long it is, it ends with the word that
// programs branch on.
func refusalLine(err error) string {
	text := err.Error()
	if r, ok := errors.AsType[*sandbox.Refusal](err); ok {
		word := " [" + string(r.Reason) + "]"
		if rest, ok := strings.CutSuffix(text, word); ok {
			return printableTo(rest, maxRefusal) + word
		}
	}
	return printableTo(text, maxRefusal)
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
