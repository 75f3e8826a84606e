package gitgw

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// service is what a request asks of a repository.
type service uint8

const (
	serviceMethod    service = iota // a known path with the wrong method
	serviceRefs                     // the advertisement for a push
	serviceReceive                  // a push
	serviceFetch                    // anything of upload-pack
	serviceDumb                     // info/refs of the protocol before smart HTTP
	serviceLFSLocks                 // Git LFS asking for locks
	serviceLFSBatch                 // Git LFS asking where to put objects
	serviceLFSUpload                // one of them
	serviceLFSVerify                // the same, that it has been put
)

// route is a request's path, understood: from here on only these fields are used, so
// nothing of the path can reach a forge or a log unread.
type route struct {
	repo    Repo
	service service
	object  string // of Git LFS: its id
	handle  string // the right to upload it
}

// parseRoute reads /HOST/OWNER/NAME[.git]/SERVICE. Each segment is decoded
// once, by itself, so that an encoded slash cannot make another path; then the
// name must be plain. Empty and dotted segments, which reach a server through
// git, are not tidied up but refused: the path then means what it looks like.
func parseRoute(r *http.Request) (route, error) {
	raw, ok := strings.CutPrefix(r.URL.EscapedPath(), "/")
	if !ok {
		return route{}, errors.New("want /HOST/OWNER/NAME.git/…")
	}
	parts := strings.Split(raw, "/")
	for i, part := range parts {
		// An encoded slash or backslash would be a separator to whoever decodes
		// the path next.
		plain, err := url.PathUnescape(part)
		if err != nil || plain == "" || plain == "." || plain == ".." || strings.ContainsAny(plain, "/\\\x00") {
			return route{}, fmt.Errorf("path segment %s is not part of a repository's address", quote(part))
		}
		parts[i] = plain
	}
	if len(parts) < 4 {
		return route{}, errors.New("want /HOST/OWNER/NAME.git/…")
	}
	repo, err := newRepo(parts[0], parts[1], parts[2])
	if err != nil {
		return route{}, err
	}
	to := route{repo: repo}
	switch rest := strings.Join(parts[3:], "/"); rest {
	case "info/refs":
		to.service, err = refsService(r)
		return to, err
	case "git-receive-pack":
		to.service = ifMethod(r, http.MethodPost, serviceReceive)
	case "git-upload-pack":
		// Fetches have their own way; with any method the answer is the same.
		to.service = serviceFetch
	case "info/lfs/objects/batch":
		to.service = ifMethod(r, http.MethodPost, serviceLFSBatch)
	default:
		// Listing, creating, verifying and deleting locks share one answer.
		if rest == "info/lfs/locks" || strings.HasPrefix(rest, "info/lfs/locks/") {
			to.service = serviceLFSLocks
			break
		}
		if to.lfsObject(r, parts[3:]) {
			break
		}
		return route{}, fmt.Errorf("%s is not served here", quote(rest))
	}
	return to, nil
}

// lfsObject reads info/lfs/objects/OID[/verify]?handle=HANDLE, which no client makes
// up: the answer to a batch has it.
func (to *route) lfsObject(r *http.Request, parts []string) bool {
	handle, ok := strings.CutPrefix(r.URL.RawQuery, "handle=")
	if !ok || len(parts) < 4 || parts[0] != "info" || parts[1] != "lfs" || parts[2] != "objects" || !lfsOID(parts[3]) {
		return false
	}
	switch {
	case len(parts) == 4:
		to.service = ifMethod(r, http.MethodPut, serviceLFSUpload)
	case len(parts) == 5 && parts[4] == "verify":
		to.service = ifMethod(r, http.MethodPost, serviceLFSVerify)
	default:
		return false
	}
	to.object, to.handle = parts[3], handle
	return true
}

// refsService reads the query, which must name one service and nothing else.
func refsService(r *http.Request) (service, error) {
	if r.Method != http.MethodGet {
		return serviceMethod, nil
	}
	// The query is compared as it was sent: git sends exactly this, and two
	// parsers can differ over a parameter that is given twice.
	switch r.URL.RawQuery {
	case "service=git-receive-pack":
		return serviceRefs, nil
	case "service=git-upload-pack":
		return serviceFetch, nil
	case "":
		return serviceDumb, nil
	default:
		return 0, fmt.Errorf("query %s is not known", quote(r.URL.RawQuery))
	}
}

// ifMethod is s for a request with that method. Others are known but refused,
// which tells a person more than "not found".
func ifMethod(r *http.Request, method string, s service) service {
	if r.Method != method {
		return serviceMethod
	}
	return s
}
