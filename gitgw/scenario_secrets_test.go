package gitgw_test

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"postern/gitgw"
)

// noSecrets is a rule that looks for credentials.
var noSecrets = under(func(b *gitgw.RepoRules) { b.Rules[0].Conditions.Secrets = true }, "push refs/** create update force")

// credential is one that nobody has seen before, so that none stands in this file.
func credential() string {
	var b [36]byte
	_, _ = rand.Read(b[:])
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return "ghp_" + string(b[:])
}

// caught checks a refusal for a secret, and that the secret is told to nobody.
func (w *world) caught(secret string, r result, parts ...string) {
	w.t.Helper()
	r.want(w.t, 1, append(parts, "(Control Center policy: a secret was found)")...)
	r.lacks(w.t, secret, secret[4:20], "Everything up-to-date")
	if strings.Contains(w.log.String(), secret[4:20]) {
		w.t.Error("the log holds the secret")
	}
	w.unsent()
}

// M04: the secret lies across two of the buffers in which the blob is inflated, and
// nowhere near its beginning.
func TestM04(t *testing.T) {
	t.Parallel()
	for _, before := range []int{32<<10 - 20, 64<<10 - 5, 128<<10 - 20, 1 << 20} {
		w := newWorld(t, noSecrets)
		secret := credential()
		w.commit(w.clone, "config/app.env", strings.Repeat("# comment\n", before/10)+"TOKEN="+secret+"\n"+strings.Repeat("# more\n", 9000))
		w.hub.ForgetRequests()
		w.caught(secret, w.git("push", "origin", "main:feat"), " ! [remote rejected] main -> feat",
			"remote: Control Center: github-pat in config/app.env, commit "+w.head("main")[:10])
		w.wantRef("refs/heads/feat", "")
		w.untouched()
		if rec := w.record(); rec.Outcome != gitgw.Refused || !strings.Contains(rec.Reason, "github-pat in config/app.env") {
			t.Errorf("record: %+v", rec)
		}
	}
}

// A secret that a later commit removes is in the history all the same; so is one that
// is stored as a few bytes of difference, in a merge, or below a tag.
func TestSecretsInHistory(t *testing.T) {
	t.Parallel()
	secret := credential()
	long := strings.Repeat("a line of no interest\n", 400)
	for name, prepare := range map[string]func(w *world) string{
		"removed": func(w *world) string {
			w.commit(w.clone, "k.txt", secret+"\n")
			id := w.head("main")
			w.commit(w.clone, "k.txt", "nothing\n")
			return "k.txt, commit " + id[:10]
		},
		"a delta": func(w *world) string {
			w.commit(w.clone, "long.txt", long)
			w.commit(w.clone, "long.txt", long+"key "+secret+"\n"+long)
			id := w.head("main")
			w.commit(w.clone, "long.txt", long+"\n"+long)
			return "long.txt, commit " + id[:10]
		},
		"a delta of what the forge has": func(w *world) string {
			w.commit(w.clone, "long.txt", long)
			w.change(func() { w.gateway.Rules = mustRules(w.t, "push **") })
			w.git("push", "-q", "origin", "main:base").want(w.t, 0)
			w.change(func() { noSecrets(w) })
			w.mustGit(w.clone, "fetch", "-q")
			w.commit(w.clone, "long.txt", long+secret+"\n")
			return "long.txt, commit " + w.head("main")[:10]
		},
		"a tag": func(w *world) string {
			w.commit(w.clone, "a folder/k v.txt", secret+"\n")
			w.mustGit(w.clone, "tag", "-a", "-m", "t", "v1")
			return "a folder/k v.txt, commit " + w.head("main")[:10]
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, noSecrets)
			where := prepare(w)
			w.hub.ForgetRequests()
			target := "main:feat"
			if name == "a tag" {
				target = "v1"
			}
			w.caught(secret, w.git("push", "origin", target), "github-pat in "+where)
		})
	}
}

// A rule for force that looks for secrets looks in forced pushes, and in no others.
func TestSecretsOfForceAlone(t *testing.T) {
	t.Parallel()
	forceAlone := under(func(b *gitgw.RepoRules) { b.Rules[1].Conditions.Secrets = true }, "push feat create update", "push feat force")
	for _, c := range []struct {
		name          string
		forced, holds bool
		ok            bool
	}{
		{"an update", false, false, true},
		{"an update with a secret", false, true, true},
		{"a forced one", true, false, true},
		{"a forced one with a secret", true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, forceAlone)
			w.commit(w.clone, "a.txt", "before\n")
			w.git("push", "-q", "origin", "main:feat").want(t, 0)
			secret := credential()
			if c.forced {
				w.mustGit(w.clone, "reset", "-q", "--hard", "HEAD~1")
			}
			if c.holds {
				w.commit(w.clone, "b.env", "TOKEN="+secret+"\n")
			} else {
				w.commit(w.clone, "b.env", "TOKEN=none\n")
			}
			w.hub.ForgetRequests()
			r := w.git("push", "--force", "origin", "main:feat")
			if !c.ok {
				w.caught(secret, r, "github-pat in b.env")
				return
			}
			r.want(t, 0, "main -> feat")
			w.wantRef("refs/heads/feat", w.head("main"))
		})
	}
}

// In a lock file such words are sums, and prose is prose.
func TestSecretsPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noSecrets)
	w.commit(w.clone, "package-lock.json", `{"integrity": "`+credential()+`"}`)
	w.commit(w.clone, "doc.md", "The key is a secret token.\n")
	w.git("push", "origin", "main:feat").want(t, 0, "main -> feat")
	w.wantRef("refs/heads/feat", w.head("main"))
}

// What looks like a secret and does not count hides none that does: not by being many,
// nor by where the same file stands as well.
func TestSecretsBehindOthers(t *testing.T) {
	t.Parallel()
	many := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteString(credential() + "\n")
		}
		return b.String()
	}
	secret := credential()
	locks := func(w *world, n int) {
		for i := range n {
			dir := filepath.Join(w.clone, strconv.Itoa(i))
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(dir+"/package-lock.json", []byte(secret+"\n"), 0o600)); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	for name, prepare := range map[string]func(w *world){
		"in other files": func(w *world) {
			w.commit(w.clone, "k.txt", secret+"\n")
			for _, dir := range []string{"a", "b", "c"} {
				w.commit(w.clone, dir+"/package-lock.json", many(150))
			}
		},
		"in the same file elsewhere": func(w *world) {
			locks(w, 30)
			w.commit(w.clone, "k.txt", secret+"\n")
		},
		"in more files than are remembered": func(w *world) {
			locks(w, 130)
			w.commit(w.clone, "k.txt", secret+"\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, noSecrets)
			prepare(w)
			w.hub.ForgetRequests()
			w.caught(secret, w.git("push", "origin", "main:feat"), "github-pat")
		})
	}
	// A file that many commits leave alone beside one that they change is in one place.
	w := newWorld(t, noSecrets)
	w.commit(w.clone, "a/package-lock.json", many(150))
	for i := range 25 {
		w.commit(w.clone, "a/x.txt", strings.Repeat("x", i+1))
	}
	w.git("push", "origin", "main:feat").want(t, 0, "main -> feat")
}

// M02: a rule that looks at content lets a large push through.
func TestM02(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noSecrets)
	size := 16 << 20
	if raceEnabled {
		size = 4 << 20 // of which it is the steps that count; TestMemory200MB has the rest
	}
	w.commitBlob(size)
	r := w.git("push", "origin", "main:big")
	r.want(t, 0, " * [new branch]")
	w.wantRef("refs/heads/big", w.head("main"))
	if rec := w.record(); rec.PackBytes < int64(size) || rec.Objects == 0 || rec.Outcome != gitgw.Accepted {
		t.Errorf("record: %+v", rec)
	}
}

// A thin pack cannot be judged, and it is not: it was not to be sent.
func TestThinIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, noSecrets)
	w.strip = []string{" no-thin"}
	w.change(func() { w.gateway.Rules = mustRules(t, "push **") })
	long := strings.Repeat("a line of no interest\n", 400)
	w.commit(w.clone, "long.txt", long)
	w.git("push", "-q", "origin", "main:base").want(t, 0)
	w.mustGit(w.clone, "fetch", "-q")
	w.change(func() { noSecrets(w) })
	w.commit(w.clone, "long.txt", long+"one more\n")
	w.git("push", "origin", "main:feat").want(t, 1, "(Control Center policy: push cannot be judged: ", "not sent along")
	w.wantRef("refs/heads/feat", "")
}
