package gitgw_test

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/gitgw"
)

// source is a rule source that answers by a function of the ref.
type source struct {
	mu   sync.Mutex
	seen []gitgw.Lookup
	rule func(gitgw.Update) gitgw.Ruling
	err  error
}

func (s *source) Rulings(ctx context.Context, l gitgw.Lookup) ([]gitgw.Ruling, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, l)
	if s.err != nil {
		return nil, s.err
	}
	var all []gitgw.Ruling
	for _, u := range l.Updates {
		all = append(all, s.rule(u))
	}
	return all, ctx.Err()
}

func (s *source) asked() []gitgw.Lookup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// says is a source that gives every ref the same ruling.
func says(kind gitgw.Kind, reason string) *source {
	return &source{rule: func(gitgw.Update) gitgw.Ruling { return gitgw.Ruling{Kind: kind, Reason: reason} }}
}

func sourced(s gitgw.Source) option { return func(w *world) { w.gateway.Source = s } }

// TestSource: of two verdicts the stricter counts, whoever gave it.
func TestSource(t *testing.T) {
	t.Parallel()
	yes := &approver{connected: true, answer: after(0, gitgw.Answer{Allowed: true, By: "ada"}, nil)}
	w := newWorld(t, rules("push **", "ask rel-*", "deny main # closed here"), func(w *world) { w.gateway.Approver = yes })
	for i, c := range []struct {
		name   string
		source *source
		ref    string
		code   int
		want   []string
		verdict, host,
		rule string
	}{
		{"both allow", says(gitgw.Allow, ""), "a1", 0, []string{"[new branch]"}, "allow", "allow", "push **"},
		{"host denies", says(gitgw.Deny, "frozen until Monday"), "a2", 1, []string{"[remote rejected] main -> a2 (Control Center policy: frozen until Monday)"}, "deny", "deny", gitgw.SourceName},
		{"host denies without a word", says(gitgw.Deny, ""), "a3", 1, []string{"(Control Center policy: push to a3 is denied (rule source))"}, "deny", "deny", gitgw.SourceName},
		{"host asks", says(gitgw.Ask, "second pair of eyes"), "a4", 0, []string{"waiting for approval of push to a4", "[new branch]"}, "ask", "ask", gitgw.SourceName},
		{"here is asked", says(gitgw.Allow, "fine"), "rel-1", 0, []string{"waiting for approval of push to rel-1"}, "ask", "allow", "ask rel-*"},
		{"both ask", says(gitgw.Ask, ""), "rel-2", 0, []string{"waiting for approval of push to rel-2"}, "ask", "ask", "ask rel-*"},
		{"here is denied", says(gitgw.Allow, ""), "main", 1, []string{"(Control Center policy: closed here)"}, "deny", "", "deny main"},
		{"hostile words", says(gitgw.Deny, "a\nok refs/heads/a5\x1b[31m ghs_0123456789abcdefghij"), "a5", 1, []string{"(Control Center policy: a ok refs/heads/a5 [31m [redacted])"}, "deny", "deny", gitgw.SourceName},
	} {
		w.change(func() { w.gateway.Source = c.source })
		r := w.git("push", "origin", "main:"+c.ref)
		for _, want := range c.want {
			if r.code != c.code || !strings.Contains(r.out, want) {
				t.Errorf("%s: exit %d, want %q in\n%s", c.name, r.code, want, r.out)
			}
		}
		w.mu.Lock()
		record := w.records[i]
		w.mu.Unlock()
		got := record.Refs[0]
		if got.Verdict.String() != c.verdict || got.Host != c.host || got.Rule != c.rule {
			t.Errorf("%s: recorded %+v", c.name, got)
		}
		// What is refused here is not told to anybody.
		if asked := len(c.source.asked()); asked != min(1, len(c.host)) {
			t.Errorf("%s: asked %d times", c.name, asked)
		}
	}
}

// TestSourceIsAskedOnce: one question for all refs of a push, with who pushes.
func TestSourceIsAskedOnce(t *testing.T) {
	t.Parallel()
	s := &source{rule: func(u gitgw.Update) gitgw.Ruling {
		if strings.HasSuffix(u.Ref, "/b") {
			return gitgw.Ruling{Kind: gitgw.Deny, Reason: "not b"}
		}
		return gitgw.Ruling{Kind: gitgw.Allow}
	}}
	w := newWorld(t, allowAll, sourced(s))
	w.git("push", "origin", "main:a", "main:b", "main:c").want(t, 1,
		" ! [remote rejected] main -> b (Control Center policy: not b)",
		" ! [remote rejected] main -> a (Control Center policy: another ref in this push was refused)")
	w.untouched()
	seen := s.asked()
	if len(seen) != 1 || len(seen[0].Updates) != 3 || seen[0].Session != "s1" || seen[0].Agent != "agent-7" || seen[0].Workspace != "w" || seen[0].Repository.FullName() != "acme/app" {
		t.Fatalf("asked: %+v", seen)
	}
	u := seen[0].Updates[0]
	if u.Action != gitgw.ActionCreate || strings.Trim(u.Old, "0") != "" || u.New != w.head("main") {
		t.Errorf("update: %+v", u)
	}
}

// TestSourceKnowsForce: whether an update is forced is found out for the source,
// also where no rule here asks for it.
func TestSourceKnowsForce(t *testing.T) {
	t.Parallel()
	s := &source{rule: func(u gitgw.Update) gitgw.Ruling {
		if u.Forced != gitgw.ForcedNo && u.Action == gitgw.ActionUpdate {
			return gitgw.Ruling{Kind: gitgw.Deny, Reason: "no force"}
		}
		return gitgw.Ruling{Kind: gitgw.Allow}
	}}
	w := newWorld(t, rules("repo github.com/other/x", "push **"), sourced(s))
	w.git("push", "origin", "main:x").want(t, 0, "[new branch]")
	w.commit(w.clone, "c.txt", "more\n")
	w.git("push", "origin", "main:x").want(t, 0, "main -> x")
	w.mustGit(w.clone, "commit", "-q", "--amend", "-m", "other")
	w.git("push", "-f", "origin", "main:x").want(t, 1, " ! [remote rejected] main -> x (Control Center policy: no force)")
	var forced []gitgw.Forced
	for _, l := range s.asked() {
		forced = append(forced, l.Updates[0].Forced)
	}
	if want := []gitgw.Forced{gitgw.ForcedUnknown, gitgw.ForcedNo, gitgw.ForcedYes}; !slices.Equal(forced, want) {
		t.Errorf("forced: %v, want %v", forced, want)
	}
}

// TestSourceGivesNoAnswer: nothing is pushed that was not judged, and git says why.
func TestSourceGivesNoAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	for name, s := range map[string]gitgw.Source{
		"the rule source cannot be reached":     &source{err: errors.New("the rule source cannot be reached")},
		"the rule source gave no usable answer": &shortSource{},
	} {
		w.change(func() { w.gateway.Source = s })
		w.git("push", "origin", "main:x", "main:y").want(t, 1,
			" ! [remote rejected] main -> x (Control Center policy: "+name+")",
			" ! [remote rejected] main -> y (Control Center policy: "+name+")")
	}
	w.untouched()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.records {
		if r.Outcome != gitgw.Refused || r.Refs[0].Verdict != gitgw.Deny || r.Refs[0].Rule != gitgw.SourceName || r.Refs[0].Host != "" {
			t.Errorf("record: %+v", r)
		}
	}
}

// shortSource forgets a ref.
type shortSource struct{}

func (*shortSource) Rulings(_ context.Context, l gitgw.Lookup) ([]gitgw.Ruling, error) {
	return make([]gitgw.Ruling, len(l.Updates)-1), nil
}

// TestSourceAlone: where no rule here is about the repository the source's word
// counts, and a block, even an empty one, narrows it.
func TestSourceAlone(t *testing.T) {
	t.Parallel()
	s := says(gitgw.Allow, "")
	w := newWorld(t, rules("repo github.com/other/x", "push **"), sourced(s))
	w.git("push", "origin", "main:x").want(t, 0, "[new branch]")
	if r := w.record(); r.Refs[0].Rule != gitgw.SourceName || r.Refs[0].Host != "allow" {
		t.Errorf("record: %+v", r)
	}
	// A repository that is neither the run's nor linked is no question for anybody.
	asked := len(s.asked())
	w.git("push", w.url+"github.com/acme/nobody.git", "main:x").want(t, 128, "not this run's repository")
	w.change(func() { w.gateway.Rules = mustRules(t, "push agent/**") })
	w.git("push", "origin", "main:y").want(t, 1, "(Control Center policy: no rule allows push to y)")
	if n := len(s.asked()); n != asked {
		t.Errorf("asked %d times more", n-asked)
	}
	// Without a source nobody may push there.
	w.change(func() { w.gateway.Source, w.gateway.Rules = nil, mustRules(t, "repo github.com/other/x", "push **") })
	w.git("push", "origin", "main:y").want(t, 1, "(Control Center policy: no rule names acme/app)")
}

// TestJudge is what is asked of the gateway beside a push.
func TestJudge(t *testing.T) {
	repo, _ := gitgw.ParseRepo("github.com/acme/app")
	create := func(ref string) gitgw.Update {
		return gitgw.Update{Ref: "refs/heads/" + ref, Action: gitgw.ActionCreate}
	}
	g := &gitgw.Gateway{Rules: mustRules(t, "push **", "deny main")}
	ask := func(refs ...string) string {
		var updates []gitgw.Update
		for _, r := range refs {
			updates = append(updates, create(r))
		}
		all, err := g.Judge(t.Context(), gitgw.Caller{Session: "s"}, repo, nil, updates...)
		var words []string
		for _, j := range all {
			words = append(words, j.Kind.String()+"/"+j.Host)
		}
		if err != nil {
			words = append(words, err.Error())
		}
		return strings.Join(words, " ")
	}
	for _, c := range []struct {
		source gitgw.Source
		refs   []string
		want   string
	}{
		{nil, []string{"a", "main"}, "allow/ deny/"},
		{says(gitgw.Ask, ""), []string{"a", "b"}, "ask/ask ask/ask"},
		{says(gitgw.Allow, ""), []string{"a", "main"}, "allow/ deny/"},
		{says(gitgw.Allow, ""), []string{"a..b"}, "deny/"},
		{&source{err: errors.New("gone")}, []string{"a", "b"}, "deny/ deny/ gone"},
		{&shortSource{}, []string{"a"}, "deny/ the rule source gave no usable answer"},
	} {
		g.Source = c.source
		if got := ask(c.refs...); got != c.want {
			t.Errorf("%v: %q, want %q", c.refs, got, c.want)
		}
	}
	g.Source, g.Rules = says(gitgw.Allow, ""), nil
	if got := ask("a..b"); got != "deny/" {
		t.Errorf("a name that git would not take: %q", got)
	}
	if got := ask("main"); got != "allow/allow" {
		t.Errorf("no rules but the source's: %q", got)
	}
}

// TestSourceClientDies: the run's end ends the question.
func TestSourceClientDies(t *testing.T) {
	t.Parallel()
	asked, ended := make(chan struct{}), make(chan struct{})
	stuck := sourceFunc(func(ctx context.Context) error {
		close(asked)
		<-ctx.Done()
		return ctx.Err()
	})
	w := newWorld(t, allowAll, sourced(stuck), func(w *world) { w.caller.Ended = ended })
	go func() {
		<-asked
		close(ended)
	}()
	if r := w.git("push", "origin", "main:x"); r.code == 0 {
		t.Errorf("pushed:\n%s", r.out)
	}
	if r := w.waitRecord(); r.Outcome != gitgw.Aborted || r.Duration > time.Minute {
		t.Errorf("record: %+v", r)
	}
	w.untouched()
}

type sourceFunc func(context.Context) error

func (f sourceFunc) Rulings(ctx context.Context, _ gitgw.Lookup) ([]gitgw.Ruling, error) {
	return nil, f(ctx)
}

// TestLFSAsksTheSource: objects come before the push, and are judged by its ref, by
// the host as well.
func TestLFSAsksTheSource(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git-lfs"); err != nil {
		t.Skip("git-lfs is not installed")
	}
	s := says(gitgw.Deny, "no large files")
	w := newWorld(t, allowAll, sourced(s))
	w.tracks()
	w.commit(w.clone, "small.bin", "small\n")
	w.git("push", "origin", "main:feat").want(t, 1, "no large files")
	if n := len(w.hub.LFSObjects()); n != 0 {
		t.Errorf("%d objects at the forge", n)
	}
	if r := w.record(); r.Refs[0].Host != "deny" || r.Outcome != gitgw.Refused {
		t.Errorf("record: %+v", r)
	}
	w.untouched()
}
