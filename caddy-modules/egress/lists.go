package egress

import (
	"fmt"
	"os"
	"path/filepath"

	"postern/caddy-modules/policy"
)

// readLists reads list files. One without a rule is an error unless empty says
// otherwise: a list that allows may wait for its first line, while a list that
// denies and is empty is one that was lost.
func readLists(paths []string, empty bool) ([]*policy.List, error) {
	lists := make([]*policy.List, 0, len(paths))
	for _, path := range paths {
		list, err := policy.LoadList(path, shortened(path))
		if err != nil {
			return nil, err
		}
		if !empty && list.Empty() {
			return nil, fmt.Errorf("%s has no rule in it; remove it, or its list", shortened(path))
		}
		lists = append(lists, list)
	}
	return lists, nil
}

// shortened gives a file below the working directory, where the Caddyfile mostly is,
// the name that a person would type.
func shortened(file string) string {
	if filepath.IsAbs(file) {
		if dir, err := os.Getwd(); err == nil {
			if rel, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(rel) {
				return rel
			}
		}
	}
	return file
}
