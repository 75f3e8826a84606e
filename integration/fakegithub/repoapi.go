package fakegithub

import (
	"net/http"
	"strconv"
	"strings"
)

// repoRoutes are the requests that carry an installation token.
func (s *Server) repoRoutes(mux *http.ServeMux, e *Request) {
	// with runs a handler for one repository once the token is found to have
	// the permission. Failing that, GitHub hides what the token cannot see and
	// names what it cannot do.
	with := func(rest, permission, level string, h func(http.ResponseWriter, *http.Request, repo)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			s.note(e, func(e *Request) { e.Repo = r.PathValue("owner") + "/" + r.PathValue("repo") })
			repo, ok := s.apiRepo(w, r, rest)
			if !ok {
				return
			}
			t, a := s.authorize(bearer(r), &repo)
			s.note(e, func(e *Request) { e.Token = t.Value })
			switch {
			case a == authNone && repo.public && r.Method == http.MethodGet:
			case a != authOK:
				a.api(w)
				return
			case !grants(t.Permissions, permission, level):
				apiError(w, http.StatusForbidden, "Resource not accessible by integration")
				return
			}
			h(w, r, repo)
		}
	}
	mux.HandleFunc("GET /repos/{owner}/{repo}", with("", "metadata", "read", func(w http.ResponseWriter, _ *http.Request, r repo) {
		writeJSON(w, http.StatusOK, s.repoJSON(&r))
	}))
	mux.HandleFunc("GET /repos/{owner}/{repo}/compare/{range...}", with("/compare", "contents", "read", s.compare))
	mux.HandleFunc("GET /repos/{owner}/{repo}/git/ref/{ref...}", with("/git/ref", "contents", "read", s.gitRef))
	mux.HandleFunc("GET /repos/{owner}/{repo}/git/trees/{tree}", with("/git/trees", "contents", "read", s.gitTree))
	// Writes over the API are not what Postern lets through; a read token must
	// meet GitHub's refusal here, and a write token is told the truth.
	write := with("", "contents", "write", func(w http.ResponseWriter, _ *http.Request, _ repo) {
		apiError(w, http.StatusNotImplemented, "this GitHub takes pushes only")
	})
	for _, pattern := range []string{
		"PUT /repos/{owner}/{repo}/contents/{path...}", "DELETE /repos/{owner}/{repo}/contents/{path...}",
		"POST /repos/{owner}/{repo}/git/refs", "PATCH /repos/{owner}/{repo}/git/refs/{ref...}",
		"DELETE /repos/{owner}/{repo}/git/refs/{ref...}", "POST /repos/{owner}/{repo}/merges",
	} {
		mux.HandleFunc(pattern, write)
	}
	mux.HandleFunc("GET /installation/repositories", func(w http.ResponseWriter, r *http.Request) {
		t, a := s.authorize(bearer(r), nil)
		if a != authOK {
			a.api(w)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		var repos []*repo
		for _, id := range s.tokens[t.Value].repoIDs {
			for _, r := range s.repos {
				if r.id == id {
					repos = append(repos, r)
				}
			}
		}
		writeJSON(w, http.StatusOK, map[string]any{"total_count": len(repos), "repositories": s.reposJSON(repos)})
	})
	mux.HandleFunc("GET /repositories/{id}", func(w http.ResponseWriter, r *http.Request) {
		repo, ok := s.repoByID(r.PathValue("id"))
		if !ok {
			apiError(w, http.StatusNotFound, "Not Found")
			return
		}
		if t, a := s.authorize(bearer(r), &repo); a != authOK {
			s.note(e, func(e *Request) { e.Token = t.Value })
			a.api(w)
			return
		}
		writeJSON(w, http.StatusOK, s.repoJSON(&repo))
	})
}

// apiRepo finds the repository of a /repos/ path. A renamed one is answered
// with 301 to its id, a missing one with 404; rest is what follows its path.
func (s *Server) apiRepo(w http.ResponseWriter, r *http.Request, rest string) (repo, bool) {
	found, movedTo, ok := s.lookup(r.PathValue("owner") + "/" + r.PathValue("repo"))
	switch {
	case !ok:
		apiError(w, http.StatusNotFound, "Not Found")
		return repo{}, false
	case movedTo != "":
		to := s.APIURL() + "repositories/" + strconv.FormatInt(found.id, 10) + rest
		w.Header().Set("Location", to)
		writeJSON(w, http.StatusMovedPermanently, map[string]any{"message": "Moved Permanently", "url": to})
		return repo{}, false
	}
	return found, true
}

func (s *Server) repoByID(text string) (repo, bool) {
	id, _ := strconv.ParseInt(text, 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.repos {
		if r.id == id {
			return *r, true
		}
	}
	return repo{}, false
}

// compare answers "is this a fast-forward" from the real history.
func (s *Server) compare(w http.ResponseWriter, r *http.Request, repo repo) {
	base, head, ok := strings.Cut(r.PathValue("range"), "...")
	if !ok || strings.HasPrefix(base, "-") || strings.HasPrefix(head, "-") {
		apiError(w, http.StatusNotFound, "Not Found")
		return
	}
	out, err := runGit(repo.dir, nil, nil, "rev-list", "--left-right", "--count", base+"..."+head, "--")
	if err != nil {
		apiError(w, http.StatusNotFound, "Not Found")
		return
	}
	behindText, aheadText, _ := strings.Cut(strings.TrimSpace(out), "\t")
	behind, _ := strconv.Atoi(behindText)
	ahead, _ := strconv.Atoi(aheadText)
	status := "diverged"
	switch {
	case ahead == 0 && behind == 0:
		status = "identical"
	case behind == 0:
		status = "ahead"
	case ahead == 0:
		status = "behind"
	}
	common, err := runGit(repo.dir, nil, nil, "merge-base", base, head)
	if err != nil {
		apiError(w, http.StatusNotFound, "No common ancestor between "+base+" and "+head+".")
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"merge_base_commit": map[string]any{"sha": strings.TrimSpace(common)},
		"status":            status, "ahead_by": ahead, "behind_by": behind, "total_commits": ahead, "commits": []any{}, "files": []any{},
	})
}

func (s *Server) gitRef(w http.ResponseWriter, r *http.Request, repo repo) {
	ref := "refs/" + r.PathValue("ref")
	out, err := runGit(repo.dir, nil, nil, "rev-parse", "--verify", "-q", ref)
	if err != nil {
		apiError(w, http.StatusNotFound, "Not Found")
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"ref": ref, "object": map[string]any{"sha": strings.TrimSpace(out), "type": "commit"}})
}

// gitTree lists one tree, named by its id, a commit's or a ref's.
func (s *Server) gitTree(w http.ResponseWriter, r *http.Request, repo repo) {
	name := r.PathValue("tree")
	if refs, err := runGit(repo.dir, nil, nil, "for-each-ref", "--count=1"); err == nil && refs == "" {
		apiError(w, http.StatusConflict, "Git Repository is empty.")
		return
	}
	id, err := runGit(repo.dir, nil, nil, "rev-parse", "--verify", "-q", "--end-of-options", name+"^{tree}")
	if err != nil {
		apiError(w, http.StatusNotFound, "Not Found")
		return
	}
	id = strings.TrimSpace(id)
	out, err := runGit(repo.dir, nil, nil, "ls-tree", "-z", id)
	if err != nil {
		apiError(w, http.StatusNotFound, "Not Found")
		return
	}
	tree := []any{}
	for line := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		facts, path, _ := strings.Cut(line, "\t")
		if words := strings.Fields(facts); len(words) == 3 {
			tree = append(tree, map[string]any{"path": path, "mode": words[0], "type": words[1], "sha": words[2]})
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"sha": id, "tree": tree, "truncated": false})
}

func (s *Server) reposJSON(repos []*repo) []any {
	out := []any{}
	for _, r := range repos {
		out = append(out, s.repoJSON(r))
	}
	return out
}

func (s *Server) repoJSON(r *repo) map[string]any {
	return map[string]any{
		"id": r.id, "name": r.name, "full_name": r.full(), "private": !r.public,
		"owner": map[string]any{"login": r.owner}, "default_branch": "main",
		"html_url": s.URL() + "/" + r.full(), "clone_url": s.RepoURL(r.full()),
	}
}
