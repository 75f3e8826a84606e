// Package secrets finds credentials in what passes by.
//
// What a credential looks like is gitleaks' business: its rule set is kept up by
// many and has the licence MIT. Only that text is taken from it. Its detector is made
// for working trees and archives, has a hundred packages behind it and holds each file
// in memory; this one reads a stream once, in a window of some hundred kilobytes, and
// compiles an expression when its literals have been seen.
//
// Left out are the rules that guess by a variable's name (generic-api-key) and those
// that go by a file's: a refusal must be about something.
package secrets
