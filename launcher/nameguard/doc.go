// Package nameguard forbids names to a run: what may not be made, written or moved, by
// the place it would have.
//
// This part of it is the rules, which are the same on every system. Parse reads one
// pattern. Compile makes of all of a run's rules one automaton, once; Check asks it about
// one entry of one directory. On macOS the patterns become expressions of a Seatbelt
// profile instead (launcher/sandbox/seatbelt), by the same Parse.
//
// # What a rule forbids
//
// A rule is a path of its own, or a pattern. A pattern that begins with a slash speaks of
// one place; any other holds at every depth: .env, *.key, .git/hooks. A star is any part
// of one name, a question mark one character, two stars alone any number of folders, none
// included. What a rule forbids, it forbids with all that lies below, whatever its type.
//
// Names are compared folded: without case, in compatibility form, and without characters
// that nobody sees. Some volumes take .ENV, id_rſa or .e<ZWNJ>nv for the file that is
// meant, and so may the person who looks at it.
//
// # Ancestors are pinned
//
// A rule about .git/hooks is worth nothing where .git can be replaced by one that was
// filled elsewhere. So what lies on the way to a forbidden name is pinned: it is not
// moved away, nothing is moved onto it, and only a directory is made there. Where the
// way is a pattern itself (the names in .git/modules/**/config), files may come and go:
// they lead nowhere.
//
// # Where rules do not hold
//
// Some rules do not hold in folders of packages, which bring such names by the
// thousand, and none holds in the free directories of an operator. A directory could be
// filled there and moved out: see Rules.CheckMove, which the rename of a directory is
// asked about beside Check.
//
// # Where a rule stands
//
// Each rule says where it stands, and that is told with every refusal (Violation), for what
// would let a name be hangs on it: a pattern can be taken back, what is kept by a mount as
// well (SourceKept) stays kept whatever becomes of the rule.
//
// # On Linux
//
// No kernel mechanism that a user may use knows names. So a sandbox goes into a Cage:
// Landlock takes every right away from it to make, write or move anything in the guarded
// folders, and a filter sends the system calls that need those rights to a Broker outside.
// It finds the real directory and the one last name, asks the rules, does the call itself
// and hands the file over. A call that the kernel is left to do is one that Landlock lets
// the sandbox do by itself: what it reads in memory after the broker has, it may change.
//
// Whatever fails on the way fails closed. Where a part is missing, the cage says which, and
// two canaries say whether it holds.
package nameguard
