package gitgw_test

import (
	"strings"
	"testing"

	"postern/gitgw"
)

// under replaces the rules with lines and conditions that the block has besides them.
func under(change func(*gitgw.RepoRules), lines ...string) option {
	return func(w *world) {
		w.t.Helper()
		blocks := parseBlocks(w.t, lines...)
		change(&blocks[len(blocks)-1])
		set, err := gitgw.NewRules(blocks...)
		if err != nil {
			w.t.Fatal(err)
		}
		w.gateway.Rules = set
	}
}

// options lets push options through.
func options(patterns ...string) option {
	return under(func(b *gitgw.RepoRules) {
		for _, text := range patterns {
			p, _ := gitgw.ParseOptionPattern(text)
			b.Options = append(b.Options, p)
		}
	}, "push refs/** create update delete force")
}

// Push options act at some forges: what no rule names is refused.
func TestPushOptionsNeedARule(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options("ci.*"))
	w.git("push", "-o", "ci.skip", "-o", "repo.private=false", "origin", "main:opt").want(t, 1,
		`(Control Center policy: push option "repo.private=false" is not allowed)`)
	w.untouched()
	w.git("push", "-o", "ci.skip", "origin", "main:opt").want(t, 0, "main -> opt")
}

// M05: the pack is larger than its rule allows, whether it is streamed or kept.
func TestM05(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]string{"streamed": "main:feat", "kept": "main:main"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, under(func(b *gitgw.RepoRules) {
				b.Rules[0].Conditions.MaxPack = 50e6
			}, "push **"))
			w.commitBlob(60 << 20)
			before := w.refs("acme/app")
			r := w.git("push", "origin", target)
			r.want(t, 1, " ! [remote rejected] "+strings.Replace(target, ":", " -> ", 1), "(Control Center policy: push is larger than 50 MB)")
			r.lacks(t, "RPC failed", "Everything up-to-date", "413", "Broken pipe")
			for ref, id := range before {
				w.wantRef(ref, id)
			}
			w.wantRef("refs/heads/feat", "")
			if rec := w.record(); rec.Outcome != gitgw.Refused {
				t.Errorf("record: %+v", rec)
			}
		})
	}
}

// A pack of the allowed size goes through.
func TestMaxPackAllows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, under(func(b *gitgw.RepoRules) { b.Conditions.MaxPack = 4 << 20 }, "push **"))
	w.commitBlob(3 << 20)
	w.git("push", "origin", "main", "main:feat").want(t, 0)
	w.wantRef("refs/heads/feat", w.head("main"))
}

func TestMaxRefs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, under(func(b *gitgw.RepoRules) { b.Conditions.MaxRefs = 2 }, "push **"))
	w.git("push", "origin", "main:a", "main:b", "main:c").want(t, 1,
		"main -> a (Control Center policy: push names 3 refs, at most 2 are allowed)", "main -> c (Control")
	w.untouched()
	w.git("push", "-q", "origin", "main:a", "main:b").want(t, 0)
}

// The limits of a rule that speaks of force pushes alone hold for those, although which
// rule decides is known only when the pack is here.
func TestLimitsOfForce(t *testing.T) {
	t.Parallel()
	for want, limit := range map[string]gitgw.Conditions{
		"push is larger than 20 kB":                {MaxPack: 20_000},
		"push names 2 refs, at most 1 are allowed": {MaxRefs: 1},
	} {
		w := newWorld(t, under(func(b *gitgw.RepoRules) { b.Rules[1].Conditions = limit }, "push **", "push ** force"))
		w.commitBlob(40_000)
		w.git("push", "origin", "main", "main:other").want(t, 0, "main -> main")
		before := w.head("main")
		w.commitBlob(40_000)
		w.mustGit(w.clone, "reset", "-q", "--soft", "HEAD~2")
		w.mustGit(w.clone, "commit", "-q", "-m", "instead")
		w.git("push", "--force", "origin", "main", "main:third").want(t, 1, " ! [remote rejected] main -> main (Control Center policy: "+want+")")
		w.wantRef("refs/heads/main", before)
		w.wantRef("refs/heads/third", "")
	}
}
