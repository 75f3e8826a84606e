package sandbox

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// hostSocket listens at path; a relative one, for the length of socket paths is
// bounded.
func hostSocket(tb testing.TB, path string) {
	tb.Helper()
	must(tb, os.MkdirAll(filepath.Dir(path), 0o755))
	ln, err := net.Listen("unix", path)
	must(tb, err)
	tb.Cleanup(func() { _ = ln.Close() })
}

// Whoever listens in a folder of the run is outside the sandbox, wherever the socket
// lies and whenever it is made.
func TestSocketsOfTheHost(t *testing.T) {
	w := newWorld(t)
	t.Chdir(w.tree)
	places := []string{
		"top.sock", "a/b/c/d/deep.sock", ".vscode/ipc.sock", "node_modules/.cache/x.sock",
		".docker/run/docker.sock", ".claude/x.sock", ".git/fsmonitor.ipc",
	}
	for _, place := range places {
		hostSocket(t, place)
	}
	out := script(t, w.profile(), `for s in `+strings.Join(places, " ")+`; do `+InnerExe+` `+attackCommand+` dial $s; done`)
	for i, line := range lines("%s", out.stdout) {
		if line != "EAFNOSUPPORT" {
			t.Errorf("%s: %s", places[i], line)
		}
	}
	t.Run("one made later", func(t *testing.T) {
		needBwrap(t)
		stdout := capture(t)
		p, err := Start(t.Context(), gather(t, w.profile()), Options{Stdin: devNull(t), Stdout: stdout, Stderr: capture(t)})
		must(t, err)
		defer p.Close()
		hostSocket(t, "late.sock")
		must(t, p.Exec(Command{Argv: []string{InnerExe, attackCommand, "dial", "late.sock"}}))
		_, err = p.Wait()
		must(t, err)
		if got := slurp(t, stdout); got != "EAFNOSUPPORT\n" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("with the switch, those that were there stay hidden", func(t *testing.T) {
		p := w.profile()
		p.AllowUnix = true
		out := script(t, p, `for s in top.sock .git/fsmonitor.ipc; do `+InnerExe+` `+attackCommand+` dial $s; done`)
		if out.stdout != "ECONNREFUSED\nECONNREFUSED\n" {
			t.Errorf("got %q", out.stdout)
		}
	})
}

// Tools that talk to their children do it over pairs and loopback, and do not miss
// Unix sockets. The ones that are not installed here are left out.
func TestToolsWithoutUnixSockets(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	w := newWorld(t)
	repository(t, w.tree)
	write(t, w.tree+"/main.go", "package main\n\nfunc main() { println(1) }\n")
	write(t, w.tree+"/empty.go", "package main\n")
	write(t, w.tree+"/go.mod", "module example.com/m\n")
	write(t, w.tree+"/package.json", `{"name":"m","version":"1.0.0","scripts":{"hello":"node -e 'console.log(6*7)'"}}`)
	write(t, w.tree+"/child.js", "process.send(42)\n")
	for _, tc := range []struct{ tool, script, want string }{
		{"git", "git log --oneline | wc -l && git gc -q", "1\n"},
		{"ssh", "ssh -V 2>/dev/null; ssh -o BatchMode=yes -o ConnectTimeout=1 127.0.0.1 true 2>&1 | grep -ci -e refused", "1\n"},
		{"id", "id -un >/dev/null && getent passwd root | cut -d: -f1", "root\n"},
		{"node", `node -e 'require("child_process").fork("./child.js").on("message",m=>console.log(m))'`, "42\n"},
		{"node", `node -e 'const {Worker}=require("worker_threads"); new Worker("require(\"worker_threads\").parentPort.postMessage(43)",{eval:true}).on("message",m=>console.log(m))'`, "43\n"},
		{"npm", "npm run -s hello", "42\n"},
		{"python3", `/usr/bin/python3 -c 'import multiprocessing as m, subprocess, asyncio; p=m.Pool(2); print(p.map(abs,[-1,-2])); p.close(); asyncio.run(asyncio.sleep(0))'`, "[1, 2]\n"},
	} {
		t.Run(tc.tool, func(t *testing.T) {
			// Only what the sandbox shows counts.
			if _, err := os.Stat("/usr/bin/" + tc.tool); err != nil {
				t.Skipf("SKIPPED, NOT PASSED: no %s in /usr/bin", tc.tool)
			}
			if out := script(t, w.profile(), tc.script); out.stdout != tc.want || out.status.ExitCode() != 0 {
				t.Errorf("got %q, want %q; status %d, stderr %s", out.stdout, tc.want, out.status.ExitCode(), out.stderr)
			}
		})
	}
	t.Run("go", func(t *testing.T) {
		exe, err := exec.LookPath("go")
		if err != nil {
			t.Skip("SKIPPED, NOT PASSED: no go")
		}
		exe, err = filepath.EvalSymlinks(exe)
		must(t, err)
		if root := filepath.Dir(filepath.Dir(exe)); !strings.HasPrefix(root, "/usr/") {
			t.Skipf("SKIPPED, NOT PASSED: the sandbox does not show %s", root)
		}
		// Not a build: it compiles the runtime anew, for a minute.
		out := script(t, w.profile(), "export GOTOOLCHAIN=local GOFLAGS=-mod=mod GOPROXY=off; "+exe+" list -deps . | tail -1 && "+exe+" tool compile -p main -o /tmp/x -complete empty.go && ls /tmp/x")
		if out.stdout != "example.com/m\n/tmp/x\n" {
			t.Errorf("got %q; stderr %s", out.stdout, out.stderr)
		}
	})
}
