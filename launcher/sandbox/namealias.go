package sandbox

import (
	"slices"

	"postern/launcher/mountinfo"
)

// nameAliases are the sets of paths in the run's folders under which one directory is
// seen: the host may have mounted it twice, and a bind takes along what is mounted below.
// A rule about a name that is told by its path has to hold under each of them. Where a
// directory lies that is mounted elsewhere, something else may be mounted over it: then it
// is taken to be seen where it is not, which forbids more and never less.
func nameAliases(mounts []mountinfo.Mount, roots []Root) [][]string {
	shown := func(path string) bool {
		return slices.ContainsFunc(roots, func(r Root) bool { return contains(r.Path, path) })
	}
	var places []string
	for _, r := range roots {
		places = append(places, r.Path)
	}
	for _, m := range mounts {
		if shown(m.At) {
			places = append(places, m.At)
		}
	}
	slices.Sort(places)
	var sets [][]string
	for _, place := range slices.Compact(places) {
		set := []string{place}
		names, _ := otherNames(mounts, place) // what is mounted elsewhere is a place of its own
		for _, name := range names {
			if shown(name) {
				set = append(set, name)
			}
		}
		slices.Sort(set)
		if set = slices.Compact(set); len(set) > 1 && !slices.ContainsFunc(sets, func(s []string) bool { return slices.Equal(s, set) }) {
			sets = append(sets, set)
		}
	}
	return sets
}
