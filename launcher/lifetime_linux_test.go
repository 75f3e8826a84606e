package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

func TestSignalsReachTheCommand(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		t.Run(sig.String(), func(t *testing.T) {
			// A shell cannot trap what was ignored when it began, as under nohup;
			// a signal that is caught here is the default there.
			caught := make(chan os.Signal, 1)
			signal.Notify(caught, sig)
			defer signal.Stop(caught)
			for _, tc := range []struct {
				name, trap string
				want       int
			}{
				{"trapped", "exit 9", 9},
				{"not trapped", "", 128 + int(sig)},
			} {
				script := "echo ready; while :; do sleep 0.05; done"
				if tc.trap != "" {
					script = fmt.Sprintf("trap '%s' %d; %s", tc.trap, sig, script)
				}
				cmd := w.command("run", "--", "/bin/sh", "-c", script)
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
					t.Fatalf("%q, %v", line, err)
				}
				if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait()
				if got := cmd.ProcessState.ExitCode(); got != tc.want {
					t.Errorf("%s: status %d, want %d", tc.name, got, tc.want)
				}
				<-a.ended
			}
		})
	}
}

// A signal before the command runs ends the start, and starts nothing.
func TestSignalDuringTheStart(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	asked, answer := make(chan struct{}, 1), a.answer
	release := make(chan struct{})
	a.will(func(h lease.Hello) lease.Answer {
		asked <- struct{}{}
		<-release
		return answer(h)
	}, nil)
	cmd := w.command("run", "--", "/usr/bin/touch", "ran")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-asked
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	close(release)
	if got := cmd.ProcessState.ExitCode(); got != 128+15 {
		t.Errorf("status %d", got)
	}
	if _, err := os.Stat(filepath.Join(w.tree, "ran")); err == nil {
		t.Error("the command ran")
	}
}

// Whoever kills the launcher kills everything, and nothing is left.
func TestKilledLauncherLeavesNothing(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	out, err := exec.Command("git", "init", "-q", w.tree).CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	mounts := readFile(t, "/proc/self/mountinfo")
	for i := range 3 {
		// A number that stands in no other process' command line.
		mark := fmt.Sprintf("%d.%d", 7000+i, os.Getpid())
		cmd := w.command("run", "--", "/bin/sh", "-c", "setsid sleep "+mark+" & sleep "+mark+" & echo ready; trap '' TERM HUP; sleep "+mark)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q, %v", line, err)
		}
		within(t, 5*time.Second, "the sleeps run", func() bool { return len(withArgument(t, mark)) >= 3 })
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		within(t, time.Second, "all processes are gone", func() bool { return len(withArgument(t, mark)) == 0 })
		select {
		case <-a.ended:
		case <-time.After(time.Second):
			t.Error("the lease outlives its launcher")
		}
	}
	if now := readFile(t, "/proc/self/mountinfo"); now != mounts {
		t.Errorf("mounts changed from\n%s\nto\n%s", mounts, now)
	}
	if entries, _ := os.ReadDir(w.tree); len(entries) != 1 {
		t.Errorf("the folder holds %v, want .git alone", entries)
	}
	status, err := exec.Command("git", "-C", w.tree, "-c", "safe.directory=*", "status", "--porcelain", "--ignored").Output()
	if err != nil || len(status) > 0 {
		t.Errorf("git status: %v\n%s", err, status)
	}
	// A note that was held, and is not any more, is the next run's to remove.
	if left, _ := os.ReadDir(w.runs); len(left) > 2 {
		t.Errorf("the run directory holds %v", left)
	}
	if r := w.postern("run", "--", "true"); r.code != 0 {
		t.Errorf("the next run: %d %s", r.code, r.stderr)
	}
	if left, _ := os.ReadDir(w.runs); len(left) != 1 {
		t.Errorf("the run directory holds %v", left)
	}
}

// Killed at any moment of its start, too. What would be left has no argument yet to
// know it by; but it would hold our pipe, which then never ends.
func TestKilledWhileStarting(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range 60 {
		cmd := w.command("run", "--", "sleep", "1000")
		cmd.Stdout = out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 2 * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	_ = out.Close()
	if err := r.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(r); err != nil || len(text) > 0 {
		t.Errorf("something is left: %q, %v", text, err)
	}
}

// withArgument lists the processes of this host with that argument, or that started
// in that folder.
func withArgument(tb testing.TB, text string) []string {
	tb.Helper()
	var found []string
	entries, err := os.ReadDir("/proc")
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		args, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if slices.Contains(strings.Split(string(args), "\x00"), text) {
			found = append(found, e.Name()+" "+string(args))
		}
	}
	return found
}

func readFile(tb testing.TB, path string) string {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

// No secret stands where other users read.
func TestSecretsAreInNoCommandLine(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	const secret = "a-secret-that-was-passed"
	w.env = append(w.env, "MY_SECRET="+secret)
	cmd := w.command("run", "--env", "MY_SECRET", "--", "/bin/sh", "-c", "env | grep -c -e "+secret[:8]+" -e ghs_; sleep 0.3; true")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(stdout).ReadString('\n'); line != "3\n" {
		t.Errorf("the command has %q of three secrets", line)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		args, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if bytes.Contains(args, []byte(secret)) || bytes.Contains(args, []byte(readToken)) {
			t.Errorf("process %s: %q", e.Name(), args)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// The appliance is killed and comes back; the run notices a pause.
func TestApplianceRestarts(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	a.will(nil, func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, r.URL.Host+"\n") })
	cmd := w.command("run", "--id", "survivor", "--", "/bin/sh", "-c",
		"curl -sS http://one.example/; read go; curl -sS --max-time 30 http://two.example/; read go; curl -sS --max-time 30 http://three.example/; exit 4")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	next := func(want string) {
		t.Helper()
		if line, err := lines.ReadString('\n'); line != want+"\n" {
			t.Fatalf("got %q, %v; want %s", line, err, want)
		}
	}
	next("one.example")
	for i, name := range []string{"two.example", "three.example"} {
		a.crash()
		_, _ = io.WriteString(stdin, "\n")
		time.Sleep(200 * time.Millisecond) // the request waits at a listener nobody serves
		a.start()
		next(name)
		hellos := a.seen()
		if len(hellos) != i+2 {
			t.Fatalf("%d hellos", len(hellos))
		}
		h := hellos[i+1]
		if h.Spec.ID != "survivor" || h.Resume == nil || h.Resume.ReadToken != readToken || h.Resume.Born != "b1" {
			t.Errorf("hello %+v", h.Spec)
		}
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 4 {
		t.Errorf("status %d", code)
	}
	if text := stderr.String(); strings.Count(text, "the appliance is gone") != 2 || strings.Count(text, "the appliance is back") != 2 {
		t.Errorf("stderr %q", text)
	}
}
