package session

import (
	"net/http"
	"testing"

	"postern/caddy-modules/session/lease"
)

// Taking back what an approver gave the session cuts all that it opened, the connection
// that had asked as well; what he gave one connection stays that one's.
func TestRevokedApprovalCutsItsTunnel(t *testing.T) {
	for scope, cut := range map[Scope]bool{ScopeSession: true, ScopeOnce: false} {
		t.Run(string(scope), func(t *testing.T) {
			r := newRegistry(t)
			upstream := echo(t)
			r.Push(asking(t, r, &asker{ask: says(HostAnswer{Allowed: true, By: "ada", Scope: scope})}, rule(upstream)))
			s := open(t, r, lease.Spec{ID: "a"})
			tun := connect(t, "tcp", s.HTTP, upstream)
			if tun.status != http.StatusOK || !tun.alive() {
				t.Fatalf("%d %s", tun.status, tun.phrase)
			}
			if !cut { // the same target, granted and taken back
				if _, err := r.Grant("a", GrantRequest{Allow: []string{rule(upstream)}}); err != nil {
					t.Fatal(err)
				}
			}
			grants, err := r.Grants("a")
			if err != nil || len(grants) != 1 {
				t.Fatalf("%v %v", grants, err)
			}
			if err := r.Revoke("a", grants[0].ID); err != nil {
				t.Fatal(err)
			}
			if cut {
				tun.cut(t)
			} else if !tun.alive() {
				t.Error("the tunnel of an approval for once was cut")
			}
		})
	}
}
