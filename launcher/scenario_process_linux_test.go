package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// staleSocket leaves the file of a socket at which nobody listens.
func staleSocket(tb testing.TB, path string) {
	tb.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		tb.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	_ = ln.Close()
}

// processScenarios are about processes, descriptors and statuses.
func processScenarios() []scenario {
	return []scenario{
		{name: "56_status", script: "exit 7", code: 7},
		{name: "56_status_of_a_signal", script: "kill -TERM $$", code: 143},
		{name: "56_status_of_kill", script: "kill -KILL $$", code: 137},
		{name: "56_status_of_segv", script: "ulimit -c 0; kill -SEGV $$", code: 139},
		{name: "56_status_of_int", script: "kill -INT $$", code: 130},
		{name: "56_status_not_found", script: "no-such-program", code: 127},
		{name: "58_socketpair", script: `python3 -c 'import socket; a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1).decode())'`, want: "x\n"},
		{name: "58_multiprocessing", script: `python3 -c '
import multiprocessing as m
def f(q): q.put(42)
if __name__ == "__main__":
    c = m.get_context("fork"); q = c.Queue(); p = c.Process(target=f, args=(q,)); p.start(); print(q.get()); p.join()'`, want: "42\n"},
		{name: "58_unix_sockets_refused", script: `python3 -c 'import socket; socket.socket(socket.AF_UNIX)' 2>&1 | tail -1 | cut -d: -f1`, want: "OSError\n"},
		{name: "nested_user_namespaces", script: "unshare -U true || bwrap --unshare-all --ro-bind / / true || echo refused", want: "refused\n"},
		{
			name: "inherited_descriptors", prep: func(s *stage) { s.write("secret", "key\n", 0o600) },
			script: `ls /proc/self/fd | sort -n | tr '\n' ' '`, want: "0 1 2 3 ", // 3 is ls reading the directory
		},
		{name: "no_capabilities", script: "grep -h '^Cap[EPIB]' /proc/self/status | tr -d '\\t' | sort -u | cut -d: -f2 | sort -u", want: "0000000000000000\n"},
		{name: "kernel_files", script: "for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/sys/kernel/hostname /proc/sys/vm/drop_caches; do echo x > $f && echo \"$f written\"; done 2>/dev/null; head -c 1 /proc/kcore >/dev/null 2>&1 && echo kcore read; true"},
	}
}

// TestScenario_inherited is the other half of inherited_descriptors: what the launcher
// was given beyond the standard ones reaches nobody.
func TestScenario_inherited(t *testing.T) {
	s := &stage{newWorld(t), t}
	newAppliance(t, s.runs)
	secret, err := os.Open(s.write("secret", "key\n", 0o600))
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	cmd := s.command("run", "--", "/bin/sh", "-c", "cat <&3; cat <&4; ls /proc/self/fd | wc -l")
	cmd.ExtraFiles = []*os.File{secret, secret}
	out, err := cmd.Output()
	if err != nil || string(out) != "4\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

// TestScenario_streams: twenty million bytes out and three in, intact, by pipes and by
// files.
func TestScenario_streams(t *testing.T) {
	s := &stage{newWorld(t), t}
	newAppliance(t, s.runs)
	in := bytes.Repeat([]byte("0123456789abcdef\n"), 3_000_000/17)
	cmd := s.command("run", "--", "/bin/sh", "-c", "sha256sum; head -c 20000000 /dev/zero; echo end")
	cmd.Stdin = bytes.NewReader(in)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%x  -\n", sha256.Sum256(in))
	got := out.String()
	if !strings.HasPrefix(got, want) || len(got) != len(want)+20_000_000+4 || !strings.HasSuffix(got, "\x00end\n") {
		t.Errorf("%d bytes, beginning %q", len(got), got[:min(len(got), 80)])
	}
}

// TestScenario_31_kill: a launcher that is killed leaves no process and no mount, and no
// file that the next run does not remove.
func TestScenario_31_kill(t *testing.T) {
	s := &stage{newWorld(t), t}
	newAppliance(t, s.runs)
	s.repository("tree")
	s.write("tree/.env", "A=1\n", 0o644)
	before := strings.Join(s.names(), "\n")
	for i := range 3 {
		mark := fmt.Sprintf("%d.%d", 9100+i, os.Getpid())
		cmd := s.command("run", "--hide", "**/*.pem", "--", "/bin/sh", "-c", "echo ready; exec sleep "+mark)
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
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		within(t, 5*time.Second, "all processes are gone", func() bool { return len(withArgument(t, mark)) == 0 })
		if got := s.git("tree", "status", "--porcelain"); got != "?? .env\n" {
			t.Errorf("status: %q", got)
		}
		s.git("tree", "add", "-A", "--dry-run")
	}
	if got := s.script("git status --porcelain"); got.code != 0 || got.stdout != "?? .env\n" {
		t.Errorf("the next run: %+v", got)
	}
	if now := strings.Join(s.names(), "\n"); now != before {
		t.Errorf("left:\n%s\nbefore:\n%s", now, before)
	}
	if entries, _ := os.ReadDir(s.runs); len(entries) != 1 {
		t.Errorf("left in the run directory: %v", entries)
	}
}

// TestScenario_32_two_runs: in one folder, one that ends while the other starts does
// neither harm, fifty times.
func TestScenario_32_two_runs(t *testing.T) {
	s := &stage{newWorld(t), t}
	newAppliance(t, s.runs)
	s.repository("tree")
	s.write("tree/.env", "A=1\n", 0o644)
	s.write("tree/k.pem", "key\n", 0o644)
	const rounds = 50
	var both sync.WaitGroup
	for _, who := range []string{"a", "b"} {
		both.Go(func() {
			for i := range rounds {
				cmd := s.command("run", "-q", "--hide", "**/*.pem", "--", "/bin/sh", "-c",
					"git status --porcelain >/dev/null && echo "+who+" > "+who+" && ! cat k.pem && ! echo evil > .env && ! echo evil > .git/config && echo ok")
				out, err := cmd.Output()
				if err != nil || string(out) != "ok\n" {
					var stderr []byte
					if e, ok := errors.AsType[*exec.ExitError](err); ok {
						stderr = e.Stderr
					}
					t.Errorf("%s, round %d: %q, %v, %s", who, i, out, err, stderr)
					return
				}
			}
		})
	}
	both.Wait()
	if got := s.git("tree", "status", "--porcelain"); got != "?? .env\n?? a\n?? b\n?? k.pem\n" {
		t.Errorf("status: %q", got)
	}
	if left, _ := filepath.Glob(s.runs + "/.*"); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// TestScenario_32_other_terms: two runs in one folder that must not see it alike are not
// on at once.
func TestScenario_32_other_terms(t *testing.T) {
	s := &stage{newWorld(t), t}
	newAppliance(t, s.runs)
	secret := s.write("tree/secret", "key\n", 0o644)
	cmd := s.command("run", "--id", "the-first", "--hide", secret, "--", "/bin/sh", "-c", "echo ready; read x; cat secret; true")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	got := s.script("mv secret moved")
	if got.code != exitRefused || !strings.Contains(got.stderr, "the run the-first is on") || !strings.Contains(got.stderr, "[folder_shared]") {
		t.Errorf("the second: %+v", got)
	}
	if got := s.script("echo beside", "--hide", secret); got.code != 0 || got.stdout != "beside\n" {
		t.Errorf("on the same terms: %+v", got)
	}
	_, _ = in.Write([]byte("\n"))
	if rest, _ := lines.ReadString('\n'); rest != "" {
		t.Errorf("the first read %q", rest)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if got := s.script("cat secret"); got.stdout != "key\n" {
		t.Errorf("after its end: %+v", got)
	}
}
