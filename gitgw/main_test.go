package gitgw_test

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"postern/gitgw"
	"postern/gitgw/mint"
)

// TestMain is also the gateway of the memory test, which needs a process of its
// own to be measured.
func TestMain(m *testing.M) {
	if upstream := os.Getenv("GITGW_TEST_UPSTREAM"); upstream != "" {
		serve := serveAlone
		if os.Getenv("GITGW_TEST_WHO") == "reverseproxy" {
			serve = func(upstream, token, _ string) error { return serveFloor(upstream, token) }
		}
		if err := serve(upstream, os.Getenv("GITGW_TEST_TOKEN"), os.Getenv("GITGW_TEST_RULE")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		// Most of a scenario's time is waiting: for git, and for what has to take its time.
		_ = flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0)))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if stock.dir != "" {
			_ = os.RemoveAll(stock.dir)
		}
		http.DefaultClient.CloseIdleConnections()
		os.Exit(code)
	}))
}

// serveAlone prints its address and serves until it is killed.
func serveAlone(upstream, token, rule string) error {
	forge, err := gitgw.NewForge("github.com", "", upstream)
	if err != nil {
		return err
	}
	pattern, err := gitgw.ParseRepoPattern("github.com/acme/*")
	if err != nil {
		return err
	}
	verdict, looking := strings.CutSuffix(rule, "+secrets")
	refs, err := gitgw.ParseRefRule(verdict, []string{"**"}, "")
	if err != nil {
		return err
	}
	refs.Conditions.Secrets = looking
	set, err := gitgw.NewRules(gitgw.RepoRules{Pattern: pattern, Rules: []gitgw.RefRule{refs}})
	if err != nil {
		return err
	}
	own, err := gitgw.ParseRepo("github.com/acme/app")
	if err != nil {
		return err
	}
	g := &gitgw.Gateway{Forges: []gitgw.Forge{forge}, Rules: set, Minter: mint.NewStatic(token, token)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.ServeHTTP(w, r.WithContext(gitgw.WithCaller(r.Context(), gitgw.Caller{Session: "m" + r.Header.Get("X-Test-Session"), Own: own})))
	}))
}
