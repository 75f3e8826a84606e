package sandbox

import (
	"slices"
	"strings"

	"postern/launcher/nameguard"
)

// packages are the names of directories that free what is below them of the rules about
// names. Where a folder of the run lies in such a directory itself, that name frees
// nothing: everything the run has would be below it.
func (f *Facts) packages() []string {
	return slices.DeleteFunc(nameguard.Packages(), func(name string) bool {
		return slices.ContainsFunc(f.Roots, func(r Root) bool {
			return r.Writable && slices.Contains(strings.Split(r.Path, "/"), name)
		})
	})
}
