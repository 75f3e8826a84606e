package gitgw

import (
	"encoding/json"
	"io"
	"net/http"
	"time"
)

// lfs answers Git LFS, whose pre-push hook comes to the gateway before git
// sends any command. Locks are unknown here, which LFS takes silently. A batch
// is refused: forwarding it would hand the forge's upload addresses, and with
// them a credential, to the run, and objects would arrive whether or not the
// push is allowed.
func (g *Gateway) lfs(w http.ResponseWriter, r *http.Request, caller Caller, to route) {
	// Answered without reading, LFS reports a broken connection.
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 4<<20))
	status, message := http.StatusNotFound, "Not found"
	if to.service == serviceLFSBatch {
		reason := "Git LFS uploads are not allowed"
		status, message = http.StatusForbidden, g.policy(reason)
		if !caller.mayName(to.repo) {
			reason = g.foreign(to.repo)
			message = g.notice(reason)
		}
		// The hook fails and git sends nothing more: this is the push's record.
		g.recorded(Push{
			Time: time.Now(), Session: caller.Session, Agent: caller.Agent, Workspace: caller.Workspace,
			Repository: to.repo, Outcome: Refused, Reason: message,
		})
	}
	w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct {
		Message string `json:"message"`
	}{message})
}
