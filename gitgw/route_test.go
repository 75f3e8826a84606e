package gitgw

import (
	"net/http"
	"net/url"
	"testing"
)

// request is a request with exactly this target, nil when no server would read
// it.
func request(tb testing.TB, method, target string) *http.Request {
	tb.Helper()
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil
	}
	return &http.Request{Method: method, URL: u, Header: http.Header{}}
}

func TestParseRoute(t *testing.T) {
	const app = "github.com/acme/app"
	for _, c := range []struct {
		method, target, repo string
		service              service
		fails                bool
	}{
		{"GET", "/github.com/acme/app.git/info/refs?service=git-receive-pack", app, serviceRefs, false},
		{"GET", "/github.com/acme/app/info/refs?service=git-receive-pack", app, serviceRefs, false},
		{"GET", "/github.com/%61cme/app/info/refs?service=git-receive-pack", app, serviceRefs, false},
		{"GET", "/github.com/acme/app/info%2frefs?service=git-receive-pack", "", 0, true},
		{"HEAD", "/github.com/acme/app/info/refs?service=git-receive-pack", app, serviceMethod, false},
		{"GET", "/github.com/acme/app/info/refs?service=git-upload-pack", app, serviceFetch, false},
		{"GET", "/github.com/acme/app/info/refs", app, serviceDumb, false},
		{"GET", "/github.com/acme/app/info/refs?service=git-receive-pack&service=git-upload-pack", "", 0, true},
		{"GET", "/github.com/acme/app/info/refs?service=git%2dreceive-pack", "", 0, true},
		{"POST", "/github.com/acme/app/git-receive-pack", app, serviceReceive, false},
		{"PUT", "/github.com/acme/app/git-receive-pack", app, serviceMethod, false},
		{"POST", "/github.com/acme/app/git-receive-pack/", "", 0, true},
		{"POST", "/github.com/acme/app/git-upload-pack", app, serviceFetch, false},
		{"POST", "/github.com/acme/app/info/lfs/locks/verify", app, serviceLFSLocks, false},
		{"GET", "/github.com/acme/app/info/lfs/locks", app, serviceLFSLocks, false},
		{"POST", "/github.com/acme/app/info/lfs/objects/batch", app, serviceLFSBatch, false},
		{"GET", "/github.com/acme/app/info/lfs/objects/batch", app, serviceMethod, false},
		{"GET", "/github.com/acme/app/HEAD", "", 0, true},
		{"PROPFIND", "/github.com/acme/app/", "", 0, true},
		{"GET", "/github.com/acme/app", "", 0, true},
		{"GET", "/", "", 0, true},
		{"GET", "//github.com/acme/app/info/refs", "", 0, true},
		{"GET", "/github.com/acme/app/../nope/info/refs", "", 0, true},
		{"GET", "/github.com/acme/app/./info/refs", "", 0, true},
		{"GET", "/github.com/acme/%2e%2e/info/refs", "", 0, true},
		{"GET", "/github.com/acme/%252e%252e/info/refs", "", 0, true},
		{"GET", "/github.com/acme%2fapp/x/info/refs", "", 0, true},
		{"GET", "/github.com/acme/app%5c/info/refs", "", 0, true},
		{"GET", "/github.com/acme/app%00/info/refs", "", 0, true},
	} {
		r := request(t, c.method, c.target)
		got, err := parseRoute(r)
		if (err != nil) != c.fails || !c.fails && (got.repo.String() != c.repo || got.service != c.service) {
			t.Errorf("%s %s = %v %v, %v", c.method, c.target, got.repo, got.service, err)
		}
	}
}
