package main

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
)

// newID makes a session id: unique enough that two runs never meet, short enough to
// be read out.
func newID() string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return "run-" + strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}
