package session

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// A machine that was suspended has not aged by its monotonic clock, on which timers
// run: a grant that ran out meanwhile opens nothing, and is not listed.
func TestGrantRunsOutByTheWallClock(t *testing.T) {
	r := newRegistry(t)
	target := echo(t)
	var slept atomic.Int64
	r.now = func() time.Time {
		now := time.Now()
		if d := time.Duration(slept.Load()); d > 0 {
			now = now.Round(0).Add(d) // without the monotonic reading, which stood still
		}
		return now
	}
	r.Push(generation(t, r))
	info := open(t, r, lease.Spec{ID: "a"})
	grant := func(seconds int) Grant {
		t.Helper()
		g, err := r.Grant("a", GrantRequest{Allow: []string{rule(target)}, Seconds: seconds})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	short := grant(3600)
	tun := connect(t, "tcp", info.HTTP, target)
	if tun.status != http.StatusOK {
		t.Fatalf("granted: %d %s", tun.status, tun.reason)
	}
	slept.Store(int64(2 * time.Hour))
	if again := connect(t, "tcp", info.HTTP, target); again.status != http.StatusForbidden {
		t.Errorf("after two hours of sleep: %d", again.status)
	}
	if grants, err := r.Grants("a"); err != nil || len(grants) != 0 {
		t.Errorf("listed: %v, %v", grants, err)
	}
	if e, err := r.Policy("a"); err != nil || len(e.Allow) != 0 || len(e.Grants) != 0 {
		t.Errorf("the policy has %v, %v", e.Allow, e.Grants)
	}
	// What is open is cut when it is looked at next, which the timer would do.
	s := r.find("a")
	r.expire(s, s.terms.Load().grants[0])
	tun.cut(t)
	if err := r.Revoke("a", short.ID); codeOf(err) != lease.CodeNotFound {
		t.Errorf("revoke what ran out: %v", err)
	}
	// One that has not run out is only looked at again.
	slept.Store(0)
	long := grant(36000)
	tun = connect(t, "tcp", info.HTTP, target)
	slept.Store(int64(2 * time.Hour))
	r.expire(s, s.terms.Load().grants[0])
	if grants, _ := r.Grants("a"); len(grants) != 1 || grants[0].ID != long.ID || !tun.alive() {
		t.Errorf("listed: %v", grants)
	}
}
