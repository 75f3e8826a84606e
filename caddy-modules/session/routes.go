package session

import (
	"net/http"
	"slices"
	"strings"
	"sync"
)

// routes are what others serve on the control socket.
type routes struct {
	mu    sync.RWMutex
	paths map[string][]*http.Handler // oldest first; none is empty
}

// Mount serves h on the control socket, at path and below it ("/v1/approvals").
// Of several handlers with one path the newest serves, and the one before again
// when it is unmounted, as with listeners of the Network. Paths of the control
// API itself cannot be taken. unmount may be called again.
func (r *Registry) Mount(path string, h http.Handler) (unmount func()) {
	path = "/" + strings.Trim(path, "/")
	mine := &h
	r.routes.mu.Lock()
	defer r.routes.mu.Unlock()
	if r.routes.paths == nil {
		r.routes.paths = map[string][]*http.Handler{}
	}
	r.routes.paths[path] = append(r.routes.paths[path], mine)
	return func() {
		r.routes.mu.Lock()
		defer r.routes.mu.Unlock()
		all := r.routes.paths[path]
		i := slices.Index(all, mine)
		if i < 0 {
			return
		}
		if all = slices.Delete(all, i, i+1); len(all) > 0 {
			r.routes.paths[path] = all
		} else {
			delete(r.routes.paths, path)
		}
	}
}

// find returns the newest handler of the longest path that leads to path.
func (t *routes) find(path string) http.Handler {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for path != "" {
		if all := t.paths[path]; len(all) > 0 {
			return *all[len(all)-1]
		}
		path = path[:strings.LastIndexByte(path, '/')]
	}
	return nil
}
