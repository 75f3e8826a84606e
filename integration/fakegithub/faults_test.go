package fakegithub

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// pushing gives a clone with one commit to push and a token that may.
func pushing(t *testing.T) (*Server, work) {
	t.Helper()
	s, id := start(t, Options{})
	w := clone(t, s, mintToken(t, s, id, "app", writePerms), "acme/app")
	w.commit("f", "x")
	return s, w
}

func TestFaultTokenLag(t *testing.T) {
	for status, want := range map[int]string{0: "Invalid username or token", 403: "Write access to repository not granted.", 404: "Repository not found."} {
		s, w := pushing(t)
		s.SetFaults(Faults{TokenLag: time.Minute, LagStatus: status})
		w.fails([]string{want}, "push", "origin", "main:feat")
		s.Advance(2 * time.Minute)
		w.git("push", "-q", "origin", "main:feat")
	}
}

func TestFault5xx(t *testing.T) {
	s, w := pushing(t)
	s.SetFaults(Faults{Advert: 502})
	w.fails([]string{"error: 502"}, "push", "origin", "main:feat")
	s.SetFaults(Faults{Push: 503})
	w.fails([]string{"RPC failed; HTTP 503"}, "push", "origin", "main:feat")
	if p := s.Pushes(); len(p) != 1 || p[0].Received != 0 {
		t.Errorf("the body was read: %+v", p)
	}
	if ref(t, s, "acme/app", "refs/heads/feat") != "" {
		t.Error("feat landed")
	}
	s.SetFaults(Faults{API: 500})
	if r := call(t, "GET", s.URL()+"/app", goodJWT(t, s), ""); r.status != 500 {
		t.Errorf("API: %d", r.status)
	}
	w.git("push", "-q", "origin", "main:feat") // git is another front
}

func TestFaultMintAndRevoke(t *testing.T) {
	s, id := start(t, Options{})
	token := mintToken(t, s, id, "app", writePerms)
	s.SetFaults(Faults{Mint: 502, Revoke: 401})
	if r := call(t, "POST", s.URL()+"/app/installations/"+itoa(id)+"/access_tokens", goodJWT(t, s), "{}"); r.status != 502 {
		t.Errorf("mint: %d", r.status)
	}
	if r := call(t, "DELETE", s.URL()+"/installation/token", token, ""); r.status != 401 {
		t.Errorf("revoke: %d", r.status)
	}
	if tok, _ := s.Token(token); tok.Revoked() || len(s.Tokens()) != 1 {
		t.Errorf("ledger: %+v", s.Tokens())
	}
}

func TestFaultAbortReport(t *testing.T) {
	s, w := pushing(t)
	s.SetFaults(Faults{AbortReport: true})
	w.fails(nil, "push", "origin", "main:feat")
	// The nasty half of it: the push did happen.
	if ref(t, s, "acme/app", "refs/heads/feat") != w.head() {
		t.Error("feat did not land")
	}
}

func TestFaultTruncateReportHangsGit(t *testing.T) {
	s, w := pushing(t)
	s.SetFaults(Faults{TruncateReport: true})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", "push", "origin", "main:feat")
	cmd.Dir, cmd.Env, cmd.WaitDelay = w.dir, gitEnv(), time.Second
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("git was content with half a report:\n%s", out)
	}
}

func TestFaultSlowReport(t *testing.T) {
	s, w := pushing(t)
	s.SetFaults(Faults{SlowReport: 800 * time.Millisecond})
	begin := time.Now()
	w.git("push", "-q", "origin", "main:feat")
	if d := time.Since(begin); d < 700*time.Millisecond {
		t.Errorf("took only %v", d)
	}
}

func TestFaultMaxPack(t *testing.T) {
	s, w := pushing(t)
	w.commit("big", strings.Repeat("incompressible? no, but long\n", 100))
	s.SetFaults(Faults{MaxPack: 200})
	w.fails([]string{"pack exceeds maximum allowed size", "! [remote rejected] main -> feat"}, "push", "origin", "main:feat")
	if ref(t, s, "acme/app", "refs/heads/feat") != "" {
		t.Error("feat landed")
	}
	s.SetFaults(Faults{})
	w.git("push", "-q", "origin", "main:feat")
}

// Close must not wait for a report that is slow on purpose.
func TestCloseCutsSlowReports(t *testing.T) {
	s, err := New(Options{Key: testKey()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AddRepo("acme/app"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit("acme/app", "main", "first", map[string]string{"a": "b"}); err != nil {
		t.Fatal(err)
	}
	token, err := s.IssueToken(map[string]string{"contents": "write"}, "acme/app")
	if err != nil {
		t.Fatal(err)
	}
	w := clone(t, s, token, "acme/app")
	w.commit("f", "x")
	s.SetFaults(Faults{SlowReport: time.Hour})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.run(w.dir, "push", "origin", "main:feat")
	}()
	for deadline := time.Now().Add(10 * time.Second); len(s.Pushes()) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no push came")
		}
	}
	begin := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("close took %v", d)
	}
	<-done
}

func pkt(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }

func TestReport(t *testing.T) {
	bare := pkt("unpack ok\n") + pkt("ng refs/heads/main pre-receive hook declined\n") + pkt("ok refs/heads/x\n") + "0000"
	banded := pkt("\x02hello\n") + pkt("\x01"+bare[:20]) + pkt("\x02more\n") + pkt("\x01"+bare[20:]) + "0000"
	reasons := map[string]string{"refs/heads/main": "because", "refs/heads/x": "not refused, so not used"}
	wantReport := pkt("unpack ok\n") + pkt("ng refs/heads/main because\n") + pkt("ok refs/heads/x\n") + "0000"
	for name, tt := range map[string]struct{ in, live, out string }{
		"bare":   {bare, "", wantReport},
		"banded": {banded, pkt("\x02hello\n") + pkt("\x02more\n"), pkt("\x01"+wantReport) + "0000"},
	} {
		var live bytes.Buffer
		report, isBanded, err := collectReport(&live, bufio.NewReader(strings.NewReader(tt.in)))
		if err != nil || string(report) != bare {
			t.Errorf("%s: report %q: %v", name, report, err)
		}
		if live.String() != tt.live {
			t.Errorf("%s: live %q", name, live.String())
		}
		if got := string(frame(withReasons(report, reasons), isBanded)); got != tt.out {
			t.Errorf("%s: got %q, want %q", name, got, tt.out)
		}
	}
	for _, bad := range []string{"zzzz", "0003", pkt("\x01abc")[:6], "00"} {
		if _, _, err := collectReport(&bytes.Buffer{}, bufio.NewReader(strings.NewReader(bad))); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestLongReportsAreSplit(t *testing.T) {
	long := []byte(strings.Repeat("x", 2*maxBand+7))
	var got []byte
	r := bufio.NewReader(bytes.NewReader(frame(long, true)))
	n := 0
	for {
		p, err := readPkt(r)
		if err != nil {
			t.Fatal(err)
		}
		if p == nil {
			break
		}
		got = append(got, p[1:]...)
		n++
	}
	if n != 3 || !bytes.Equal(got, long) {
		t.Errorf("%d packets, %d bytes", n, len(got))
	}
}
