package gitgw_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"postern/gitgw"
)

// nothingLeft waits until no look and no kept pack is left: a push may outlive git.
func nothingLeft(t *testing.T, n *gitgw.Inspections) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		kept, seats, waiting := n.Taken()
		if kept == 0 && seats == 0 && waiting == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes, %d seats and %d that wait are left", kept, seats, waiting)
		}
	}
}

// looking is a world that looks for secrets in all that is pushed and asks about some.
func looking(t *testing.T, n *gitgw.Inspections, a *approver, options ...option) *world {
	t.Helper()
	return newWorld(t, append([]option{
		under(func(b *gitgw.RepoRules) { b.Conditions.Secrets = true }, "push **", "ask rel*"),
		func(w *world) {
			w.gateway.Inspections = n
			w.gateway.Limits.Progress = 50 * time.Millisecond
			if a != nil {
				w.gateway.Approver = a
			}
		},
	}, options...)...)
}

// A pack that waits for an approver takes room; a run gets no more than its share, and
// all together no more than there is. The room comes back with the push's end.
func TestSpoolIsShared(t *testing.T) {
	t.Parallel()
	var n gitgw.Inspections
	yes := make(chan struct{})
	a := &approver{connected: true, answer: func(ctx context.Context, _ gitgw.Question) (gitgw.Answer, error) {
		select {
		case <-yes:
			return gitgw.Answer{Allowed: true}, nil
		case <-ctx.Done():
			return gitgw.Answer{}, ctx.Err()
		}
	}}
	limited := func(w *world) { w.gateway.Limits.SpoolRun, w.gateway.Limits.Spool = 300<<10, 380<<10 }
	w, other := looking(t, &n, a, limited), looking(t, &n, nil, limited, func(w *world) { w.caller.Session = "s2" })
	w.commitBlob(200 << 10)
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		w.git("push", "origin", "main:rel-1").want(t, 0, "[new branch]")
	}()
	for deadline := time.Now().Add(20 * time.Second); a.asked.Load() < 1 && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	r := w.git("push", "origin", "main:x")
	r.want(t, 1, "(Control Center policy: push cannot be judged: this run's other pushes take its room to be looked into)",
		"remote: Control Center: push again when this run's other pushes have ended")
	r.lacks(t, "Everything up-to-date", "RPC failed")
	other.git("push", "origin", "main:small").want(t, 0, "[new branch]")
	other.commitBlob(200 << 10)
	other.git("push", "origin", "main:x").want(t, 1, "(Control Center policy: push cannot be judged: other runs' pushes take the room to be looked into)",
		"remote: Control Center: push again when their pushes have ended")
	close(yes)
	<-waits
	nothingLeft(t, &n)
	w.git("push", "origin", "main:x").want(t, 0, "[new branch]")
	other.git("push", "origin", "main:x").want(t, 0, "[new branch]")
	nothingLeft(t, &n)
}

// A pack that could never have room is told from one that waits for it, and from one that
// its rule finds too large: what helps is another thing.
func TestSpoolIsTooSmall(t *testing.T) {
	t.Parallel()
	const cure = "remote: Control Center: push less at a time, or keep large files in Git LFS; up to 2 GiB, `total` and `run` of `spool`"
	for name, limit := range map[string]func(*gitgw.Limits){
		"of one run": func(l *gitgw.Limits) { l.SpoolRun = 100 << 10 },
		"of all":     func(l *gitgw.Limits) { l.Spool = 100 << 10 },
		"of one":     func(l *gitgw.Limits) { l.Kept = 100 << 10 },
	} {
		for most, want := range map[int64]string{0: "push is larger than 100 KiB, the most that is looked into", 150e3: "push is larger than 100 KiB, the most", 50e3: "push is larger than 50 kB)"} {
			t.Run(fmt.Sprintf("%s, %d", name, most), func(t *testing.T) {
				t.Parallel()
				var n gitgw.Inspections
				w := looking(t, &n, nil, func(w *world) { limit(&w.gateway.Limits) },
					under(func(b *gitgw.RepoRules) { b.Conditions.Secrets, b.Conditions.MaxPack = true, most }, "push **"))
				w.commitBlob(200 << 10)
				r, code := w.git("push", "origin", "main:x"), gitgw.CodeSpoolLarge
				r.want(t, 1, "(Control Center policy: "+want)
				if most == 50e3 {
					code = gitgw.CodePackLarge
					r.want(t, 1, "or have max_pack raised")
					r.lacks(t, "`spool`")
				} else {
					r.want(t, 1, cure)
					r.lacks(t, "max_pack")
				}
				if rec := w.record(); rec.Code != code || rec.Outcome != gitgw.Refused {
					t.Errorf("record: %+v", rec)
				}
				nothingLeft(t, &n)
			})
		}
	}
}

// Nothing is left behind by a push that is refused, that is cut off by its client or its
// run's end, or that is no pack at all; a client that is refused and keeps sending holds
// no room either.
func TestSpoolLeaksNothing(t *testing.T) {
	t.Parallel()
	var n gitgw.Inspections
	never := &approver{connected: true, answer: func(ctx context.Context, _ gitgw.Question) (gitgw.Answer, error) {
		<-ctx.Done()
		return gitgw.Answer{}, ctx.Err()
	}}
	l := &life{}
	w := looking(t, &n, never, mortal(l), func(w *world) {
		w.gateway.Limits.Ask, w.gateway.SpoolDir = 100*time.Millisecond, t.TempDir()
	})
	w.git("push", "origin", "main:rel-1").want(t, 1, "approval pending")
	nothingLeft(t, &n)
	head := func(ref string) string {
		return pkt(zero+" "+w.head("main")+" refs/heads/"+ref+"\x00 report-status side-band-64k") + "0000"
	}
	readAll(t, w.post(head("junk")+strings.Repeat("junk", 1<<20), nil))
	nothingLeft(t, &n)
	// Half a pack, and then the client is gone, or silent.
	half := func() (gone context.CancelFunc, over <-chan struct{}) {
		ctx, gone := context.WithCancel(t.Context())
		from, to := io.Pipe()
		context.AfterFunc(ctx, func() { _ = to.CloseWithError(ctx.Err()) })
		body := io.MultiReader(strings.NewReader(head("half")+w.pack()[:100]), from)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"github.com/acme/app.git/git-receive-pack", body)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if kept, _, _ := n.Taken(); kept > 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("nothing is kept")
			}
		}
		return gone, done
	}
	gone, over := half()
	gone()
	<-over
	nothingLeft(t, &n)
	gone, over = half()
	l.end(t)
	nothingLeft(t, &n)
	gone()
	<-over
	if left, err := os.ReadDir(w.gateway.SpoolDir); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
	w.untouched()
}

// A push whose turn does not come is told so, and waits behind nobody of another run.
func TestLooksTakeTurns(t *testing.T) {
	t.Parallel()
	var n gitgw.Inspections
	w := looking(t, &n, nil, func(w *world) { w.gateway.Limits.LookWait = 300 * time.Millisecond })
	leave := n.Hold("s1")
	w.git("push", "origin", "main:x").want(t, 1, "remote: Control Center: waiting until other pushes have been looked into",
		"(Control Center: other pushes are being looked into, and this one had no turn within 300ms)",
		"remote: Control Center: push again when they are through")
	if kept, seats, waiting := n.Taken(); kept != 0 || seats != 1 || waiting != 0 {
		t.Errorf("%d %d %d", kept, seats, waiting)
	}
	w.change(func() { w.caller.Session = "s2" })
	w.git("push", "origin", "main:x").want(t, 0, "[new branch]")
	w.change(func() { w.caller.Session, w.gateway.Limits.LookWait = "s1", time.Minute })
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.git("push", "origin", "main:y").want(t, 0, "[new branch]")
	}()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, _, waiting := n.Taken(); waiting == 1 || time.Now().After(deadline) {
			break
		}
	}
	leave()
	<-done
	nothingLeft(t, &n)
}

// A run that pushes bombs is sent away, with the time to come again; other runs are not.
func TestBombsAreCounted(t *testing.T) {
	t.Parallel()
	var n gitgw.Inspections
	w := looking(t, &n, nil, func(w *world) {
		w.gateway.Limits.Pack.Work, w.gateway.Limits.Work, w.gateway.Limits.WorkWindow = 4<<20, 9<<20, time.Hour
	})
	w.mustGit(w.clone, "config", "core.bigFileThreshold", "1m")
	w.git("push", "-q", "origin", "main:small").want(t, 0)
	w.commit(w.clone, "bomb.bin", strings.Repeat("0", 16<<20))
	for range 2 {
		w.git("push", "origin", "main:x").want(t, 1, "(Control Center policy: push cannot be judged: the pack inflates too far to be looked into)",
			"remote: Control Center: push fewer commits at a time")
	}
	for _, rev := range []string{"main:x", "main~1:refs/heads/y"} {
		r := w.git("push", "origin", rev)
		r.want(t, 1, "(Control Center: this run's pushes have taken as much work to look into as they may; try again in ",
			"remote: Control Center: wait for that long")
		r.lacks(t, "Everything up-to-date")
	}
	nothingLeft(t, &n)
	w.change(func() { w.caller.Session = "s2" })
	w.git("push", "origin", "main~1:refs/heads/y").want(t, 0, "[new branch]")
}

// The folder is one that nobody else reads, and is there; the error says what to do.
func TestCheckSpool(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open, file, private := filepath.Join(dir, "open"), filepath.Join(dir, "file"), filepath.Join(dir, "private")
	for _, err := range []error{os.Mkdir(open, 0o700), os.Chmod(open, 0o755), os.WriteFile(file, nil, 0o600), os.Mkdir(private, 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "mkdir -m 700 ",
		open:                       "chmod 700 " + open,
		file:                       "name one",
		private:                    "",
	} {
		err := gitgw.CheckSpool(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", path, err)
		}
	}
	// A default folder is made when it is needed.
	w := newWorld(t, noSecrets, func(w *world) {
		w.gateway.SpoolDir, w.gateway.SpoolMake = filepath.Join(dir, "made"), true
	})
	w.git("push", "origin", "main:x").want(t, 0, "[new branch]")
	if err := gitgw.CheckSpool(w.gateway.SpoolDir); err != nil {
		t.Error(err)
	}
}
