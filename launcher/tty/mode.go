package tty

import (
	"fmt"
	"os"
	"strings"
)

// Mode says when a command gets a pseudo-terminal of its own.
type Mode string

// The modes.
const (
	Auto Mode = "auto" // where it would be at a terminal anyway
	On   Mode = "on"   // always
	Off  Mode = "off"  // never: it has the caller's own streams
)

// ParseMode reads a mode; empty means auto. True and false are how YAML says on and off.
func ParseMode(text string) (Mode, error) {
	switch strings.ToLower(text) {
	case "", "auto":
		return Auto, nil
	case "on", "true", "yes", "1":
		return On, nil
	case "off", "false", "no", "0":
		return Off, nil
	}
	return "", fmt.Errorf("parse tty %q: want auto, on or off", text)
}

// Open gives the caller's terminal if the command is to have one of its own, and nil if
// not. Auto means: if a person sits at both ends. One end alone is a pipe's, which must
// get the bytes as they are; and in the background there is nobody to read from.
func (m Mode) Open(stdin, stdout *os.File) *Caller {
	if m == Off {
		return nil
	}
	c := NewCaller(stdin, stdout)
	if m == On || c.both(stdout) {
		return c
	}
	return nil
}
