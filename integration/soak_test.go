//go:build linux

package integration_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"postern/integration/netlab"
)

// What a soak is set up with beside soakEnv.
const (
	soakTimeEnv     = "POSTERN_SOAK_TIME"     // 20m if unset
	soakSessionsEnv = "POSTERN_SOAK_SESSIONS" // 500
	soakTunnelsEnv  = "POSTERN_SOAK_TUNNELS"  // 5000
)

// TestSoak holds the appliance to a steady use of descriptors, goroutines and memory
// under everything at once: sessions that come and go over each door, tunnels that do so
// over each front end, refusals, slow-loris heads and ClientHellos, resets, lookups that
// fail in each way, patches, grants and reloads. At the end every connection
// has its lines in the audit log, and what is left is what there was at the beginning.
func TestSoak(t *testing.T) {
	if os.Getenv(soakEnv) == "" {
		t.Skip("make soak runs it")
	}
	if !netlab.Inside() {
		t.Setenv(caddyEnv, buildCaddy(t))
		code, err := netlab.Rerun([]string{"-test.run=^TestSoak$", "-test.v", "-test.count=1"}, nil, os.Stdout, os.Stderr)
		if code != 0 || err != nil {
			t.Fatalf("inside the lab: %d, %v", code, err)
		}
		return
	}
	netlab.Run(t, func(*netlab.Lab) { soak(t) })
}

func soak(t *testing.T) { //nolint:thelper // the test
	length, err := time.ParseDuration(orText(os.Getenv(soakTimeEnv), "20m"))
	if err != nil {
		t.Fatal(err)
	}
	sessions, tunnels := number(t, soakSessionsEnv, 500), number(t, soakTunnelsEnv, 5000)
	needDescriptors(t, 4*sessions+3*tunnels+500)
	l := newSoakLoad(t, sessions, tunnels, length)
	servers := soakOrigins(t)
	defer servers()
	caddy := startSoaked(t, l.run)
	l.caddy = caddy

	warm := l.open(t, 0) // what is there once for all sessions
	if allowed, err := askConnect(warm.http, "h0.soak.example:8443"); !allowed || err != nil {
		t.Fatalf("the first tunnel: %t, %v", allowed, err)
	}
	l.sure.Add(1)
	warm.end()
	base := l.sample(t, 0)

	began := time.Now()
	l.start()
	var samples []sample
	for every := min(max(length/60, time.Second), 10*time.Second); time.Since(began) < length; {
		time.Sleep(every)
		s := l.sample(t, time.Since(began))
		samples = append(samples, s)
		fmt.Println(s)
	}
	l.finish()
	var end sample
	for range 120 {
		if end = l.sample(t, time.Since(began)); end.sessions == 0 && end.goroutines <= base.goroutines+20 && end.descriptors <= base.descriptors+10 {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	caddy.stop()
	l.judge(t, base, end, samples, readAudit(t, caddy.log))
}

// needDescriptors holds the test to a machine where it means something: the appliance,
// and this process as its clients and its far side, open so many each.
func needDescriptors(t *testing.T, n int) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Max < uint64(n) {
		t.Fatalf("a process may open %d files here (ulimit -Hn), and %d are needed; ask for fewer by %s", limit.Max, n, soakTunnelsEnv)
	}
}

// sample is what the appliance holds at a time.
type sample struct {
	at                                                   time.Duration
	sessions, tunnels, goroutines, descriptors, resident int // resident in kB
}

func (s sample) String() string {
	return fmt.Sprintf("%8s %6d sessions %6d tunnels %6d goroutines %6d descriptors %7d kB resident", s.at.Round(time.Second), s.sessions, s.tunnels, s.goroutines, s.descriptors, s.resident)
}

func (l *soakLoad) sample(t *testing.T, at time.Duration) sample {
	t.Helper()
	value := func(name string) int { return int(metric(t, l.run, name)) }
	s := sample{at: at, sessions: value("postern_egress_sessions"), tunnels: value("postern_egress_tunnels"), goroutines: value("go_goroutines")}
	fds, err := os.ReadDir(filepath.Join("/proc", l.caddy.proc, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	s.descriptors = len(fds)
	status, err := os.ReadFile(filepath.Join("/proc", l.caddy.proc, "status"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			_, _ = fmt.Sscan(rest, &s.resident)
		}
	}
	return s
}

// auditCount is what a log says.
type auditCount struct {
	decisions, opened, closes, strays, dropped int
}

func readAudit(t *testing.T, path string) (a auditCount) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	open := map[uint64]bool{}
	lines := bufio.NewReader(file)
	for {
		text, err := lines.ReadBytes('\n')
		var line struct {
			Msg, Addr string
			Conn      uint64
			Count     int
		}
		if json.Unmarshal(text, &line) == nil {
			switch {
			case line.Msg == "decision" && line.Conn != 0:
				a.decisions++
				if line.Addr != "" {
					a.opened++
					open[line.Conn] = true
				}
			case line.Msg == "close" && line.Conn != 0:
				a.closes++
				if !open[line.Conn] {
					a.strays++
				}
				delete(open, line.Conn)
			case line.Msg == "dropped":
				a.dropped += line.Count
			}
		}
		if err == io.EOF {
			return a
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// soaked is the appliance.
type soaked struct {
	proc string // its folder in /proc, which is that of the namespace outside
	log  string
	stop func()
}

func startSoaked(t *testing.T, run string) *soaked {
	t.Helper()
	config := filepath.Join(run, "Caddyfile")
	if err := os.WriteFile(config, []byte(soakConfig(0)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &soaked{log: filepath.Join(run, "log")}
	out, err := os.Create(s.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(buildCaddy(t), "run", "--config", config)
	cmd.Env = append(os.Environ(), "POSTERN_RUN="+run, "HOME="+run)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	s.stop = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}
	}
	t.Cleanup(s.stop)
	waitUntil(t, "the appliance answers", func() bool {
		got, err := control(t, run, http.MethodGet, "/v1/state", "")
		return err == nil && got.status == http.StatusOK
	})
	all, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, path := range all {
		text, _ := os.ReadFile(path)
		if strings.HasPrefix(string(text), "Name:\tcaddy\n") && strings.Contains(string(text), fmt.Sprintf("\t%d\nNSpgid", cmd.Process.Pid)) {
			s.proc = filepath.Base(filepath.Dir(path))
		}
	}
	if s.proc == "" {
		t.Fatal("the appliance is not in /proc")
	}
	return s
}

// soakConfig is one of two configurations, which allow the same of what is asked for.
func soakConfig(turn int) string {
	return fmt.Sprintf(`{
	persist_config off
	auto_https off
	egress {
		default_policy agent
		policy agent {
			allow *.soak.example 80 443 8443
			allow turn-%d.example
		}
		timeouts {
			header 3s
			hello 3s
			dial 5s
		}
		dns 9.9.9.9
	}
}
`, turn%2)
}

// soakNames is the name server: ten names, and others that fail in their ways.
func soakNames(name string) netlab.Answer {
	var n int
	switch {
	case strings.HasPrefix(name, "servfail."):
		return netlab.Answer{Rcode: dns.RcodeServerFailure}
	case strings.HasPrefix(name, "silent."):
		return netlab.Answer{Drop: true}
	case strings.HasPrefix(name, "private."):
		return netlab.Addrs("10.1.2.3")
	case strings.HasPrefix(name, "slow."):
		return netlab.Answer{Addrs: []netip.Addr{netip.MustParseAddr("93.184.216.40")}, Delay: time.Second}
	}
	if _, err := fmt.Sscanf(name, "h%d.soak.example.", &n); err != nil {
		return netlab.Answer{Rcode: dns.RcodeNameError}
	}
	a := netlab.Addrs(fmt.Sprintf("93.184.216.%d", 30+n))
	a.TTL = 30
	return a
}

func orText(s, or string) string {
	if s == "" {
		return or
	}
	return s
}

func number(t *testing.T, env string, or int) int {
	t.Helper()
	n, err := strconv.Atoi(orText(os.Getenv(env), strconv.Itoa(or)))
	if err != nil || n < 1 {
		t.Fatalf("%s: %v", env, err)
	}
	return n
}
