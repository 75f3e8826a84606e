package fakegithub

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Installation is the App's foot in an account.
type Installation struct {
	ID      int64    // given by Install if 0
	Account string   // the owner whose repositories it may cover
	Repos   []string // OWNER/NAME of the selected ones; nil is "all repositories"

	// Permissions granted by the account's owner; nil is contents:write,
	// pull_requests:write, metadata:read. "workflows" is not among them.
	Permissions map[string]string
	Suspended   bool
}

func defaultPermissions() map[string]string {
	return map[string]string{"contents": "write", "pull_requests": "write", "metadata": "read"}
}

// Install adds an installation, or replaces the one with the same id, and
// gives its id.
func (s *Server) Install(i Installation) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.ID == 0 {
		i.ID = s.id()
	}
	if i.Permissions == nil {
		i.Permissions = defaultPermissions()
	}
	i.Permissions = maps.Clone(i.Permissions)
	i.Repos = slices.Clone(i.Repos)
	s.installs[i.ID] = &i
	return i.ID
}

// Suspend suspends an installation or lifts the suspension. Tokens of a
// suspended installation stop working.
func (s *Server) Suspend(id int64, suspended bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.installs[id]
	if i == nil {
		return fmt.Errorf("suspend installation %d: no such installation", id)
	}
	i.Suspended = suspended
	return nil
}

// covers reports whether the installation reaches a repository. It is called
// with mu held.
func (i *Installation) covers(r *repo) bool {
	if !strings.EqualFold(i.Account, r.owner) {
		return false
	}
	return i.Repos == nil || slices.ContainsFunc(i.Repos, func(n string) bool { return strings.EqualFold(n, r.full()) })
}

// grants reports whether level (read, write, admin) of a permission is within
// what the map grants.
func grants(have map[string]string, permission, level string) bool {
	if permission == "metadata" && level == "read" {
		return true // GitHub adds it to every token
	}
	rank := map[string]int{"read": 1, "write": 2, "admin": 3}
	return rank[level] != 0 && rank[have[permission]] >= rank[level]
}
