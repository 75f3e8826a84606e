package integration_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
	"postern/integration/fakegithub"
)

// lenderEnv makes a test binary a launcher of its own, which lends listeners in
// the run directory it names and holds on until it is killed.
const lenderEnv = "POSTERN_TEST_LEND"

// TestLender is that launcher, and no test.
func TestLender(t *testing.T) {
	run := os.Getenv(lenderEnv)
	if run == "" {
		t.Skip("run by the tests of tokens")
	}
	l := lend(t, run, lease.Hello{Spec: lease.Spec{ID: "lent", Repository: "github.com/acme/app"}}, listenTCP(t), listenTCP(t))
	fmt.Println("token", l.Answer().ReadToken)
	<-l.Done()
	time.Sleep(time.Hour) // the appliance is gone: killed with it, or soon after
}

// testTokens kills the appliance with tokens alive. The next one revokes them,
// but for that of a launcher that comes back with it.
func testTokens(t *testing.T, caddy string) { //nolint:thelper // a subtest, no helper
	run := runDir(t)
	forge := newForge(t)
	config := gatewayConfig(t, run, forge)
	first := startAppliance(t, caddy, run, config)

	// A launcher that dies with the appliance, one that does not, a host's session,
	// and a push whose report takes its time.
	dies := startLender(t, run)
	httpLn, socksLn := listenTCP(t), listenTCP(t)
	stays := lend(t, run, lease.Hello{Spec: lease.Spec{ID: "stays", Repository: "github.com/acme/app"}}, httpLn, socksLn)
	api, err := control(t, run, http.MethodPut, "/v1/sessions/api", `{"id":"api","repository":"github.com/acme/app","listen":{"network":"tcp"}}`)
	if err != nil || api.status != http.StatusCreated {
		t.Fatalf("open a session: %+v %v", api, err)
	}
	forge.SetFaults(fakegithub.Faults{SlowReport: time.Minute})
	push := startPush(t, forge, httpLn.Addr().String())
	waitUntil(t, "the push arrives", func() bool { refs, _ := forge.Refs("acme/app"); return refs["refs/heads/x"] != "" })
	if live := forge.Live(); len(live) != 4 {
		t.Fatalf("%d tokens live, want those of three sessions and of a push", len(live))
	}

	first.kill()
	dies.kill()
	killPush(push)
	<-stays.Done()
	forge.SetFaults(fakegithub.Faults{})
	second := startAppliance(t, caddy, run, config)
	back := stays.Answer()
	only := func() bool {
		live := forge.Live()
		return len(live) == 1 && live[0].Value == back.ReadToken
	}
	started := time.Now()
	waitUntil(t, "all tokens are dead but one", only)
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("that took %s", took)
	}
	for _, token := range forge.Tokens() {
		if strings.Contains(second.output.String(), token.Value) {
			t.Error("a token stands in the log")
		}
	}

	// The host opens its session again and gets another token; the launcher that
	// lives comes back with its own, which goes with it.
	api, err = control(t, run, http.MethodPut, "/v1/sessions/api", `{"id":"api","repository":"github.com/acme/app","listen":{"network":"tcp"}}`)
	if err != nil || api.status != http.StatusCreated {
		t.Fatalf("open a session again: %+v %v", api, err)
	}
	again := lend(t, run, lease.Hello{
		Spec:   lease.Spec{ID: "stays", Repository: "github.com/acme/app"},
		Resume: &lease.Resume{ReadToken: back.ReadToken, Born: back.Born},
	}, httpLn, socksLn)
	if again.Answer().ReadToken != back.ReadToken {
		t.Error("the launcher that lives has another token")
	}
	// What told the number of a repository is revoked behind its answer.
	waitUntil(t, "two tokens live", func() bool { return len(forge.Live()) == 2 })
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if gone, err := control(t, run, http.MethodDelete, "/v1/sessions/api", ""); err != nil || gone.status != http.StatusNoContent {
		t.Errorf("close the session: %+v %v", gone, err)
	}
	waitUntil(t, "no token lives", func() bool { return len(forge.Live()) == 0 })
}

func waitUntil(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// gatewayConfig writes a configuration with a git gateway for a forge.
func gatewayConfig(t *testing.T, run string, forge *fakegithub.Server) string {
	t.Helper()
	key := filepath.Join(run, "app.pem")
	if err := os.WriteFile(key, forge.KeyPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	data, err := json.Marshal(object{
		"admin":   object{"listen": "unix/" + run + "/admin.sock|0600", "config": object{"persist": false}},
		"logging": object{"logs": object{"default": object{"level": "DEBUG"}}},
		"apps": object{
			"egress": object{"policies": object{"agent": object{}}, "local_hosts": []string{"git.internal"}},
			"http": object{"servers": object{"git": object{
				"listen": []string{"sandbox/git"}, "automatic_https": object{"disable": true},
				"routes": []object{{"handle": []object{{
					"handler": "git_gateway",
					"forges":  []object{{"host": "github.com", "api": forge.APIURL(), "git": forge.URL()}},
					"token":   object{"from": "github_app", "app_id": forge.ClientID(), "key_file": key},
					"repos":   []object{{"name": "github.com/acme/*", "rules": []object{{"verdict": "push", "refs": []string{"**"}}}}},
				}}}},
			}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(run, "config.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// lender is a launcher in a process of its own.
type lender struct{ cmd *exec.Cmd }

func (l *lender) kill() {
	_ = l.cmd.Process.Kill()
	_ = l.cmd.Wait()
}

// startLender returns when its lease is granted.
func startLender(t *testing.T, run string) *lender {
	t.Helper()
	l := &lender{exec.Command(os.Args[0], "-test.run=^TestLender$")}
	l.cmd.Env = append(os.Environ(), lenderEnv+"="+run)
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "token ghs_") {
		t.Fatalf("the launcher says %q, %v", line, err)
	}
	return l
}

// startPush pushes a new commit through a session's proxy.
func startPush(t *testing.T, forge *fakegithub.Server, proxy string) *exec.Cmd {
	t.Helper()
	cmd := newPush(t, forge, proxy, nil)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { killPush(cmd) })
	return cmd
}

// newPush makes a clone with a commit of content, if there is any, and the command that
// pushes it.
func newPush(t *testing.T, forge *fakegithub.Server, proxy string, content []byte) *exec.Cmd {
	t.Helper()
	dir, err := forge.Dir("acme/app")
	if err != nil {
		t.Fatal(err)
	}
	clone := filepath.Join(t.TempDir(), "clone")
	git := func(args ...string) *exec.Cmd {
		cmd := exec.Command("git", append([]string{
			"-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "safe.directory=*",
			"-c", "http.http://git.internal/.proxy=http://" + proxy,
		}, args...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(clone), "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C"}
		return cmd
	}
	do := func(args ...string) {
		t.Helper()
		if out, err := git(args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	do("clone", "-q", dir, clone)
	if content != nil {
		if err := os.WriteFile(filepath.Join(clone, "content"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		do("-C", clone, "add", "content")
	}
	do("-C", clone, "commit", "-q", "--allow-empty", "-m", "x")
	return git("-C", clone, "push", "http://git.internal/github.com/acme/app.git", "HEAD:refs/heads/x")
}

// killPush ends git with all its parts: the one that speaks HTTP would send the
// push again to the next appliance.
func killPush(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}
}
