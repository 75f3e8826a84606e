package sandbox

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestExitStatus(t *testing.T) {
	w := newWorld(t)
	for _, tc := range []struct {
		script string
		want   int
	}{
		{"exit 0", 0},
		{"exit 7", 7},
		{"exit 255", 255},
		{"kill -TERM $$", 128 + 15},
		{"kill -KILL $$", 128 + 9},
		{"kill -SEGV $$", 128 + 11},
		{"sleep 1000 & exit 3", 3}, // what is left behind ends with the command
	} {
		t.Run(tc.script, func(t *testing.T) {
			if out := script(t, w.profile(), tc.script); out.status.ExitCode() != tc.want {
				t.Errorf("status %d, want %d; stderr %q", out.status.ExitCode(), tc.want, out.stderr)
			}
		})
	}
}

func TestCommandsThatCannotRun(t *testing.T) {
	w := newWorld(t)
	write(t, w.tree+"/noexec", "#!/bin/sh\n")
	write(t, w.tree+"/bare", "exit 5\n")
	write(t, w.tree+"/badinterp", "#!/no/such/shell\n")
	must(t, os.Chmod(w.tree+"/bare", 0o755))
	must(t, os.Chmod(w.tree+"/badinterp", 0o755))
	for _, tc := range []struct {
		name string
		argv []string
		want int
	}{
		{"no such program", []string{"no-such-program"}, 127},
		{"no such path", []string{"/no/such/program"}, 127},
		{"no interpreter", []string{"./badinterp"}, 127},
		{"not executable", []string{"./noexec"}, 126},
		{"a directory", []string{"/usr"}, 126},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := trySandboxed(t, w.profile(), tc.argv...)
			e, ok := err.(*ExecError) //nolint:errorlint // it is returned as it is
			if !ok || e.Code != tc.want {
				t.Errorf("got %v, want an exec error with %d", err, tc.want)
			}
		})
	}
	t.Run("a script without interpreter line goes to the shell", func(t *testing.T) {
		if out := sandboxed(t, w.profile(), "./bare"); out.status.Code != 5 {
			t.Errorf("status %+v", out.status)
		}
	})
	t.Run("more arguments than the kernel takes", func(t *testing.T) {
		_, err := trySandboxed(t, w.profile(), "/bin/true", strings.Repeat("x", 200<<10))
		if e, ok := err.(*ExecError); !ok || e.Code != 126 || !strings.Contains(e.Detail, "argument list too long") { //nolint:errorlint // as above
			t.Errorf("got %v", err)
		}
	})
}

// The view: what is there, what is not, and what can be written.
func TestView(t *testing.T) {
	w := newWorld(t)
	write(t, w.tree+"/file", "mine\n")
	write(t, filepath.Join(w.home, ".bashrc"), "user's\n")
	for _, tc := range []struct {
		name, script, want string
		code               int
	}{
		{"works where it should", "pwd; cat file; echo x > new; cat new", w.tree + "\nmine\nx\n", 0},
		{"the home is empty", "ls -A " + w.home, "tree\n", 0},
		{"the home can be written", "echo x > $HOME/f && cat $HOME/f", "x\n", 0},
		{"no keys", "cat " + w.home + "/.ssh/id_ed25519 2>/dev/null", "", 1},
		{"no sibling", "ls " + w.sibling + " 2>/dev/null", "", 2},
		{"no run directory", "ls " + w.run + " 2>/dev/null", "", 2},
		{"the root cannot be written", "touch /x 2>/dev/null || echo no", "no\n", 0},
		{"the system cannot be written", "touch /usr/x /etc/x /bin/x 2>/dev/null || echo no", "no\n", 0},
		{"no password hashes", "cat /etc/shadow 2>/dev/null", "", 1},
		{"no host keys", "ls /etc/ssh/ssh_host* 2>/dev/null", "", 2},
		{"certificates", "test -e /etc/ssl/certs || test -e /etc/pki", "", 0},
		{"/tmp is its own and empty but for what leads to the tree", "ls -A /tmp | grep -v -e ^Test -e ^nobody; touch /tmp/x && stat -c %a /tmp", "1777\n", 0},
		{"/var/tmp is /tmp", "touch /tmp/y && ls /var/tmp/y", "/var/tmp/y\n", 0},
		{"/run holds what is ours", "ls /run", "postern\nuser\n", 0},
		{"nothing of ours can be replaced", "touch /run/postern/empty/pre-commit 2>/dev/null || rm /run/postern/postern 2>/dev/null || echo no", "no\n", 0},
		{"the runtime directory", "stat -c %a /run/user/$(id -u)", "700\n", 0},
		{"temporary files", "mktemp -d >/dev/null && echo ok", "ok\n", 0},
		{"no devices", "ls /dev/kvm /dev/fuse /dev/mem /dev/vda 2>/dev/null", "", 2},
		{"the user has a name", "whoami >/dev/null && echo ok", "ok\n", 0},
		{"a host name that says nothing", "hostname 2>/dev/null || cat /proc/sys/kernel/hostname", "postern\n", 0},
		{"no other processes", "ls /proc | grep -c '^[0-9]*$' | { read n; test $n -lt 8 && echo few; }", "few\n", 0},
		{"no capabilities", "grep -c 'Cap\\(Inh\\|Prm\\|Eff\\|Bnd\\|Amb\\):.0*$' /proc/self/status", "5\n", 0},
		{"no new privileges, one filter", "grep -E 'NoNewPrivs|Seccomp:' /proc/self/status | tr -d '\\n\\t '", "NoNewPrivs:1Seccomp:2", 0},
		{"kernel settings cannot be written", "echo x > /proc/sys/kernel/core_pattern 2>/dev/null || echo no", "no\n", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := script(t, w.profile(), tc.script)
			if out.stdout != tc.want || out.status.ExitCode() != tc.code {
				t.Errorf("got %q and %d, want %q and %d; stderr %q", out.stdout, out.status.ExitCode(), tc.want, tc.code, out.stderr)
			}
		})
	}
	if got := read(t, filepath.Join(w.home, ".bashrc")); got != "user's\n" {
		t.Errorf("the user's .bashrc is now %q", got)
	}
}

// No write, rename, replacement or way round plants a hook.
func TestHooksCannotBePlanted(t *testing.T) {
	w := newWorld(t)
	repository(t, w.tree)
	write(t, w.tree+"/.npmrc", "registry=x\n")
	write(t, w.tree+"/.vscode/tasks.json", "{}\n")
	write(t, w.tree+"/sub/deep/.envrc", "export A=1\n")
	write(t, w.tree+"/.git/hooks/pre-commit.sample", "sample\n")
	self := InnerExe + " " + attackCommand
	before := snapshot(t, w.tree)
	for _, attempt := range lines(`
		echo evil > .git/hooks/pre-commit
		cp /bin/true .git/hooks/post-checkout
		ln -s /bin/true .git/hooks/pre-push
		rm .git/hooks/pre-commit.sample
		rm -r .git/hooks
		mv .git/hooks .git/hooks2
		mv .git/hooks /tmp/h
		mkdir h && %[1]s exchange h .git/hooks
		mv .git .git2
		mv .git /tmp/g
		%[1]s exchange .git sub
		echo '[core] hooksPath = x' >> .git/config
		git config core.hooksPath x
		rm .git/config
		mv .git/config .git/config2
		echo x > .git/c && mv .git/c .git/config
		ln -f .git/config /tmp/c && echo x > /tmp/c
		ln -f .git/config hard && echo x > hard
		chmod 777 .git/config
		chmod 777 .git/hooks
		touch -d 2000-01-01 .git/config
		truncate -s 0 .npmrc
		sed -i s/x/y/ .npmrc
		rm -rf .vscode
		mv .vscode v
		echo x > .vscode/new.json
		mv sub sub2
		mv sub/deep sub/deep2
		echo x > sub/deep/.envrc
		echo x > /proc/self/cwd/.git/hooks/pre-commit
		echo x > /proc/1/root%[2]s/.git/config
		%[1]s remount %[2]s/.git/hooks
		%[1]s umount %[2]s/.git/hooks
		cd .git && echo x > hooks/../hooks/x
		cd .git/hooks && echo x > x
		(cd sub/deep; mv ../../.git ../../.git3)
		mv %[2]s %[2]s2`, self, w.tree) {
		attempt = strings.TrimSpace(attempt)
		t.Run(attempt, func(t *testing.T) {
			out := script(t, w.profile(), attempt)
			_ = os.RemoveAll(w.tree + "/h")
			after := snapshot(t, w.tree)
			for _, path := range []string{".git/hooks/", ".git/config", ".npmrc", ".vscode/", "sub/deep/.envrc"} {
				if got, want := under(after, path), under(before, path); got != want {
					t.Fatalf("%s changed from\n%s\nto\n%s\nstdout %s stderr %s", path, want, got, out.stdout, out.stderr)
				}
			}
		})
	}
}

// snapshot is every file below dir with its content and mode, one a line.
func snapshot(tb testing.TB, dir string) []string {
	tb.Helper()
	var out []string
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		line := fmt.Sprintf("%s %s %d", rel, info.Mode(), info.ModTime().UnixNano())
		switch {
		case info.IsDir():
			line = fmt.Sprintf("%s/ %s", rel, info.Mode())
		case info.Mode().IsRegular():
			line += fmt.Sprintf(" %q", read(tb, path))
		}
		out = append(out, line)
		return nil
	})
	must(tb, err)
	slices.Sort(out)
	return out
}

func under(snapshot []string, prefix string) string {
	var out []string
	for _, line := range snapshot {
		if strings.HasPrefix(line, prefix) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// Nothing that was not there is there afterwards.
func TestNoGhosts(t *testing.T) {
	w := newWorld(t)
	repository(t, w.tree)
	p := w.profile()
	p.Protected = []string{w.tree + "/none", w.tree + "/a/b/none"}
	p.Hidden = []string{w.tree + "/hidden", w.home + "/nothing"}
	out := script(t, p, `git status --porcelain; echo new > new; git add -A && git status --porcelain && git -c user.name=a -c user.email=a@b commit -q -m two && git log --format=%s`)
	if out.stdout != "A  new\ntwo\none\n" || out.status.Code != 0 {
		t.Errorf("got %q and %d; stderr %s", out.stdout, out.status.Code, out.stderr)
	}
	if got := git(t, w.tree, "status", "--porcelain"); got != "" {
		t.Errorf("git status on the host:\n%s", got)
	}
	if entries, _ := filepath.Glob(w.run + "/.*"); len(entries) > 0 {
		t.Errorf("left in the run directory: %q", entries)
	}
}

func TestGitWorks(t *testing.T) {
	w := newWorld(t)
	repository(t, w.tree)
	for _, tc := range []struct{ name, script string }{
		{"commit", "echo 1 >> file && git commit -q -am more"},
		{"branch and switch", "git switch -q -c agent/x && git switch -q main && git branch -D agent/x"},
		{"stash", "echo 2 >> file && git stash -q && git stash pop -q && git checkout -q file"},
		{"gc", "git gc -q --prune=now"},
		{"tag, log, diff", "git tag v1 && git log -1 >/dev/null && git diff HEAD"},
		{"init inside", "git init -q sub && cd sub && echo x > f && git add f && git commit -q -m sub && cd .. && rm -rf sub"},
		{"clone inside", "git clone -q . /tmp/clone && cd /tmp/clone && git commit -q --allow-empty -m c && git push -q origin HEAD:refs/heads/pushed"},
		{"worktree", "git worktree add -q -b wt ../wt 2>/dev/null || git worktree add -q -b wt2 /tmp/wt"},
		{"rebase", "git switch -q -c r && git commit -q --allow-empty -m r && git rebase -q main && git switch -q main"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			identity := "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; "
			if out := script(t, w.profile(), identity+tc.script); out.status.ExitCode() != 0 {
				t.Errorf("status %d: %s%s", out.status.ExitCode(), out.stdout, out.stderr)
			}
		})
	}
}

func TestHidden(t *testing.T) {
	w := newWorld(t)
	write(t, w.tree+"/secret/key", "k")
	write(t, w.tree+"/token", "t")
	p := w.profile()
	p.Hidden = []string{w.tree + "/secret", w.tree + "/token"}
	out := script(t, p, `for a in "ls secret" "cat secret/key" "cat token" "touch secret/new" "rmdir secret" "rm token" "mv secret s" "mv token s" "chmod 700 secret"; do $a >/dev/null 2>&1 && echo "$a works"; done; true`)
	// As its owner the run may read an empty directory whose mode forbids it if it
	// is root; there is nothing in it.
	if got := strings.ReplaceAll(out.stdout, "ls secret works\n", ""); got != "" {
		t.Errorf("%s", got)
	}
	if read(t, w.tree+"/secret/key") != "k" || read(t, w.tree+"/token") != "t" {
		t.Error("a hidden file changed")
	}
}

func TestAttacks(t *testing.T) {
	w := newWorld(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	abstract := "postern-test-" + strconv.Itoa(os.Getpid())
	un, err := net.Listen("unix", "@"+abstract)
	must(t, err)
	defer un.Close()
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"a loopback listener of the host", []string{"connect", ln.Addr().String()}, "ECONNREFUSED"},
		{"an address of the world", []string{"connect", "192.0.2.1:80"}, "ENETUNREACH"},
		{"an abstract socket of the host", []string{"abstract", abstract}, "EAFNOSUPPORT"},
		{"AF_VSOCK", []string{"socket", strconv.Itoa(unix.AF_VSOCK)}, "EAFNOSUPPORT"},
		{"AF_PACKET", []string{"socket", strconv.Itoa(unix.AF_PACKET)}, "EAFNOSUPPORT"},
		{"AF_ALG", []string{"socket", strconv.Itoa(unix.AF_ALG)}, "EAFNOSUPPORT"},
		{"AF_UNIX", []string{"socket", strconv.Itoa(unix.AF_UNIX)}, "EAFNOSUPPORT"},
		{"a connected pair stays", []string{"pair", strconv.Itoa(unix.SOCK_STREAM)}, "ok"},
		{"a pair that could be connected elsewhere", []string{"pair", strconv.Itoa(unix.SOCK_DGRAM)}, "EAFNOSUPPORT"},
		{"AF_INET6 stays", []string{"socket", strconv.Itoa(unix.AF_INET6)}, "ok"},
		{"io_uring_setup", []string{"syscall", strconv.Itoa(unix.SYS_IO_URING_SETUP)}, "ENOSYS"},
		{"keyctl", []string{"syscall", strconv.Itoa(unix.SYS_KEYCTL)}, "ENOSYS"},
		{"bpf", []string{"syscall", strconv.Itoa(unix.SYS_BPF)}, "EPERM"},
		{"userfaultfd", []string{"syscall", strconv.Itoa(unix.SYS_USERFAULTFD)}, "EPERM"},
		{"perf_event_open", []string{"syscall", strconv.Itoa(unix.SYS_PERF_EVENT_OPEN)}, "EPERM"},
		{"the caller's terminal", []string{"tiocsti", "caller"}, "ENXIO"},
		{"typing into any terminal", []string{"tiocsti", "own"}, "EPERM"},
		{"a user namespace", []string{"userns"}, "EPERM"},
		{"tracing PID 1", []string{"ptrace", "1"}, "EPERM"},
		{"a descriptor of PID 1", []string{"steal"}, "EPERM"},
		{"memory of PID 1", []string{"open", "/proc/1/mem"}, "EACCES"},
		{"environment of PID 1", []string{"open", "/proc/1/environ"}, "EACCES"},
		{"TERM to PID 1", []string{"kill", "15"}, "ok"}, // it is taken, and ignored
		{"INT to PID 1", []string{"kill", "2"}, "ok"},
		{"QUIT to PID 1", []string{"kill", "3"}, "ok"},
		{"KILL to PID 1", []string{"kill", "9"}, "ok"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := sandboxed(t, w.profile(), append([]string{InnerExe, attackCommand}, tc.args...)...)
			if got := strings.TrimSpace(out.stdout); got != tc.want {
				t.Errorf("got %q, want %q; status %d, stderr %s", got, tc.want, out.status.ExitCode(), out.stderr)
			}
		})
	}
}

func TestNestedSandboxSwitch(t *testing.T) {
	w := newWorld(t)
	p := w.profile()
	p.NestedSandbox = true
	if out := sandboxed(t, p, InnerExe, attackCommand, "userns"); out.stdout != "ok\n" {
		t.Errorf("got %q", out.stdout)
	}
}

// Only the three standard descriptors reach the command, whatever the launcher and
// its own caller had open.
func TestInheritedDescriptors(t *testing.T) {
	w := newWorld(t)
	stray, err := os.Open(w.home)
	must(t, err)
	defer stray.Close()
	_, err = unix.FcntlInt(stray.Fd(), unix.F_SETFD, 0)
	must(t, err)
	out := sandboxed(t, w.profile(), InnerExe, attackCommand, "fds")
	for _, line := range lines("%s", out.stdout) {
		fd, to, _ := strings.Cut(line, " ")
		// Its own: the directory it was reading, and the runtime's poller.
		if n, err := strconv.Atoi(fd); err == nil && n > 2 && to != "" && !strings.HasPrefix(to, "/proc/") && !strings.HasPrefix(to, "anon_inode:") {
			t.Errorf("descriptor %s", line)
		}
	}
}

// A world that changed between the look and the mount is not the one to run in.
func TestChangedViewIsRefused(t *testing.T) {
	w := newWorld(t)
	write(t, w.tree+"/.npmrc", "x")
	for _, tc := range []struct {
		name   string
		change func(f *Facts)
	}{
		{"the folder was replaced", func(*Facts) {
			must(t, os.Rename(w.tree, w.tree+".old"))
			must(t, os.Mkdir(w.tree, 0o700))
			write(t, w.tree+"/.npmrc", "y")
		}},
		{"a protected file was replaced", func(*Facts) {
			write(t, w.tree+"/other", "y") // while the first is there: it cannot have its inode
			must(t, os.Rename(w.tree+"/other", w.tree+"/.npmrc"))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			needBwrap(t)
			f := gather(t, w.profile())
			tc.change(f)
			p, err := Start(t.Context(), f, Options{Stdin: devNull(t), Stdout: capture(t), Stderr: capture(t)})
			must(t, err)
			defer p.Close()
			refusal(t, p.Exec(Command{Argv: []string{"/bin/true"}}), ReasonChanged)
		})
	}
}

// The listeners are the sandbox's, in its network, and here.
func TestLentPair(t *testing.T) {
	w := newWorld(t)
	needBwrap(t)
	stdout := capture(t)
	p, err := Start(t.Context(), gather(t, w.profile()), Options{Stdin: devNull(t), Stdout: stdout, Stderr: capture(t)})
	must(t, err)
	defer p.Close()
	pair := p.Pair()
	if http, socks := pair.HTTP.Addr().String(), pair.SOCKS.Addr().String(); http != "127.0.0.1:3128" || socks != "127.0.0.1:1080" {
		t.Fatalf("listening on %s and %s", http, socks)
	}
	for i, ln := range []*net.TCPListener{pair.HTTP, pair.SOCKS} {
		go func() {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "hello from %d\n", i)
			_ = c.Close()
		}()
	}
	must(t, p.Exec(Command{Argv: []string{"/bin/bash", "-c", "cat < /dev/tcp/127.0.0.1/3128; cat < /dev/tcp/127.0.0.1/1080"}, Env: []string{"PATH=/usr/bin:/bin"}}))
	status, err := p.Wait()
	must(t, err)
	if got := slurp(t, stdout); got != "hello from 0\nhello from 1\n" || status.ExitCode() != 0 {
		t.Errorf("got %q, status %d", got, status.ExitCode())
	}
	// The host has nobody there.
	if c, err := net.DialTimeout("tcp", "127.0.0.1:3128", time.Second); err == nil {
		_ = c.Close()
		t.Log("port 3128 of the host answers; that is somebody else's")
	}
}

func TestGitConfigIsReadOnlyAndNameless(t *testing.T) {
	w := newWorld(t)
	needBwrap(t)
	stdout := capture(t)
	p, err := Start(t.Context(), gather(t, w.profile()), Options{Stdin: devNull(t), Stdout: stdout, Stderr: capture(t)})
	must(t, err)
	defer p.Close()
	if names, _ := filepath.Glob(w.run + "/.git*"); len(names) != 0 {
		t.Errorf("the file has a name: %q", names)
	}
	must(t, p.SetGitConfig("[user]\n\tname = \"first and longer\"\n"))
	must(t, p.SetGitConfig("[user]\n\tname = second\n"))
	must(t, p.Exec(Command{Argv: []string{"/bin/sh", "-c", "git config --system user.name; cat /etc/gitconfig | wc -l; echo x >> /run/postern/gitconfig || echo no; chmod 666 /run/postern/gitconfig || echo no"}, Env: []string{"PATH=/usr/bin:/bin", "HOME=" + p.Facts().Home}}))
	_, err = p.Wait()
	must(t, err)
	if got := slurp(t, stdout); got != "second\n2\nno\nno\n" {
		t.Errorf("got %q", got)
	}
}
