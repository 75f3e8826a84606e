package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inTerminal runs a shell script with the profile for terminals.
func inTerminal(t *testing.T, p *Terminal, text string) string {
	t.Helper()
	needBwrap(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	facts, err := GatherTerminal(p)
	if err != nil {
		t.Fatal(err)
	}
	out := capture(t)
	proc, err := Start(ctx, facts, Options{Stdin: devNull(t), Stdout: out, Stderr: out, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, proc.Kill)
	defer stop()
	if proc.Pair().HTTP != nil || proc.Pair().SOCKS != nil {
		t.Error("a terminal has listeners")
	}
	if err := proc.Exec(Command{Argv: []string{"/bin/sh", "-c", text}, Env: []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "HOME=" + facts.Home}}); err != nil {
		proc.Close()
		t.Fatal(err)
	}
	if _, err := proc.Wait(); err != nil {
		t.Fatal(err)
	}
	return slurp(t, out)
}

// SPEC 52, really: what can be read and written, and that nothing gets around it.
func TestTerminalReal(t *testing.T) {
	home := tempDir(t)
	cwd := tempDir(t)
	for _, name := range []string{".ssh/id", ".aws/credentials", ".gnupg/key", ".config/gh/hosts.yml", "Library/Keychains/k", ".kube/config", ".config/other", "run/control.sock"} {
		write(t, filepath.Join(home, name), "content of "+name+"\n")
	}
	text := inTerminal(t, &Terminal{Home: home, Dir: cwd, RunDir: filepath.Join(home, "run")}, `
		cd "$HOME"
		for f in .ssh/id .aws/credentials .gnupg/key .config/gh/hosts.yml Library/Keychains/k run/control.sock; do
			cat $f && echo READ $f; ls $(dirname $f) && echo LISTED $f; echo x >$f && echo WROTE $f
			mv $(dirname $f) moved && echo MOVED $f
		done 2>/dev/null
		mv .config moved && echo MOVED; mv Library moved && echo MOVED; rm -rf .ssh .aws && echo REMOVED
		for p in /proc/[0-9]*; do cat $p/root$HOME/.ssh/id && echo AROUND $p; done
		cat .kube/config .config/other
		echo new >new && echo home written; cd - >/dev/null; echo new >new && echo cwd written; pwd
		for f in /usr /etc /var /opt /; do touch $f/postern-test && echo WROTE $f; done
		grep -q root /etc/passwd && echo host read
		touch /tmp/x "$(echo /run/user/*)/x" && echo own tmp
		ls /proc | grep -c '^[0-9]'; grep CapEff /proc/self/status; hostname
		exec 2>&1; umount /run; mount -t tmpfs t "$HOME/.ssh"; true`)
	for _, bad := range []string{"READ", "LISTED", "WROTE", "MOVED", "REMOVED", "AROUND", "content of .ssh"} {
		if strings.Contains(text, bad) {
			t.Errorf("%s:\n%s", bad, text)
		}
	}
	hostname, _ := os.Hostname()
	for _, good := range []string{"content of .kube/config", "content of .config/other", "home written", "cwd written", cwd, "host read", "own tmp", "CapEff:\t0000000000000000", hostname} {
		if !strings.Contains(text, good) {
			t.Errorf("no %q:\n%s", good, text)
		}
	}
	for _, path := range []string{filepath.Join(home, "new"), filepath.Join(cwd, "new")} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{".ssh/id", ".aws/credentials"} {
		if got := read(t, filepath.Join(home, name)); got != "content of "+name+"\n" {
			t.Errorf("%s holds %q", name, got)
		}
	}
}

// The network is the host's; its Unix sockets are not.
func TestTerminalNetwork(t *testing.T) {
	home := tempDir(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("hello from the host\n"))
			_ = c.Close()
		}
	}()
	sock, err := net.Listen("unix", filepath.Join(home, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	abstract, err := net.Listen("unix", "@postern-"+filepath.Base(home)+t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	self := InnerExe + " " + attackCommand
	text := inTerminal(t, &Terminal{Home: home, Dir: home}, strings.Join([]string{
		self + " connect " + ln.Addr().String(), self + " dial " + sock.Addr().String(), self + " dial " + abstract.Addr().String(),
	}, "\n"))
	if got := strings.Fields(text); len(got) != 3 || got[0] != "ok" || got[1] != "EAFNOSUPPORT" || got[2] != "EAFNOSUPPORT" {
		t.Errorf("got %q", text)
	}
}

// A secret that is mounted elsewhere as well is hidden there, too. The mounts are made in
// a namespace of the test's own, by a second run of it. There bubblewrap belongs to
// nobody unless root runs the test, and no sandbox starts; what it would be made of can
// still be looked at.
func TestTerminalSecondMount(t *testing.T) {
	const inside = "POSTERN_TEST_MOUNTS"
	dir := os.Getenv(inside)
	if dir == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestTerminalSecondMount$", "-test.v")
		cmd.Path, _ = os.Executable()
		cmd.Env = append(os.Environ(), inside+"="+tempDir(t))
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	home, second, part := filepath.Join(dir, "home"), filepath.Join(dir, "second"), filepath.Join(dir, "part")
	write(t, filepath.Join(home, ".ssh/keys/id"), "the secret\n")
	write(t, filepath.Join(home, "open"), "not secret\n")
	for at, of := range map[string]string{second: home, part: filepath.Join(home, ".ssh/keys")} {
		if err := errors.Join(os.Mkdir(at, 0o700), unix.Mount(of, at, "", unix.MS_BIND, "")); err != nil {
			t.Fatal(err)
		}
	}
	facts, err := GatherTerminal(&Terminal{Home: home, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(home, ".ssh"), filepath.Join(second, ".ssh"), part} {
		if !slices.ContainsFunc(facts.Denials, func(d Denial) bool { return d.Path == path && d.Kind == Hide }) {
			t.Errorf("%s is not hidden: %v", path, facts.Denials)
		}
	}
	if _, err := FindBwrap(nil); err != nil {
		return
	}
	// In a folder that is no tree of the terminal's own.
	text := inTerminal(t, &Terminal{Home: home, Dir: dir}, fmt.Sprintf("cat %s/open; cat %[1]s/.ssh/keys/id %s/id %s/.ssh/keys/id", second, part, home))
	if !strings.Contains(text, "not secret") || strings.Contains(text, "the secret") {
		t.Error(text)
	}
}
