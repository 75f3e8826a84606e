// Package seatbelt writes the sandbox profile of a run on macOS.
//
// Policy.Profile is a pure function from what a run may do to the text that
// sandbox-exec reads; starting it is the launcher's job. The order of the text
// is the heart of it, and the same under every public reading of the language:
//
//  1. (allow default): the host stays readable (SPEC 29, 31)
//  2. unfiltered rules: no write, no network, no way to act through others
//  3. writable and read-only roots, shallow first, so that the deepest wins
//  4. what is never writable: secret names, rc files, hooks, protected checkouts
//  5. what is never readable, nor movable or linkable out of its place
//  6. the ancestors of both, which cannot be renamed away
//  7. what may be executed
//  8. the run's own proxy ports
//
// Every path is written as it was given and with its symlinks resolved, because
// the kernel matches resolved paths and a path that does not exist yet cannot be
// resolved (SPEC 81 to 83); non-ASCII paths are written in both normal forms,
// because APFS does not tell them apart. Names in regular expressions are letter
// classes, because regex rules are case-sensitive on volumes that are not.
package seatbelt
