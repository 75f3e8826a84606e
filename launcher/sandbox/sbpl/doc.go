// Package sbpl reads the Sandbox Profile Language that macOS' sandbox-exec takes
// and answers what a profile would decide.
//
// It exists so that the profiles Postern generates can be proved on any machine:
// Load is as strict as sandbox-exec (an unknown operation, filter or host fails the
// whole profile), Decide evaluates one operation, and World turns a system call
// such as rename(2) into the operations the kernel asks for, on resolved paths.
//
//	p, err := sbpl.Load(text, nil)
//	w := sbpl.World{Symlinks: map[string]string{"/tmp": "/private/tmp"}}
//	ok := w.Rename(p, sbpl.Strictest, "/tmp/a", "/tmp/b")
//
// It models documented and publicly measured semantics, not the kernel. Where two
// public readings differ (whether an unfiltered rule overrides an earlier filtered
// one; whether path filters fold case) both are offered as a Reading, and a profile
// is good only when all of them agree: see Readings and DecideAll.
package sbpl
