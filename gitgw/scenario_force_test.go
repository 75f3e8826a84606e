package gitgw_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"postern/gitgw"
	"postern/integration/fakegithub"
)

// D02: an amended commit on the agent's own branch, where force is not allowed.
func TestD02(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("push agent/**"))
	w.git("push", "-q", "origin", "main:agent/x").want(t, 0)
	before := w.head("main")
	w.mustGit(w.clone, "commit", "-q", "--amend", "-m", "amended")
	w.hub.ForgetRequests()
	r := w.git("push", "--force", "origin", "main:agent/x")
	r.want(t, 1, " ! [remote rejected] main -> agent/x (Control Center policy: force push refused)",
		"remote: Control Center: force pushes need a rule that names them, as in: push agent/** force")
	r.lacks(t, "Everything up-to-date")
	w.wantRef("refs/heads/agent/x", before)
	w.unsent()
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := w.records[len(w.records)-1]; last.Refs[0].Action != gitgw.ActionForce || last.Outcome != gitgw.Refused {
		t.Errorf("record: %+v", last)
	}
}

// unsent checks that the forge saw nothing of a push since its log was emptied.
func (w *world) unsent() {
	w.t.Helper()
	for _, q := range w.hub.Requests() {
		if q.Service == "git-receive-pack" {
			w.t.Errorf("the forge saw %s %s?%s", q.Method, q.Path, q.Query)
		}
	}
}

// A history that has nothing in common with what the ref held, an older commit, and
// one that was rebased: forced, each; with force named, each goes through.
func TestForce(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *world){
		"rebased": func(w *world) {
			w.mustGit(w.clone, "reset", "-q", "--hard", "HEAD~2")
			w.commit(w.clone, "c.txt", "other\n")
			w.commit(w.clone, "d.txt", "other\n")
		},
		"older": func(w *world) { w.mustGit(w.clone, "reset", "-q", "--hard", "HEAD~2") },
		"orphan": func(w *world) {
			w.mustGit(w.clone, "checkout", "-q", "--orphan", "other")
			w.commit(w.clone, "c.txt", "other\n")
			w.mustGit(w.clone, "branch", "-qf", "main", "other")
		},
		"merge without it": func(w *world) {
			w.mustGit(w.clone, "reset", "-q", "--hard", "HEAD~2")
			w.commit(w.clone, "c.txt", "other\n")
			w.mustGit(w.clone, "checkout", "-q", "-b", "b", "HEAD~1")
			w.commit(w.clone, "d.txt", "other\n")
			w.mustGit(w.clone, "checkout", "-q", "main")
			w.mustGit(w.clone, "merge", "-q", "--no-edit", "b")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range []struct {
				rules []string
				want  string
				code  int
			}{
				{[]string{"push main"}, "(Control Center policy: force push refused)", 1},
				{[]string{"push main create update delete"}, "(Control Center policy: force push refused)", 1},
				{[]string{"deny main force # history stays", "push main create update force"}, "(Control Center policy: history stays)", 1},
				{[]string{"push main create update", "push main force"}, "(forced update)", 0},
				{[]string{"push main create update force"}, "(forced update)", 0},
			} {
				w := newWorld(t, rules(c.rules...))
				before := w.refs("acme/app")["refs/heads/main"]
				change(w)
				r := w.git("push", "--force", "origin", "main")
				r.want(t, c.code, c.want)
				if c.code == 0 {
					before = w.head("main")
				} else {
					w.untouched()
					if got := w.record().Refs[0].Action; got != gitgw.ActionForce {
						t.Errorf("recorded as %s", got)
					}
				}
				w.wantRef("refs/heads/main", before)
			}
		})
	}
}

// D05: back to the parent, which takes no object at all.
func TestD05(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("push main"))
	before := w.refs("acme/app")["refs/heads/main"]
	older := w.head("main~2")
	w.git("push", "--force", "origin", older+":main").want(t, 1,
		" ! [remote rejected] "+older+" -> main (Control Center policy: force push refused)")
	w.wantRef("refs/heads/main", before)
	w.untouched()
}

// What is no force push is let through, also where the pack alone does not say so.
func TestFastForwards(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("push ** create update"))
	w.git("push", "-q", "origin", "main").want(t, 0)
	// A merge of a branch that the forge has: the pack leads to both parents.
	w.mustGit(w.clone, "checkout", "-q", "-b", "side", "HEAD~2")
	w.commit(w.clone, "side.txt", "side\n")
	w.git("push", "-q", "origin", "side").want(t, 0)
	w.mustGit(w.clone, "merge", "-q", "--no-edit", "main")
	w.hub.ForgetRequests()
	w.git("push", "origin", "side").want(t, 0, "side -> side")
	if n := w.compares(); n != 0 {
		t.Errorf("%d compare calls for a merge that the pack tells of", n)
	}
	// To a commit that the forge holds already: no object travels.
	w.git("push", "origin", "side:main").want(t, 0, "side -> main")
	if n := w.compares(); n != 1 {
		t.Errorf("%d compare calls, want 1", n)
	}
	w.wantRef("refs/heads/main", w.head("side"))
}

func (w *world) compares() (n int) {
	for _, q := range w.hub.Requests() {
		if strings.Contains(q.Path, "/compare/") {
			n++
		}
	}
	return n
}

// A shallow clone's push is judged like any other: its boundary is the forge's to
// compare.
func TestForceFromShallow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("push main"))
	w.mustGit(w.dir, "clone", "-q", "--depth", "1", "https://github.com/acme/app.git", w.dir+"/shallow")
	w.commit(w.dir+"/shallow", "s.txt", "s\n")
	w.gitIn(w.dir+"/shallow", nil, "push", "origin", "main").want(t, 0, "main -> main")
	w.mustGit(w.dir+"/shallow", "commit", "-q", "--amend", "-m", "amended")
	w.gitIn(w.dir+"/shallow", nil, "push", "--force", "origin", "main").want(t, 1, "(Control Center policy: force push refused)")
}

// A forge that cannot compare leaves the question open, and an open question refuses.
func TestForceCannotBeTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("push main"))
	w.hub.SetFaults(fakegithub.Faults{API: 500})
	w.git("push", "--force", "origin", "main~2:main").want(t, 1,
		"(Control Center policy: cannot tell whether this is a force push: github.com answered 500)")
	w.untouched()
}

// Without a place to keep a pack, what must be looked into is refused.
func TestNoSpool(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("push main"), func(w *world) { w.gateway.SpoolDir = w.dir + "/none" })
	w.git("push", "origin", "main").want(t, 1, "(Control Center policy: push cannot be judged: no file to keep it in)")
	w.git("push", "origin", "main:new").want(t, 1, "no rule allows push to new")
	w.untouched()
}

// The read token that the comparison is made with may have died: another is minted,
// one that cannot write.
func TestForceWithDeadReadToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("push main"), func(w *world) {
		w.caller.ReadToken = func(context.Context, gitgw.Repo) (gitgw.Token, bool) {
			return gitgw.NewToken("ghs_000000000000000000000000000000000000", time.Time{}), true
		}
	})
	older := w.head("main~2")
	w.git("push", "--force", "origin", older+":main").want(t, 1, "(Control Center policy: force push refused)")
	w.untouched()
}

// A tag that moves is a force push, and needs no look to be one.
func TestMovedTag(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("push tag:* main"))
	w.git("push", "-q", "origin", "main:refs/tags/v1").want(t, 0)
	before := w.head("main")
	w.commit(w.clone, "c.txt", "c\n")
	w.git("push", "--force", "origin", "main:refs/tags/v1").want(t, 1, "(Control Center policy: force push refused)")
	w.wantRef("refs/tags/v1", before)
}

// Whoever is asked about an update is told whether it is a forced one; where nobody
// can be asked, nothing is looked into.
func TestForceIsAskedAbout(t *testing.T) {
	t.Parallel()
	var told []gitgw.Action
	yes := &approver{connected: true, answer: func(_ context.Context, q gitgw.Question) (gitgw.Answer, error) {
		for _, r := range q.Refs {
			told = append(told, r.Action)
		}
		return gitgw.Answer{Allowed: true, By: "t"}, nil
	}}
	w := newWorld(t, rules("ask main create update force"), func(w *world) { w.gateway.Approver = yes })
	w.git("push", "origin", "main").want(t, 0, "waiting for approval of push to main")
	w.mustGit(w.clone, "commit", "-q", "--amend", "-m", "amended")
	w.git("push", "--force", "origin", "main").want(t, 0, "waiting for approval of force push to main", "(forced update)")
	if len(told) != 2 || told[0] != gitgw.ActionUpdate || told[1] != gitgw.ActionForce {
		t.Errorf("asked about %v", told)
	}
	w.commit(w.clone, "c.txt", "c\n")
	w.change(func() { w.gateway.Approver, w.gateway.SpoolDir = nil, w.dir+"/none" })
	w.git("push", "origin", "main").want(t, 1, "(Control Center policy: needs approval and no approver is connected)")
}
