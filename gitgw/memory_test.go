package gitgw_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A push of 200 MB, passed on or refused, costs the gateway's process no more
// than 24 MiB: it is streamed, never held.
func TestMemory200MB(t *testing.T) {
	if testing.Short() {
		t.Skip("pushes 200 MB")
	}
	if raceEnabled {
		t.Skip("the race detector multiplies memory")
	}
	w := newWorld(t, allowAll)
	w.commitBlob(200 << 20)
	token, err := w.hub.IssueToken(map[string]string{"contents": "write"}, "acme/app")
	if err != nil {
		t.Fatal(err)
	}
	w.staticToken = token
	for _, c := range []struct {
		rule string
		code int
		want string
	}{
		{"deny", 1, " ! [remote rejected] main -> big"},
		{"push", 0, " * [new branch]      main -> big"},
	} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "GITGW_TEST_UPSTREAM="+w.hub.URL(), "GITGW_TEST_TOKEN="+token, "GITGW_TEST_RULE="+c.rule)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		address, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		url := "http://" + strings.TrimSpace(address) + "/github.com/acme/app.git"
		w.git("push", url, "main~1:warm-"+c.rule) // so that code and buffers are there
		before := memory(t, cmd.Process.Pid, "VmRSS")
		started := time.Now()
		r := w.git("push", url, "main:big")
		took := time.Since(started)
		grown := memory(t, cmd.Process.Pid, "VmHWM") - before
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		r.want(t, c.code, c.want)
		t.Logf("%s: 200 MB in %s, %d KiB more", c.rule, took.Round(time.Millisecond), grown)
		if grown > 24<<10 {
			t.Errorf("%s: grew by %d KiB", c.rule, grown)
		}
	}
	w.wantRef("refs/heads/big", w.head("main"))
}

// memory reads a field of /proc/PID/status in KiB.
func memory(t *testing.T, pid int, field string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("no /proc here")
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s", field)
	return 0
}
