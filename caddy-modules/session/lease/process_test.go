package lease

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A process is told from a later one with the same id.
func TestProcess(t *testing.T) {
	self := ProcessOf(os.Getpid())
	if !strings.HasPrefix(string(self), strconv.Itoa(os.Getpid())+"@") || !self.Alive() {
		t.Fatalf("this process is %q, alive %v", self, self.Alive())
	}
	if again := ProcessOf(os.Getpid()); again != self {
		t.Errorf("%q the next time", again)
	}
	for _, c := range []struct {
		name  string
		p     Process
		alive bool
	}{
		{"none", "", false},
		{"text", "init", false},
		{"no id", "@12", false},
		{"zero", "0@0", false},
		{"every process of the group", "-1@", false},
		{"this id at another time", Process(strconv.Itoa(os.Getpid()) + "@1"), false},
		{"this id, its start never known", Process(strconv.Itoa(os.Getpid()) + "@"), true},
		{"nobody's id", "999999999@1", false},
		{"nobody's id, its start never known", "999999999@", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.p.Alive() != c.alive {
				t.Errorf("%q is alive: %v", c.p, c.p.Alive())
			}
		})
	}
	for _, pid := range []int{0, -1, 999999999} {
		if p := ProcessOf(pid); p != "" {
			t.Errorf("process %d is %q", pid, p)
		}
	}
}

// One that has ended is dead at once, and not when its parent gets round to it.
func TestProcessEnds(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := ProcessOf(cmd.Process.Pid)
	if p == "" || !p.Alive() {
		t.Fatalf("%q is not alive", p)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Nobody has waited for it: what is left is a zombie.
	waitFor(t, "the zombie counts as dead", func() bool { return !p.Alive() })
	if zombie := ProcessOf(cmd.Process.Pid); zombie != "" {
		t.Errorf("the zombie is %q", zombie)
	}
	_ = cmd.Wait()
	if p.Alive() {
		t.Error("alive after its end")
	}
}

// waitFor waits for f.
func waitFor(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("never happened: %s", what)
		}
	}
}
