// Package gitconfig writes the git configuration of a run.
//
// It sends every push for a forge to the gateway, whatever way the remote is
// spelled, and leaves fetches where they go. Rewriting is a convenience and not the
// border: a spelling that nobody thought of ends at the forge with a token that
// cannot push. What it buys is that honest users meet the gateway's answer instead
// of a bare 403.
//
// The configuration is a file, read as git's system level. Variables such as
// GIT_CONFIG_COUNT would not do: git clears them for submodules. And rewriting rules
// of equal length are taken in the order they are read, so the system level wins
// over what a repository or the run itself says.
package gitconfig
