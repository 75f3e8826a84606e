package fakegithub

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mint answers POST /app/installations/{id}/access_tokens.
func (s *Server) mint(w http.ResponseWriter, r *http.Request) {
	if status := s.fault().Mint; status != 0 {
		apiError(w, status, "Server Error")
		return
	}
	var body struct {
		Repositories  []string          `json:"repositories"`
		RepositoryIDs []int64           `json:"repository_ids"`
		Permissions   map[string]string `json:"permissions"`
	}
	raw, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil || (len(raw) > 0 && json.Unmarshal(raw, &body) != nil) {
		apiError(w, http.StatusBadRequest, "Problems parsing JSON")
		return
	}
	id, _ := strconv.ParseInt(r.PathValue("id"), 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	inst := s.installs[id]
	switch {
	case inst == nil:
		apiError(w, http.StatusNotFound, "Not Found")
		return
	case inst.Suspended:
		apiError(w, http.StatusForbidden, "This installation has been suspended")
		return
	case len(body.Repositories)+len(body.RepositoryIDs) > 500:
		apiError(w, http.StatusUnprocessableEntity, "Too many repositories requested.")
		return
	}
	repos, ok := s.selectRepos(inst, body.Repositories, body.RepositoryIDs)
	if !ok {
		apiError(w, http.StatusUnprocessableEntity, "There is at least one repository that does not exist or is not accessible to the parent installation.")
		return
	}
	permissions := body.Permissions
	if permissions == nil {
		permissions = inst.Permissions // an unscoped request gets everything
	}
	for name, level := range permissions {
		if !grants(inst.Permissions, name, level) {
			apiError(w, http.StatusUnprocessableEntity, "The permissions requested are not granted to this installation.")
			return
		}
	}
	long := s.longTokens
	switch r.Header.Get("X-GitHub-Stateless-S2S-Token") {
	case "enabled":
		long = true
	case "disabled":
		long = false
	}
	granted := map[string]string{"metadata": "read"}
	maps.Copy(granted, permissions)
	t := s.issue(id, repos, granted, long)
	out := map[string]any{
		"token": t.Value, "expires_at": t.Expires.UTC().Format(time.RFC3339), "permissions": t.Permissions,
		"repository_selection": "selected", "repositories": s.reposJSON(repos),
	}
	if body.Repositories == nil && body.RepositoryIDs == nil {
		out["repository_selection"] = "all"
		delete(out, "repositories")
	}
	writeJSON(w, http.StatusCreated, out)
}

// selectRepos resolves names (without owner) and ids to repositories of the
// installation, or all of them if none is named. It is called with mu held.
func (s *Server) selectRepos(inst *Installation, names []string, ids []int64) ([]*repo, bool) {
	var covered []*repo
	for _, r := range s.repos {
		if inst.covers(r) {
			covered = append(covered, r)
		}
	}
	slices.SortFunc(covered, func(a, b *repo) int { return strings.Compare(a.full(), b.full()) })
	if names == nil && ids == nil {
		return covered, true
	}
	var out []*repo
	pick := func(match func(*repo) bool) bool {
		i := slices.IndexFunc(covered, match)
		if i < 0 {
			return false
		}
		if !slices.Contains(out, covered[i]) {
			out = append(out, covered[i])
		}
		return true
	}
	for _, n := range names {
		if !pick(func(r *repo) bool { return strings.EqualFold(r.name, n) }) {
			return nil, false
		}
	}
	for _, id := range ids {
		if !pick(func(r *repo) bool { return r.id == id }) {
			return nil, false
		}
	}
	return out, len(out) > 0
}

// revoke answers DELETE /installation/token, authenticated by the token that
// it ends.
func (s *Server) revoke(w http.ResponseWriter, r *http.Request) {
	if s.fault().HoldRevoke {
		s.hold(r)
	}
	if status := s.fault().Revoke; status != 0 {
		apiError(w, status, "Bad credentials")
		return
	}
	t, a := s.authorize(bearer(r), nil)
	if a != authOK {
		a.api(w)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[t.Value].RevokedAt = s.now()
	w.WriteHeader(http.StatusNoContent)
}
