// Package backend names the ways in which a command can be kept apart from its host,
// and says what each of them is worth.
//
// There are three: microvm has a kernel of its own, native is the system's own means
// (Seatbelt on macOS, bubblewrap on Linux), none is the host itself. Two readers of
// names are needed, and must not be mistaken for each other: ParseName reads what some
// record says and never fails, Parse reads what a person typed and refuses what it does
// not know.
package backend

import (
	"fmt"
	"slices"
	"strings"
)

// Backend is one of three ways to run a command (SPEC 1).
type Backend string

// The backends. The zero value is none of them: it is what nobody said.
const (
	MicroVM Backend = "microvm"
	Native  Backend = "native"
	None    Backend = "none"
)

// docker is what native was called in older records (SPEC 4).
const docker = "docker"

// All lists the backends in the order help texts use.
func All() []Backend { return []Backend{MicroVM, Native, None} }

// ParseName reads a name that was recorded somewhere. Matching is exact; what is empty
// or unknown is none, for a record must never promise a border that is not there
// (SPEC 2, 3).
func ParseName(name string) Backend {
	if b, err := Parse(name); err == nil {
		return b
	}
	return None
}

// Parse reads a name that somebody asked for. An unknown one is an error that lists
// the valid ones (SPEC 55): whoever asks for a border wants that one or none of the
// others.
func Parse(name string) (Backend, error) {
	if name == docker {
		return Native, nil
	}
	if b := Backend(name); slices.Contains(All(), b) {
		return b, nil
	}
	names := make([]string, 0, len(All()))
	for _, b := range All() {
		names = append(names, string(b))
	}
	return "", fmt.Errorf("parse backend %q: want one of %s", name, strings.Join(names, ", "))
}

// Enclosed reports whether a kernel of its own stands between the command and the host
// (SPEC 7).
func (b Backend) Enclosed() bool { return b == MicroVM }

// Wraps reports whether a command of the host can be wrapped with it. A virtual machine
// cannot: it runs what is inside of it (SPEC 8, 12).
func (b Backend) Wraps() bool { return b == Native || b == None }
