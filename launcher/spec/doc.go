// Package spec is what a program that runs agents itself (a host) says to postern exec
// and hears from it, in JSON: a Spec of eleven fields says what a run may see and do
// (SPEC 74), a Handle says what was made of it (SPEC 86, 87), and Events say what
// happens, one JSON object a line (SPEC 88, 89).
//
// Decode is strict. Whoever misspells protectedPaths must hear of it before a command
// runs without them: an unknown or repeated field, a value of the wrong type, a null
// (but where the specification allows one), text behind the value, and a path that is
// relative are errors that name the field.
//
// The package has no opinion on how a sandbox is made, and imports the standard library
// alone, so that hosts written in Go can use it.
package spec
