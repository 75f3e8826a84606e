// Package nameattacks tries to make, change or move on Linux what name rules forbid, from
// inside a sandbox and with every means that a hostile program has.
//
// One table has the attacks. Each is a function that runs inside, in a fresh workspace, and
// runs twice: in the bare sandbox, where it must succeed if it can at all (so that the test
// bites; where the kernel refuses it anyway the table says why), and in one whose names are
// guarded, where it must not. What it came to is read from the disk, outside, by a reader
// that knows nothing of the rules' own code.
//
// Races last three seconds each; POSTERN_RACE has them last longer, as make attacks does.
package nameattacks
