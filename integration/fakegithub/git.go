package fakegithub

import (
	"encoding/base64"
	"net/http"
	"strings"
)

// gitPath is a request for a repository: /OWNER/NAME[.git]/REST.
type gitPath struct {
	owner, name string
	rest        string // "info/refs", "git-upload-pack", "git-receive-pack", "info/lfs/…"
}

func (g gitPath) full() string { return g.owner + "/" + g.name }

// parseGitPath reports whether a path is a git request rather than an API one.
func parseGitPath(path string) (gitPath, bool) {
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 3)
	if len(parts) != 3 {
		return gitPath{}, false
	}
	g := gitPath{owner: parts[0], name: strings.TrimSuffix(parts[1], ".git"), rest: parts[2]}
	switch {
	case g.rest == "info/refs", g.rest == "git-upload-pack", g.rest == "git-receive-pack", strings.HasPrefix(g.rest, "info/lfs/"):
	default:
		return gitPath{}, false
	}
	return g, validSegment(g.owner) && validSegment(g.name)
}

// Texts of GitHub's git front. git prints text/plain bodies of a failed
// advertisement as "remote:" lines.
const (
	textNotFound  = "Repository not found.\n"
	textBadToken  = "Invalid username or token. Password authentication is not supported for Git operations.\n"
	textNoWrite   = "Write access to repository not granted.\n"
	textAnonymous = "No anonymous write access.\n"
	textDumb      = "Please upgrade your git client.\nGitHub.com no longer supports git over dumb-http: https://github.com/blog/809-git-dumb-http-transport-to-be-turned-off-in-90-days\n"
	textSuspended = "This installation has been suspended.\n"
)

// serveGit checks the token and hands the request to git.
func (s *Server) serveGit(w http.ResponseWriter, r *http.Request, g gitPath, e *Request) {
	service := g.rest
	if g.rest == "info/refs" {
		service = r.URL.Query().Get("service")
	}
	value := basicPassword(r)
	s.note(e, func(e *Request) { e.Repo, e.Service = g.full(), service })
	f := s.fault()
	push := service == "git-receive-pack" || strings.HasPrefix(g.rest, "info/lfs/") && !lfsReads(r, g.rest)
	switch {
	case service == "git-receive-pack" && (r.Method == http.MethodGet && f.HoldAdvert || r.Method == http.MethodPost && f.HoldPush):
		s.hold(r)
	case service == "git-receive-pack" && r.Method == http.MethodGet && f.Advert != 0:
		plain(w, f.Advert, "Server Error\n")
		return
	case service == "git-receive-pack" && r.Method == http.MethodPost && f.Push != 0:
		// Before the body: what a load balancer says when nobody is behind it.
		plain(w, f.Push, "<html>Unicorn!</html>\n")
		return
	}
	found, movedTo, ok := s.lookup(g.full())
	t, a := s.authorize(value, ifFound(ok, &found))
	s.note(e, func(e *Request) {
		if a != authBad && a != authNone {
			e.Token = value
		}
	})
	if !s.mayGo(w, f, t, a, ok && found.public && !push, ok, push) {
		return
	}
	if movedTo != "" {
		to := s.URL() + "/" + movedTo + ".git/" + g.rest
		if r.URL.RawQuery != "" {
			to += "?" + r.URL.RawQuery
		}
		w.Header().Set("Location", to)
		plain(w, http.StatusMovedPermanently, "Moved Permanently\n")
		return
	}
	switch {
	case strings.HasPrefix(g.rest, "info/lfs/"):
		s.serveLFS(w, r, strings.TrimPrefix(g.rest, "info/lfs/"), found)
	case service != "git-upload-pack" && service != "git-receive-pack":
		plain(w, http.StatusForbidden, textDumb)
	case g.rest == "info/refs" && r.Method != http.MethodGet, g.rest != "info/refs" && r.Method != http.MethodPost:
		plain(w, http.StatusMethodNotAllowed, "Method Not Allowed\n")
	default:
		s.backend(w, r, g, service, found, t, f)
	}
}

// mayGo writes the refusal, if there is one.
func (s *Server) mayGo(w http.ResponseWriter, f Faults, t Token, a auth, anonymous, exists, push bool) bool {
	switch a {
	case authNone:
		if anonymous {
			return true
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
		text := textNotFound
		if push && exists {
			text = textAnonymous
		}
		plain(w, http.StatusUnauthorized, text)
	case authLag:
		status := f.LagStatus
		switch status {
		case http.StatusForbidden:
			plain(w, status, textNoWrite)
		case http.StatusNotFound:
			plain(w, status, textNotFound)
		default:
			w.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
			plain(w, http.StatusUnauthorized, textBadToken)
		}
	case authBad:
		w.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
		plain(w, http.StatusUnauthorized, textBadToken)
	case authSuspended:
		plain(w, http.StatusForbidden, textSuspended)
	case authHidden:
		if anonymous {
			return true
		}
		plain(w, http.StatusNotFound, textNotFound)
	case authOK:
		level := "read"
		if push {
			level = "write"
		}
		switch {
		case !exists:
			plain(w, http.StatusNotFound, textNotFound)
		case !grants(t.Permissions, "contents", level) && !anonymous:
			if !push {
				plain(w, http.StatusForbidden, "Read access to repository not granted.\n")
				return false
			}
			plain(w, http.StatusForbidden, textNoWrite)
		default:
			return true
		}
	}
	return false
}

func ifFound(ok bool, r *repo) *repo {
	if !ok {
		return nil
	}
	return r
}

// basicPassword is the token of a git request: the password of Basic, whatever
// the user name says (RFC 7617). git over HTTPS has no other scheme.
func basicPassword(r *http.Request) string {
	enc, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Basic ")
	if !ok {
		return ""
	}
	raw, err := base64.StdEncoding.DecodeString(enc)
	if err != nil {
		return ""
	}
	_, password, _ := strings.Cut(string(raw), ":")
	return password
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}
