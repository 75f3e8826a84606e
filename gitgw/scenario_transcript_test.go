package gitgw_test

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/gitgw"
	"postern/gitgw/approve"
)

var update = flag.Bool("update", false, "write the transcripts anew")

// What differs from one run to the next: ids, ports, how long it took.
var (
	idText    = regexp.MustCompile(`\b[0-9a-f]{16}\b`)
	rangeText = regexp.MustCompile(`\b[0-9a-f]{7}\.\.[0-9a-f]{7}\b`)
	timeText  = regexp.MustCompile(`approval \([0-9]+s\)`)
)

// transcript holds git's output to testdata/transcripts/NAME.txt: everything that a
// person sees, and nothing else. Repeated lines count once.
func (w *world) transcript(name string, r result) {
	w.t.Helper()
	text := strings.ReplaceAll(r.out, w.url, "http://git.internal/")
	text = idText.ReplaceAllString(text, "ID")
	text = rangeText.ReplaceAllString(text, "OLD..NEW")
	text = timeText.ReplaceAllString(text, "approval (Ns)")
	var lines []string
	for line := range strings.Lines(text) {
		// git pads `remote:` lines, to wipe out what may stand there.
		line = strings.TrimRight(line, " \n")
		if len(lines) == 0 || lines[len(lines)-1] != line {
			lines = append(lines, line)
		}
	}
	got := strings.Join(lines, "\n") + "\n"
	path := filepath.Join("testdata", "transcripts", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			w.t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	if got != string(want) {
		w.t.Errorf("%s: git printed\n%s\nwant\n%s", name, got, want)
	}
}

// queueWorld is a world whose approver is a queue, with short times.
func queueWorld(t *testing.T, options ...option) (*world, *approve.Queue) {
	t.Helper()
	q := approve.NewQueue(0, 200*time.Millisecond)
	w := newWorld(t, append([]option{asking(nil), func(w *world) {
		w.gateway.Approver, w.gateway.ApproverName = q, "queue"
		w.gateway.Limits.Ask = time.Minute
		w.gateway.Limits.Progress = 100 * time.Millisecond
	}}, options...)...)
	return w, q
}

// listen answers every question by a function, until leave is called.
func listen(t *testing.T, q *approve.Queue, answer func(gitgw.Question)) (leave func()) {
	t.Helper()
	l := q.Listen()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			e, err := l.Next(ctx)
			if err != nil {
				return
			}
			if e.Type == "asked" {
				answer(e.Question)
			}
		}
	}()
	leave = func() {
		cancel()
		<-done
		_ = l.Close()
	}
	t.Cleanup(leave)
	return leave
}

// unanswered is an approver's who only listens.
func unanswered(gitgw.Question) {}

// TestTranscriptApproved: git shows that it waits, and then what it always shows.
func TestTranscriptApproved(t *testing.T) {
	t.Parallel()
	w, q := queueWorld(t)
	listen(t, q, func(asked gitgw.Question) {
		time.AfterFunc(2*time.Second, func() { _ = q.Answer(asked.ID, gitgw.Answer{Allowed: true, By: "ada"}) })
	})
	r := w.git("push", "origin", "main:rel-1")
	r.want(t, 0)
	w.transcript("ask-approved", r)
	w.wantRef("refs/heads/rel-1", w.head("main"))
}

func TestTranscriptRefused(t *testing.T) {
	t.Parallel()
	w, q := queueWorld(t)
	listen(t, q, func(asked gitgw.Question) {
		time.AfterFunc(2*time.Second, func() { _ = q.Answer(asked.ID, gitgw.Answer{By: "ada", Reason: "not on a Friday"}) })
	})
	r := w.git("push", "origin", "main:rel-1", "main:free")
	r.want(t, 1)
	w.transcript("ask-refused", r)
	w.untouched()
}

// TestTranscriptTimedOut: nobody answers while the push waits. The same push made
// again finds the answer that has come since, and what it said of it is used up.
func TestTranscriptTimedOut(t *testing.T) {
	t.Parallel()
	w, q := queueWorld(t, func(w *world) { w.gateway.Limits.Ask = time.Second })
	listen(t, q, unanswered)
	r := w.git("push", "origin", "main:rel-1")
	r.want(t, 1)
	w.transcript("ask-timed-out", r)
	open := q.Open()
	if len(open) != 1 {
		t.Fatalf("%d open questions", len(open))
	}
	if err := q.Answer(open[0].ID, gitgw.Answer{Allowed: true, By: "ada"}); err != nil {
		t.Fatal(err)
	}
	w.untouched()
	r = w.git("push", "origin", "main:rel-1")
	r.want(t, 0)
	w.transcript("ask-pushed-again", r)
	w.mu.Lock()
	first, second := w.records[0], w.records[1]
	w.mu.Unlock()
	if first.Question != open[0].ID || first.Outcome != gitgw.Refused || first.Waited < time.Second ||
		second.Question != open[0].ID || second.Outcome != gitgw.Accepted || second.Approver != "ada" {
		t.Errorf("records: %+v\n%+v", first, second)
	}
	// The next one is another push: it asks anew.
	dir, err := w.hub.Dir("acme/app")
	if err != nil {
		t.Fatal(err)
	}
	w.mustGit(dir, "update-ref", "-d", "refs/heads/rel-1")
	w.git("push", "origin", "main:rel-1").want(t, 1, "approval pending (id ")
	if open := q.Open(); len(open) != 1 || open[0].ID == first.Question {
		t.Errorf("open: %+v", open)
	}
}

// TestTranscriptApproverLost: the last listener leaves and nobody comes in time.
func TestTranscriptApproverLost(t *testing.T) {
	t.Parallel()
	w, q := queueWorld(t)
	asked := make(chan struct{}, 1)
	leave := listen(t, q, func(gitgw.Question) { asked <- struct{}{} })
	go func() {
		<-asked
		time.Sleep(time.Second)
		leave()
	}()
	r := w.git("push", "origin", "main:rel-1")
	r.want(t, 1)
	w.transcript("ask-approver-lost", r)
	w.untouched()
}

// TestTranscriptClientLost: what was shown before git was killed. Its question goes
// with it.
func TestTranscriptClientLost(t *testing.T) {
	t.Parallel()
	w, q := queueWorld(t)
	listen(t, q, unanswered)
	cmd := exec.Command("git", "push", "origin", "main:rel-1")
	cmd.Dir = w.clone
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + w.dir, "LC_ALL=C", "GIT_CONFIG_GLOBAL=" + filepath.Join(w.dir, "gitconfig")}
	// git's helpers die with it, as they do at ^C.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out syncBuffer
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return strings.Contains(out.String(), "waiting for approval (") })
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait()
	if r := w.waitRecord(); r.Outcome != gitgw.Aborted || !r.ClientGone || r.Question == "" {
		t.Errorf("record: %+v", r)
	}
	eventually(t, func() bool { return len(q.Open()) == 0 })
	w.transcript("ask-client-lost", result{out: out.String()})
	w.untouched()
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not so after 20 s")
		}
	}
}

// TestTranscriptNobody: refused at once, without a word of waiting.
func TestTranscriptNobody(t *testing.T) {
	t.Parallel()
	w, _ := queueWorld(t)
	r := w.git("push", "origin", "main:rel-1")
	r.want(t, 1)
	w.transcript("ask-nobody", r)
	w.untouched()
}
