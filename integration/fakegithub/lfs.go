package fakegithub

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
)

// serveLFS is the Git LFS batch API, far enough that an upload which gets past
// a gateway is seen: objects are taken, counted and thrown away.
func (s *Server) serveLFS(w http.ResponseWriter, r *http.Request, rest string, repo repo) {
	lfs := func(status int, body any) {
		w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	if oid, ok := strings.CutPrefix(rest, "upload/"); ok && r.Method == http.MethodPut {
		n, _ := io.Copy(io.Discard, r.Body)
		s.mu.Lock()
		s.objects[oid] = n
		s.mu.Unlock()
		w.WriteHeader(http.StatusOK)
		return
	}
	if rest != "objects/batch" || r.Method != http.MethodPost {
		lfs(http.StatusNotFound, map[string]any{"message": "Not Found"}) // locks: git lfs takes this as "none"
		return
	}
	var batch struct {
		Operation string `json:"operation"`
		Objects   []struct {
			OID  string `json:"oid"`
			Size int64  `json:"size"`
		} `json:"objects"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&batch); err != nil || batch.Operation != "upload" {
		lfs(http.StatusUnprocessableEntity, map[string]any{"message": "only uploads are offered"})
		return
	}
	objects := []any{}
	for _, o := range batch.Objects {
		objects = append(objects, map[string]any{"oid": o.OID, "size": o.Size, "actions": map[string]any{"upload": map[string]any{
			"href": s.RepoURL(repo.full()) + "/info/lfs/upload/" + o.OID,
			// As GitHub does, the answer carries a credential: the reason why a
			// gateway must not pass it to a sandbox.
			"header": map[string]string{"Authorization": r.Header.Get("Authorization")},
		}}})
	}
	lfs(http.StatusOK, map[string]any{"transfer": "basic", "objects": objects})
}

// LFSObjects are the objects uploaded, by id, with their sizes in bytes.
func (s *Server) LFSObjects() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.objects)
}
