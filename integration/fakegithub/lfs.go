package fakegithub

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// lfsRequest is a batch, as far as the fake reads it.
type lfsRequest struct {
	Operation string `json:"operation"`
	Objects   []struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	} `json:"objects"`
}

// lfsReads reports whether a request of Git LFS needs no right to write. Of a batch that
// stands in its body, which is put back.
func lfsReads(r *http.Request, rest string) bool {
	if strings.HasPrefix(rest, "info/lfs/download/") {
		return true
	}
	if rest != "info/lfs/objects/batch" || r.Method != http.MethodPost {
		return false
	}
	data, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	r.Body = io.NopCloser(bytes.NewReader(data))
	var batch lfsRequest
	return json.Unmarshal(data, &batch) == nil && batch.Operation == "download"
}

// serveLFS is Git LFS: the batch API, uploads that are checked and kept, their
// verification, and downloads.
func (s *Server) serveLFS(w http.ResponseWriter, r *http.Request, rest string, repo repo) {
	lfs := func(status int, body any) {
		w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	word, oid, _ := strings.Cut(rest, "/")
	switch {
	case word == "upload" && r.Method == http.MethodPut:
		if err := s.takeLFS(r, oid); err != nil {
			lfs(http.StatusUnprocessableEntity, map[string]any{"message": err.Error()})
			return
		}
		w.WriteHeader(http.StatusOK)
	case word == "download" && r.Method == http.MethodGet:
		http.ServeFile(w, r, s.lfsFile(oid))
	case word == "verify" && r.Method == http.MethodPost:
		var object struct {
			OID  string `json:"oid"`
			Size int64  `json:"size"`
		}
		if json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&object) != nil || object.OID != oid || s.lfsSize(oid) != object.Size {
			lfs(http.StatusUnprocessableEntity, map[string]any{"message": "verification failed"})
			return
		}
		lfs(http.StatusOK, map[string]any{})
	case rest == "objects/batch" && r.Method == http.MethodPost:
		var batch lfsRequest
		if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&batch); err != nil || batch.Operation != "upload" && batch.Operation != "download" {
			lfs(http.StatusUnprocessableEntity, map[string]any{"message": "neither upload nor download"})
			return
		}
		lfs(http.StatusOK, map[string]any{"transfer": "basic", "objects": s.offerLFS(r, repo, batch)})
	default:
		lfs(http.StatusNotFound, map[string]any{"message": "Not Found"}) // locks: git lfs takes this as "none"
	}
}

// offerLFS answers a batch. As GitHub does, it gives a credential along: the reason why
// a gateway must not pass the answer to a sandbox.
func (s *Server) offerLFS(r *http.Request, repo repo, batch lfsRequest) []any {
	objects := []any{}
	for _, o := range batch.Objects {
		action := func(what string) map[string]any {
			return map[string]any{
				"href":   s.RepoURL(repo.full()) + "/info/lfs/" + what + "/" + o.OID,
				"header": map[string]string{"Authorization": r.Header.Get("Authorization")},
			}
		}
		object := map[string]any{"oid": o.OID, "size": o.Size}
		switch have := s.lfsSize(o.OID) >= 0; {
		case batch.Operation == "download" && !have:
			object["error"] = map[string]any{"code": 404, "message": "Object does not exist"}
		case batch.Operation == "download":
			object["actions"] = map[string]any{"download": action("download")}
		case !have:
			object["actions"] = map[string]any{"upload": action("upload"), "verify": action("verify")}
		}
		objects = append(objects, object)
	}
	return objects
}

// takeLFS keeps an object that is what its id says.
func (s *Server) takeLFS(r *http.Request, oid string) error {
	file, err := os.CreateTemp(s.dir, "lfs-")
	if err != nil {
		return fmt.Errorf("keep object: %w", err)
	}
	defer func() {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, sum), r.Body)
	s.mu.Lock()
	s.lfsTried++
	s.mu.Unlock()
	switch {
	case err != nil:
		return fmt.Errorf("receive object: %w", err)
	case hex.EncodeToString(sum.Sum(nil)) != oid:
		return fmt.Errorf("%s is not the object's hash", oid)
	}
	if err := os.MkdirAll(filepath.Join(s.dir, "lfs"), 0o700); err != nil {
		return fmt.Errorf("keep object: %w", err)
	}
	if err := os.Rename(file.Name(), s.lfsFile(oid)); err != nil {
		return fmt.Errorf("keep object: %w", err)
	}
	s.mu.Lock()
	s.objects[oid] = n
	s.mu.Unlock()
	return nil
}

func (s *Server) lfsFile(oid string) string {
	return filepath.Join(s.dir, "lfs", filepath.Base(oid))
}

// lfsSize is an object's size, -1 where there is none.
func (s *Server) lfsSize(oid string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.objects[oid]; ok {
		return n
	}
	return -1
}

// LFSObjects are the objects kept, by id, with their sizes in bytes.
func (s *Server) LFSObjects() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.objects)
}

// LFSUploads is how many uploads ended, well or not.
func (s *Server) LFSUploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lfsTried
}
