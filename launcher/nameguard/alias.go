package nameguard

import (
	"fmt"
	"slices"
	"strings"
)

// closure makes the sets of paths complete: a directory that lies in one with another
// name has another name itself.
func closure(sets [][]string) ([][]string, error) {
	var out [][]string
	for _, set := range sets {
		for _, path := range set {
			if err := checkPath(path); err != nil {
				return nil, fmt.Errorf("%s: %w", SourceMount, err)
			}
		}
		out = append(out, slices.Clone(set))
	}
	for grown := true; grown; {
		grown = false
		for i := range out {
			for n := 0; n < len(out[i]); n++ {
				for _, other := range otherNames(out[i][n], out) {
					if slices.Contains(out[i], other) {
						continue
					}
					out[i] = append(out[i], other)
					if grown = true; len(out[i]) > maxNames {
						return nil, fmt.Errorf("%s: %s is seen under more than %d paths; show fewer folders that hold one another", SourceMount, clip(out[i][0]), maxNames)
					}
				}
			}
		}
	}
	return out, nil
}

// otherNames are the paths of what is at path, itself the first; each set of directories
// leads on once.
func otherNames(path string, sets [][]string) []string {
	out := []string{path}
	for _, set := range sets {
		for _, at := range set {
			rest, ok := below([]byte(path), at)
			if !ok {
				continue
			}
			for _, other := range set {
				if to := strings.TrimSuffix(other+"/"+string(rest), "/"); !slices.Contains(out, to) {
					out = append(out, to)
				}
			}
		}
	}
	return out
}

// below is what of path comes behind dir, if path is dir or lies in it.
func below(path []byte, dir string) (rest []byte, ok bool) {
	switch {
	case len(path) < len(dir) || string(path[:len(dir)]) != dir:
		return nil, false
	case len(path) == len(dir):
		return nil, true
	case path[len(dir)] != '/':
		return nil, false
	}
	return path[len(dir)+1:], true
}
