package sandbox

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// The statements of the specification about what a run under bubblewrap sees and may
// write, each in a real one. Those about names are in TestProtectedNames, those about
// every spelling in TestWishesAreKept.

func TestSPEC44OnlyBoundPathsAreVisible(t *testing.T) {
	w := newWorld(t)
	write(t, w.tree+"/f", "mine\n")
	write(t, w.home+"/notes", "mine too\n")
	out := script(t, w.profile(), fmt.Sprintf(`cat f; for p in %s %s/notes %s/.ssh %s /opt /srv /root /var/lib /home/dev; do test -e $p && echo "$p is there"; done; ls -A %s`, w.sibling, w.home, w.home, w.run, w.home))
	// The home is there for the folder in it, and holds nothing else.
	if want := "mine\ntree\n"; out.stdout != want {
		t.Errorf("got %q, want %q; stderr %s", out.stdout, want, out.stderr)
	}
}

func TestSPEC45And46OnlyTheLentListeners(t *testing.T) {
	w := newWorld(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	must(t, err)
	out := sandboxed(t, w.profile(), "/bin/bash", "-c", `(exec 3<>/dev/tcp/127.0.0.1/`+port+`) 2>/dev/null && echo host reached
		(exec 3<>/dev/tcp/127.0.0.1/3128) 2>/dev/null && echo proxy; (exec 3<>/dev/tcp/127.0.0.1/1080) 2>/dev/null && echo socks; ls /sys/class/net 2>/dev/null || grep -c : /proc/net/dev`)
	if out.stdout != "proxy\nsocks\n1\n" {
		t.Errorf("got %q; stderr %s", out.stdout, out.stderr)
	}
}

func TestSPEC47ProcessesOfTheHost(t *testing.T) {
	w := newWorld(t)
	sleep := exec.Command("sleep", "60")
	must(t, sleep.Start())
	defer func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }()
	out := script(t, w.profile(), fmt.Sprintf("kill -KILL %d 2>/dev/null && echo killed; test -e /proc/%[1]d && cat /proc/%[1]d/cmdline; grep -l sleep /proc/[0-9]*/comm; true", sleep.Process.Pid))
	if out.stdout != "" {
		t.Errorf("got %q", out.stdout)
	}
	must(t, sleep.Process.Signal(syscall.Signal(0)))
}

func TestSPEC49NewNamesAreOnlyTold(t *testing.T) {
	w := newWorld(t)
	write(t, w.tree+"/old.pem", "key")
	p := w.profile()
	p.HiddenGlobs = []string{"**/*.pem"}
	out := script(t, p, "cat old.pem || echo hidden; echo mine > new.pem && cat new.pem; echo A=1 > .env && echo made")
	if out.stdout != "hidden\nmine\nmade\n" {
		t.Errorf("got %q", out.stdout)
	}
	if changes := out.facts.Inspect(); len(changes) != 1 || changes[0].Path != w.tree+"/.env" {
		t.Errorf("told %v", changes)
	}
	p.NameGlobs = rulesOf("**/.env", "**/*.key")
	must(t, os.Remove(w.tree+"/.env"))
	out = script(t, p, "echo A=1 > .env || echo no; echo mine > sub.key || echo no; echo mine > new.key.txt && cat new.key.txt")
	if out.stdout != "no\nno\nmine\n" || exists(w.tree+"/.env") || exists(w.tree+"/sub.key") {
		t.Errorf("got %q, %s", out.stdout, out.stderr)
	}
}

func TestSPEC50ProgramsOfTheFolderRun(t *testing.T) {
	w := newWorld(t)
	write(t, w.tree+"/bin/tool", "#!/bin/sh\necho ran\n")
	must(t, os.Chmod(w.tree+"/bin/tool", 0o755))
	p := w.profile()
	before := planText(Plan(gather(t, p)))
	p.Mac.ExecGrants = []string{w.tree + "/bin"}
	if got := planText(Plan(gather(t, p))); got != before {
		t.Errorf("the grants change the mounts:\n%s", got)
	}
	if out := script(t, p, "bin/tool; cp bin/tool $HOME/tool && $HOME/tool"); out.stdout != "ran\nran\n" {
		t.Errorf("got %q; stderr %s", out.stdout, out.stderr)
	}
}

func TestSPEC76WhereACommandStarts(t *testing.T) {
	needBwrap(t)
	w := newWorld(t)
	must(t, os.MkdirAll(w.tree+"/a/b", 0o755))
	for _, tc := range []struct{ dir, exec, want string }{
		{"", "", w.tree}, {w.tree + "/a", "", w.tree + "/a"}, {w.tree + "/a", w.tree + "/a/b", w.tree + "/a/b"},
	} {
		p := w.profile()
		p.Dir = tc.dir
		stdout := capture(t)
		proc, err := Start(t.Context(), gather(t, p), Options{Stdin: devNull(t), Stdout: stdout, Stderr: capture(t), Timeout: 30 * time.Second})
		must(t, err)
		must(t, proc.Exec(Command{Argv: []string{"/bin/pwd"}, Dir: tc.exec}))
		_, err = proc.Wait()
		must(t, err)
		if got := slurp(t, stdout); got != tc.want+"\n" {
			t.Errorf("%+v: started in %s", tc, got)
		}
	}
}

// Every combination of mode, bind, protected path and state directory.
func TestSPEC77To80ModesAndPaths(t *testing.T) {
	w := newWorld(t)
	repository(t, w.tree)
	state := filepath.Join(w.home, "state")
	only := filepath.Join(w.home, "only")
	for _, path := range []string{w.tree + "/keep/f", w.tree + "/kept", only + "/f", state + "/settings.json", state + "/settings.local.json", state + "/hooks/h", state + "/projects/p"} {
		write(t, path, "old\n")
	}
	for _, mode := range append(Modes(), "") {
		t.Run("mode "+string(mode), func(t *testing.T) {
			p := w.profile()
			p.Mode, p.StateDirs = mode, []string{state}
			p.Binds = append(p.Binds, Bind{Path: only, ReadOnly: true})
			p.Protected = []string{w.tree + "/keep", w.tree + "/kept", state + "/projects/p"}
			out := script(t, p, fmt.Sprintf(`w() { ( echo new > "$1" ) 2>/dev/null && echo "$2"; }
				w new tree; w keep/f keep; w keep/g keep; w kept kept; (mv keep k || mv kept k || rm -r keep) 2>/dev/null && echo moved
				w %[1]s/f only; w %[2]s/new state; w %[2]s/projects/q state; w %[2]s/settings.json settings; w %[2]s/settings.local.json settings; w %[2]s/hooks/h hooks; w %[2]s/hooks/i hooks
				w %[2]s/projects/p projects; mv %[2]s/hooks %[2]s/x 2>/dev/null && echo moved; cat %[1]s/f keep/f`, only, state))
			want := "state\nstate\nold\nold\n"
			if mode.Writes() {
				want = "tree\n" + want
			}
			if out.stdout != want {
				t.Errorf("got %q, want %q; stderr %s", out.stdout, want, out.stderr)
			}
		})
	}
	if _, err := Gather(&Profile{Binds: []Bind{{Path: w.tree}}, Mode: "build"}); err == nil {
		t.Error("an unknown mode is taken")
	}
}

func TestSPEC83PathsThatDoNotResolve(t *testing.T) {
	w := newWorld(t)
	must(t, os.Symlink("nowhere", w.tree+"/dangling"))
	p := w.profile()
	p.Protected = []string{w.tree + "/none", w.tree + "/none/deeper", w.tree + "/dangling", w.home + "/.aws"}
	p.Hidden = []string{w.tree + "/nothing", "/no/such/folder"}
	before := names(t, w.home)
	if out := script(t, p, "echo started"); out.stdout != "started\n" {
		t.Errorf("got %q; stderr %s", out.stdout, out.stderr)
	}
	sameNames(t, before, names(t, w.home))
}

// The files by which names are looked up are the sandbox's own, whatever those of the host
// are: a link into a tree that is not shown (systemd-resolved, WSL) among them.
func TestNamesAreLookedUpNowhere(t *testing.T) {
	w := newWorld(t)
	out := script(t, w.profile(), `for f in resolv.conf hosts nsswitch.conf hostname; do test -L /etc/$f && echo "$f is a link"; test -w /etc/$f && echo "$f can be written"; done
		grep -v -e '^#' -e '^nameserver 127.0.0.1$' -e '^options timeout:2 attempts:1 ndots:1$' /etc/resolv.conf; grep -c ^nameserver /etc/resolv.conf; grep -v -e '^127.0.0.1 localhost' -e '^::1 localhost' /etc/hosts; getent hosts example.com && echo resolved; true`)
	if out.stdout != "1\n" { // the one resolver, which a run without its sockets does not have
		t.Errorf("got %q", out.stdout)
	}
}
