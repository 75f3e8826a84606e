package session

import (
	"net/http"
	"testing"

	"postern/caddy-modules/session/lease"
)

// Lists that were read again govern at once, cut what they refuse, and leave the
// order of the generations as it is.
func TestReplace(t *testing.T) {
	r := newRegistry(t)
	upstream := echo(t)
	a := generation(t, r, rule(upstream))
	r.Push(a)
	s := open(t, r, lease.Spec{ID: "a"})
	tun := connect(t, "tcp", s.HTTP, upstream)
	if tun.status != http.StatusOK || !tun.alive() {
		t.Fatalf("no tunnel: %s", tun.phrase)
	}
	status := func() int { return connect(t, "tcp", s.HTTP, upstream).status }

	same := generation(t, r, rule(upstream))
	if replaced, governs := r.Replace(a, same); !replaced || !governs || status() != http.StatusOK || !tun.alive() {
		t.Error("replaced by its like")
	}
	if replaced, governs := r.Replace(a, generation(t, r)); replaced || governs || status() != http.StatusOK {
		t.Error("a generation that is gone was replaced")
	}
	// Beneath a newer one it changes nothing, and what it says counts after a rollback.
	newer := generation(t, r, rule(upstream))
	r.Push(newer)
	closed := generation(t, r)
	if replaced, governs := r.Replace(same, closed); !replaced || governs || status() != http.StatusOK || !tun.alive() {
		t.Error("an older generation governs")
	}
	r.Drop(newer)
	if status() != http.StatusForbidden || !tun.alive() {
		t.Error("a rollback: not to the list that was read again, or with a cut")
	}
	opened := generation(t, r, rule(upstream))
	if _, governs := r.Replace(closed, opened); !governs || status() != http.StatusOK {
		t.Error("not opened again")
	}
	if _, governs := r.Replace(opened, generation(t, r)); !governs || status() != http.StatusForbidden {
		t.Error("not closed again")
	}
	tun.cut(t)
}
