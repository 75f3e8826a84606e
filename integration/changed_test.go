package integration_test

import (
	"net/http"
	"os"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// testChangedCrash narrows a leased session and kills the appliance at once: with the
// next one it is as narrow, for the change was not answered before its launcher had it.
func testChangedCrash(t *testing.T, caddy string) { //nolint:thelper // a subtest, no helper
	run := runDir(t)
	upstream := originServer(t)
	config := writeConfig(t, run, upstream)
	first := startAppliance(t, caddy, run, config)
	httpLn, socksLn := listenTCP(t), listenTCP(t)
	hello := lease.Hello{Version: lease.Version, PID: os.Getpid(), Spec: lease.Spec{ID: "narrowed"}}
	held := lend(t, run, hello, httpLn, socksLn)
	if got := fetchThrough(t, httpLn.Addr().String(), upstream); got != "origin" {
		t.Fatalf("before the change: %q", got)
	}
	got, err := control(t, run, http.MethodPatch, "/v1/sessions/narrowed", `{"networkEnabled": false, "limits": {"tunnels": 3}}`)
	first.kill()
	if err != nil || got.status != http.StatusOK {
		t.Fatalf("PATCH: %v %v", got, err)
	}
	select {
	case <-held.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the lease does not notice the crash")
	}
	terms := held.Terms()
	if terms == nil {
		t.Fatal("the launcher knows of no change")
	}

	startAppliance(t, caddy, run, config)
	hello.Resume = &lease.Resume{Born: held.Answer().Born}
	hello.Amend(*terms)
	again := lend(t, run, hello, httpLn, socksLn)
	if again.Answer().Session.NetworkEnabled {
		t.Error("the session has the network again")
	}
	if _, status, err := openTunnel(httpLn.Addr().String(), upstream); err != nil || status != http.StatusForbidden {
		t.Errorf("after the crash: status %d, %v", status, err)
	}
}
