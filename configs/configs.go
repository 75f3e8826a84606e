// Package configs holds the lists that are built into the binary, so that it
// works with no file beside it: allow/*.list is the baseline of a policy that
// asks for it, deny/*.list is what no policy opens.
//
// The shipped Caddyfile imports the same files from this folder, where they can
// be edited; `caddy egress lists DIR` writes them out for a binary that came
// alone. A list has one rule a line, HOST [PORT…] [private] [tcp], and comments
// after "#". Package policy says what a host may be.
package configs

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
)

// FS holds the lists as allow/NAME.list and deny/NAME.list.
//
//go:embed allow/*.list deny/*.list
var FS embed.FS

// Lists returns the names of the lists of a folder, "allow" or "deny", as FS has
// them and in the order of their names. It panics on another folder, which only
// a mistake in the program can ask for.
func Lists(folder string) []string {
	names, err := fs.Glob(FS, folder+"/*.list")
	if err != nil || len(names) == 0 {
		panic(fmt.Sprintf("configs: no list in %q (%v)", folder, err))
	}
	return names
}

// List returns the text of one list by its name in FS, as "allow/baseline.list".
// The error for another name wraps fs.ErrNotExist and says which there are.
func List(name string) (string, error) {
	text, err := FS.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read embedded list %q: %w (there are %v)", name, fs.ErrNotExist, slices.Concat(Lists("allow"), Lists("deny")))
	}
	return string(text), nil
}

// Source returns the path under which a decision names the rules of a list,
// "configs/allow/baseline.list": where a reader finds the line, whether the list
// was embedded or read from disk.
func Source(name string) string { return "configs/" + name }
