package integration_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"postern/caddy-modules/session/lease"
)

// testLargePush pushes 200 MB through the appliance, and holds what that costs it: the
// most memory its process ever had grows by 24 MiB at most. A small push goes before,
// for what any push costs once.
func testLargePush(t *testing.T, caddy string) { //nolint:thelper // a subtest, no helper
	run := runDir(t)
	forge := newForge(t)
	a := startAppliance(t, caddy, run, gatewayConfig(t, run, forge))
	httpLn, socksLn := listenTCP(t), listenTCP(t)
	lent := lend(t, run, lease.Hello{Spec: lease.Spec{ID: "run", Repository: "github.com/acme/app"}}, httpLn, socksLn)
	push := func(ref string, size int) {
		t.Helper()
		content := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(content)
		cmd := newPush(t, forge, httpLn.Addr().String(), content)
		cmd.Args[len(cmd.Args)-1] = "HEAD:refs/heads/" + ref
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("[new branch]")) {
			t.Fatalf("push %d bytes: %v\n%s", size, err, out)
		}
	}
	push("small", 1<<10)
	before := mostMemory(t, a.cmd.Process.Pid)
	push("large", 200_000_000)
	after := mostMemory(t, a.cmd.Process.Pid)
	t.Logf("most memory of caddy: %d kB before, %d kB after a push of 200 MB", before, after)
	if after-before > 24<<10 {
		t.Errorf("it grew by %d kB", after-before)
	}
	if err := lent.Close(); err != nil {
		t.Error(err)
	}
}

// mostMemory is the peak of a process's resident memory, in kB.
func mostMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the kernel does not say")
	return 0
}
