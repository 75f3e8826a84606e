package sandbox

import "time"

// Facts is what Gather found on the disk, and all that Plan looks at. Every path is
// absolute, clean and free of symlinks unless it says otherwise.
type Facts struct {
	// System are the host's read-only trees, parents before children.
	System []SystemPath

	// Etc is the content of the private /etc beside what System shows there.
	Etc []Data

	// ProcCovers are parts of /proc that would be writable inside.
	ProcCovers []string

	Home    string // $HOME inside, a private tmpfs
	Runtime string // XDG_RUNTIME_DIR inside, a private tmpfs
	Dir     string // where the command starts
	Exe     string // our own binary on the host
	Nested  bool   // user namespaces stay usable inside

	// Terminal says that this is about a person's terminal, with the host's network and
	// the host's files; Private are the trees that it has its own of.
	Terminal bool
	Private  []string

	Unix bool // Unix sockets stay usable inside

	// GitDir is a private directory of the host in which the run's git configuration
	// is made, GitFile that file while it has a name. Empty: the run gets none.
	GitDir, GitFile string

	// Links make paths that lead through symlinks on the host lead to the same
	// place inside.
	Links []Link

	Roots   []Root
	Denials []Denial

	// Watches are symlinks of protected names: a symlink cannot be a mount point. They
	// are compared when the run has ended.
	Watches []Watch

	// seen are the protected names that were there; those that are new when the run
	// has ended were made by it.
	seen map[string]bool

	// gits are the git directories that the run may write into, apart from what is
	// protected in them.
	gits []string

	// Name is what the run is called, in the words of other runs' refusals.
	Name string

	// patterns are those of the run.
	patterns []string
	globs    *globSet

	// walked are the notes of the walks through the roots.
	walked map[string]*walkCache

	// guard has names guarded; nil: none are.
	guard *nameGuard

	// aliased are denials of files that have further names (hard links).
	aliased []Denial

	// homes are where the user's secrets may be, without symlinks.
	homes []string

	// inside is where things are, where that is not the same for every run.
	inside *Inside

	// wanted is the profile that all this was gathered for.
	wanted *Profile

	// began is when it was looked at the disk: what was made later may be the run's.
	began time.Time

	// Warnings are for the user, one line each.
	Warnings []string
}

// SystemPath is one read-only tree of the host, or a symlink to another one.
type SystemPath struct {
	Path string
	Link string // text of the symlink; empty: a tree
}

// Data is a small file, mode 0444, whose content is given, or copied from a file of
// the host.
type Data struct {
	Path    string
	Content string
	From    string // empty: Content
}

// Link is a symlink to be made inside.
type Link struct{ Path, Target string }

// Root is a folder or file of the host that the run sees.
type Root struct {
	Path     string
	Writable bool
	Dir      bool
	State    bool // a runner's state: writable in every mode, its settings are not
	ID       FileID
	store    bool // a part of a repository that git alone fills: no names are looked for
}

// Denial is a path that is less than its root.
type Denial struct {
	Path string
	Kind DenialKind
	Dir  bool
	ID   FileID // zero: it is not there yet, and Start makes a placeholder

	// Git is the git directory to whose closed set of names the path belongs.
	Git  string
	made bool // Start made, or took over, a placeholder

	// asked says that this run denies it, and another need not; pattern is what found it.
	asked   bool
	pattern string
}

// DenialKind says what a denial takes away.
type DenialKind uint8

// The kinds, by strength.
const (
	Protect DenialKind = iota // not writable, removable, renamable or replaceable
	Hide                      // nor readable
)

// FileID tells whether a path still leads to the same file.
type FileID struct{ Dev, Ino uint64 }

// Watch is a protected name that is a symlink, and where it leads.
type Watch struct{ Path, Link string }
