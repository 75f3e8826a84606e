package nameguard

// Op is what is about to happen to a directory entry.
type Op uint8

// The operations. The rename of one entry asks about its old place and its new one, an
// exchange about both places twice; of a directory see also CheckMove.
const (
	OpWrite       Op = iota // opened for writing, truncated, or made as a plain file
	OpMakeDir               // made as a directory
	OpMakeOther             // made as a symlink, FIFO, socket, device or hard link of one
	OpMoveAway              // renamed from here (or exchanged)
	OpMoveHere              // something that is no directory is renamed onto here
	OpMoveDirHere           // a directory is renamed onto here
	OpRemove                // unlinked or removed

	// The same of what is known to be a plain file. On the way through a pattern of
	// folders files may be renamed or linked, as git does with every file of a submodule; who
	// does not look asks about OpMoveAway and OpMoveHere, and is refused there.
	OpMoveFileAway
	OpMoveFileHere
)

// plain reports whether op leaves, or takes, nothing but a plain file or a new directory.
func (op Op) plain() bool {
	switch op {
	case OpWrite, OpMakeDir, OpMoveFileAway, OpMoveFileHere:
		return true
	default:
		return false
	}
}

// Rule is one rule as it was given.
type Rule struct {
	Text   string // what a violation shows: *.key, **/.git/hooks, /w/.git/config
	Source string // where it stands: --deny-name, spec, or one of the sources below
}

// Below is a rule about what lies below a directory, whose path is one and no pattern.
type Below struct {
	Dir string
	Rule
}

// Config is what a run's rules are compiled from. All directories are real paths as the
// run sees them: absolute, clean, and free of symbolic links.
type Config struct {
	// Globs hold everywhere but in Free: patterns as Parse reads them.
	Globs []Rule

	// Names are patterns that hold outside Packages and Free.
	Names []Rule

	// Packages are names of directories, to the letter, below which Names do not hold.
	Packages []string

	// Paths are forbidden with all below; each Text is a path and no pattern.
	Paths []Rule

	// Below are patterns that hold at any depth below one directory.
	Below []Below

	// Free are directories of the run in which no Glob and no Name holds. What is free
	// must stay where it is, so they and their ancestors are pinned. None may hold, or
	// lie in, what Paths or a pattern that begins with a slash forbid.
	Free []string

	// Aliases are sets of paths that are the same directory, mounted more than once.
	// Under each path the rules hold that hold under the others.
	Aliases [][]string

	// TrapRemove has removal refused as well. Otherwise names may be removed, and not
	// made again.
	TrapRemove bool
}

// Sources of rules that nobody wrote down as such. What would let a name be is another thing
// for each of them.
const (
	SourceDefault   = "default"                // a name that is forbidden wherever a rule of the run holds
	SourceGuard     = "--guard-names"          // such a name at the top of a folder, in a run without patterns
	SourceKept      = "default, kept as it is" // a path that no run may change
	SourceProtected = "protected path"
	SourceHidden    = "hidden path"
	SourceFree      = "free directory" // pinned, for it must stay where it is
	SourceMount     = "mount point"    // pinned, for it is told by its path
)

// MoveOut begins the text of a rule that CheckMove told.
const MoveOut = "move out of "
