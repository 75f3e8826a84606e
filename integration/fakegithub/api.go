package fakegithub

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// serveAPI answers the REST API. The path has no /api/v3 prefix any more.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request, e *Request) {
	f := s.fault()
	switch {
	case f.API != 0:
		apiError(w, f.API, "Server Error")
		return
	case f.RateLimit != NoRateLimit:
		s.rateLimited(w, f.RateLimit)
		return
	}
	mux := http.NewServeMux()
	s.appRoutes(mux)
	s.repoRoutes(mux, e)
	mux.HandleFunc("GET /meta", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"verifiable_password_authentication": false, "installed_version": "3.17.0"})
	})
	mux.HandleFunc("GET /rate_limit", func(w http.ResponseWriter, _ *http.Request) {
		core := map[string]any{"limit": 5000, "remaining": 4999, "used": 1, "reset": s.Now().Add(time.Hour).Unix()}
		writeJSON(w, http.StatusOK, map[string]any{"resources": map[string]any{"core": core}, "rate": core})
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"current_user_url": s.URL() + "/user"})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { apiError(w, http.StatusNotFound, "Not Found") })
	mux.ServeHTTP(w, r)
}

// appRoutes are the requests that carry the App's JWT.
func (s *Server) appRoutes(mux *http.ServeMux) {
	app := func(h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if err := s.verifyJWT(bearer(r)); err != nil {
				status := http.StatusUnauthorized
				if errors.Is(err, errJWTNoIssuer) {
					status = http.StatusNotFound
				}
				apiError(w, status, err.Error())
				return
			}
			h(w, r)
		}
	}
	mux.HandleFunc("GET /app", app(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"id": s.opts.AppID, "client_id": s.opts.ClientID, "slug": "postern", "name": "Postern"})
	}))
	mux.HandleFunc("GET /app/installations", app(func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		list := []any{}
		for _, id := range sortedKeys(s.installs) {
			list = append(list, s.installationJSON(s.installs[id]))
		}
		writeJSON(w, http.StatusOK, list)
	}))
	mux.HandleFunc("GET /app/installations/{id}", app(func(w http.ResponseWriter, r *http.Request) {
		id, _ := strconv.ParseInt(r.PathValue("id"), 10, 64)
		s.answerInstallation(w, func(i *Installation) bool { return i.ID == id })
	}))
	mux.HandleFunc("GET /repos/{owner}/{repo}/installation", app(func(w http.ResponseWriter, r *http.Request) {
		repo, ok := s.apiRepo(w, r, "/installation")
		if ok {
			s.answerInstallation(w, func(i *Installation) bool { return i.covers(&repo) })
		}
	}))
	mux.HandleFunc("GET /repositories/{id}/installation", app(func(w http.ResponseWriter, r *http.Request) {
		repo, ok := s.repoByID(r.PathValue("id"))
		if !ok {
			apiError(w, http.StatusNotFound, "Not Found")
			return
		}
		s.answerInstallation(w, func(i *Installation) bool { return i.covers(&repo) })
	}))
	mux.HandleFunc("POST /app/installations/{id}/access_tokens", app(s.mint))
	mux.HandleFunc("DELETE /installation/token", s.revoke)
}

// answerInstallation finds an installation and shows it, or says 404 as GitHub
// does both for "not installed" and for "not yours to know".
func (s *Server) answerInstallation(w http.ResponseWriter, match func(*Installation) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range sortedKeys(s.installs) {
		if i := s.installs[id]; match(i) {
			writeJSON(w, http.StatusOK, s.installationJSON(i))
			return
		}
	}
	apiError(w, http.StatusNotFound, "Not Found")
}

func (s *Server) installationJSON(i *Installation) map[string]any {
	selection := "all"
	if i.Repos != nil {
		selection = "selected"
	}
	out := map[string]any{
		"id": i.ID, "app_id": s.opts.AppID, "client_id": s.opts.ClientID, "app_slug": "postern",
		"account":              map[string]any{"login": i.Account},
		"repository_selection": selection, "permissions": i.Permissions, "suspended_at": nil,
		"access_tokens_url": s.URL() + "/app/installations/" + strconv.FormatInt(i.ID, 10) + "/access_tokens",
	}
	if i.Suspended {
		out["suspended_at"] = s.now().UTC().Format(time.RFC3339)
	}
	return out
}

// rateLimited answers as GitHub's limiters do; go-github tells the two apart
// by exactly these headers and texts.
func (s *Server) rateLimited(w http.ResponseWriter, kind RateLimit) {
	if kind == SecondaryRateLimit {
		w.Header().Set("Retry-After", "60")
		writeJSON(w, http.StatusForbidden, map[string]any{
			"message":           "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
			"documentation_url": "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits",
		})
		return
	}
	w.Header().Set("X-RateLimit-Limit", "5000")
	w.Header().Set("X-RateLimit-Remaining", "0")
	w.Header().Set("X-RateLimit-Reset", strconv.FormatInt(s.Now().Add(30*time.Minute).Unix(), 10))
	status := http.StatusForbidden
	if kind == TooManyRequests {
		status = http.StatusTooManyRequests
	}
	apiError(w, status, "API rate limit exceeded for installation.")
}

// bearer is the credential of an API request. GitHub takes "token" as well.
func bearer(r *http.Request) string {
	scheme, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "token") {
		return strings.TrimSpace(value)
	}
	return ""
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// apiError is GitHub's error body.
func apiError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]any{
		"message": message, "documentation_url": "https://docs.github.com/rest", "status": strconv.Itoa(status),
	})
}

func sortedKeys[V any](m map[int64]V) []int64 {
	keys := make([]int64, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
