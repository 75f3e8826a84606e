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
func readLists(paths []string, empty bool) ([]policy.Rule, error) {
	var rules []policy.Rule
	for _, path := range paths {
		list, err := readList(path)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 && !empty {
			return nil, fmt.Errorf("%s has no rule in it; remove it, or its list", shortened(path))
		}
		rules = append(rules, list...)
	}
	return rules, nil
}

func readList(path string) ([]policy.Rule, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read list: %w", err)
	}
	defer f.Close()
	return policy.ParseList(f, shortened(path))
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
