//go:build !linux

package sandbox

// Terminals says whether a command can have a pseudo-terminal of its own, see
// Options.Terminal.
const Terminals = false

// Pause does nothing: the command has the caller's own streams.
func (*Process) Pause() {}
