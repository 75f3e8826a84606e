package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"postern/caddy-modules/session/lease"
	"postern/integration/netlab"
)

// TestEveryPathAgrees asks about the targets of one table over every path that leads
// out of a session, and those that only tell: one verdict and one reason each, on the
// wire as in the log.
func TestEveryPathAgrees(t *testing.T) {
	if !netlab.Inside() {
		t.Setenv(binaryVar, applianceBinary(t))
		t.Setenv(scratchVar, t.TempDir())
	}
	netlab.Run(t, func(lab *netlab.Lab) { testPaths(t, lab) })
}

func testPaths(t *testing.T, lab *netlab.Lab) { //nolint:thelper // the test itself
	if len(pathRows) < 40 {
		t.Errorf("only %d targets", len(pathRows))
	}
	w, err := newDNSWorld(lab, os.Getenv(binaryVar), os.Getenv(scratchVar), []uint16{22, 80, 443, 8443}, func(log string) string {
		return strings.Replace(dnsCaddyfile(defaultDNSOpts(), nil, log, 0), "\t\tpolicy base\n", "\t\tpolicy base\n"+pathPolicy, 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	w.up.SetDefault(func(name string) netlab.Answer { return netlab.Answer{Addrs: []netip.Addr{publicAddr(name)}} })
	for name, addr := range pathNames {
		w.up.Set(name, netlab.Addrs(addr))
	}
	asks := map[string]func(*pathSession, pathRow) (judged, error){
		pathConnect: (*pathSession).connects, pathPlain: (*pathSession).plain, pathSOCKS: (*pathSession).socks, pathSOCKSAddr: (*pathSession).socksAddr,
		pathDNS: (*pathSession).dns, pathTransparent: (*pathSession).transparent, pathGrant: (*pathSession).granted,
	}
	said := make([]map[string]judged, len(pathRows))
	for i := range said {
		said[i] = map[string]judged{}
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for path, ask := range asks {
		all.Go(func() {
			s := &pathSession{w: w, id: path, names: map[string]judged{}}
			var err error
			s.sandbox, err = openSandbox(lab, w.leaseSocket(), lease.Spec{ID: path, Policy: "table"}, path != pathDNS)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				return
			}
			defer s.close()
			for i, row := range pathRows {
				j, err := ask(s, row)
				switch {
				case errors.Is(err, errNoWord):
					continue // lacks says whether there should be one
				case err != nil:
					t.Errorf("%s: %s: %v", row.target, path, err)
					continue
				}
				mu.Lock()
				said[i][path] = j
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for i, j := range w.checks(t) {
		said[i][pathCheck] = j
	}
	asked := 0
	for i, row := range pathRows {
		asked += len(said[i])
		for _, d := range append(row.lacks(said[i]), row.disagreements(said[i])...) {
			t.Error(d)
		}
	}
	t.Logf("%d targets, %d answers", len(pathRows), asked)
}

// errNoWord says that a path cannot ask for such a target.
var errNoWord = errors.New("the path has no word for it")

// pathSession asks over one path, in a session of its own.
type pathSession struct {
	*sandbox
	w     *dnsWorld
	id    string
	names map[string]judged // what DNS said of names
}

// told finds what the log says of a target, and holds it against what the wire said.
func (s *pathSession) told(target string, allowed bool) (judged, error) {
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(5 * time.Millisecond) {
		lines, err := s.w.logSince(0, fmt.Sprintf("%q:%q", "session", s.id), fmt.Sprintf(":%q", target))
		if err != nil {
			return judged{}, err
		}
		for line := range bytes.Lines(lines) {
			j, ok := readJudged(line)
			if !ok {
				continue
			}
			if (j.code == "allowed") != allowed {
				return j, fmt.Errorf("it was let through: %t, and the log says %s", allowed, j)
			}
			return j, nil
		}
	}
	return judged{}, fmt.Errorf("it was let through: %t, and the log says nothing", allowed)
}

// readJudged reads a line of the log that tells of a decision.
func readJudged(raw []byte) (j judged, ok bool) {
	var line struct {
		Msg                        string
		Code, Rule, Source, Reason string
		Allowed                    bool
		DNS                        struct{ Verdict, Rule, Source string }
	}
	if err := json.Unmarshal(raw, &line); err != nil {
		return j, false
	}
	j = judged{line.Code, line.Rule, line.Source, line.Reason}
	switch {
	case line.DNS.Verdict == "allow":
		j = judged{code: "allowed", rule: line.DNS.Rule, source: line.DNS.Source}
	case line.Msg == "allowed", line.Msg == "decision" && line.Allowed:
		j.code = "allowed"
	case line.Msg != "denied" && line.Msg != "decision":
		return j, false
	}
	return j, true
}

// connects asks with CONNECT.
func (s *pathSession) connects(row pathRow) (judged, error) {
	status, err := s.connect(row.target)
	if err != nil {
		return judged{}, err
	}
	return s.status(row, status)
}

func (s *pathSession) status(row pathRow, status int) (judged, error) {
	if status != http.StatusOK && status != http.StatusForbidden {
		return judged{}, fmt.Errorf("status %d", status)
	}
	return s.told(row.target, status == http.StatusOK)
}

// granted asks with CONNECT for what was granted just now.
func (s *pathSession) granted(row pathRow) (judged, error) {
	host, port, _ := cutPort(row.target)
	var grant struct{ ID string }
	at := "/v1/sessions/" + s.id + "/grants"
	if err := s.w.app.call(http.MethodPost, at, map[string]any{"allow": []string{host + " " + port}}, &grant); err != nil {
		return judged{}, fmt.Errorf("grant: %w", err)
	}
	j, err := s.connects(row)
	return j, errors.Join(err, s.w.app.call(http.MethodDelete, at+"/"+grant.ID, nil, nil))
}

// plain asks with a target in absolute-form.
func (s *pathSession) plain(row pathRow) (judged, error) {
	conn, err := s.dial("tcp4", sandboxHTTP)
	if err != nil {
		return judged{}, err
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET http://%[1]s/ HTTP/1.1\r\nHost: %[1]s\r\nConnection: close\r\n\r\n", row.target)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return judged{}, err
	}
	defer resp.Body.Close()
	return s.status(row, resp.StatusCode)
}

// socks asks over SOCKS5 with the host as it is.
func (s *pathSession) socks(row pathRow) (judged, error) {
	host, _, literal := cutPort(row.target)
	if literal {
		return s.socksTo(row, netip.MustParseAddr(host), "")
	}
	return s.socksTo(row, netip.Addr{}, host)
}

// socksAddr asks over SOCKS5 with the address that DNS gave for the name.
func (s *pathSession) socksAddr(row pathRow) (judged, error) {
	addr, j, err := s.address(row)
	if err != nil || !addr.IsValid() {
		return j, err
	}
	return s.socksTo(row, addr, "")
}

func (s *pathSession) socksTo(row pathRow, addr netip.Addr, name string) (judged, error) {
	conn, err := s.dial("tcp4", sandboxSOCKS)
	if err != nil {
		return judged{}, err
	}
	defer conn.Close()
	_, text, _ := cutPort(row.target)
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return judged{}, err
	}
	req := []byte{5, 1, 0, 5, 1, 0}
	switch {
	case name != "":
		req = append(append(req, 3, byte(len(name))), name...)
	case addr.Is4():
		req = append(append(req, 1), addr.AsSlice()...)
	default:
		req = append(append(req, 4), addr.AsSlice()...)
	}
	if _, err := conn.Write(append(req, byte(port>>8), byte(port))); err != nil {
		return judged{}, err
	}
	var reply [4]byte // the method, then the version and the reply
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return judged{}, err
	}
	if reply[3] != 0 && reply[3] != 2 {
		return judged{}, fmt.Errorf("reply 0x%02x", reply[3])
	}
	_ = conn.Close() // or a tunnel waits for what it is to carry
	return s.told(row.target, reply[3] == 0)
}

// dns asks the session's resolver for the name.
func (s *pathSession) dns(row pathRow) (judged, error) {
	host, _, literal := cutPort(row.target)
	if literal {
		return judged{}, errNoWord
	}
	if j, known := s.names[host]; known {
		return j, nil // a refusal is told of once in a while
	}
	m, err := s.lookUp(host, dns.TypeA)
	if err != nil {
		return judged{}, err
	}
	if m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		return judged{}, fmt.Errorf("%s", dns.RcodeToString[m.Rcode])
	}
	j, err := s.told(host, m.Rcode == dns.RcodeSuccess)
	s.names[host] = j
	return j, err
}

// address is the address that DNS gives for the host, none where it refuses.
func (s *pathSession) address(row pathRow) (netip.Addr, judged, error) {
	host, _, literal := cutPort(row.target)
	if literal {
		return netip.Addr{}, judged{}, errNoWord
	}
	j, err := s.dns(row)
	if err != nil || j.code != "allowed" {
		return netip.Addr{}, j, err
	}
	m, err := s.lookUp(host, dns.TypeA)
	if err != nil {
		return netip.Addr{}, j, err
	}
	for _, rr := range m.Answer {
		if a, ok := rr.(*dns.A); ok {
			addr, _ := netip.AddrFromSlice(a.A.To4())
			return addr, j, nil
		}
	}
	return netip.Addr{}, j, fmt.Errorf("no address in %v", m)
}

// transparent connects to the address that DNS made up.
func (s *pathSession) transparent(row pathRow) (judged, error) {
	addr, j, err := s.address(row)
	if err != nil || !addr.IsValid() {
		return j, err
	}
	host, port, _ := cutPort(row.target)
	conn, err := s.dial("tcp4", net.JoinHostPort(addr.String(), port))
	if errors.Is(err, syscall.ECONNRESET) {
		return s.told(row.target, false)
	}
	if err != nil {
		return judged{}, err
	}
	defer conn.Close()
	first := []byte("SSH-2.0-conform\r\n")
	switch port {
	case "443", "8443":
		plan, _ := planHello("", host)
		first = plan.bytes()
	case "80":
		first = fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
	}
	// Whoever is refused may find the connection broken already.
	_, _ = conn.Write(first)
	got := make([]byte, 16)
	n, err := io.ReadAtLeast(conn, got, 1)
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		return judged{}, err
	}
	through := n > 0 && !bytes.HasPrefix(got, []byte{21}) && !bytes.HasPrefix(got, []byte("HTTP/1.1 403"))
	return s.told(row.target, through)
}

// checks asks the command about all targets.
func (w *dnsWorld) checks(t *testing.T) []judged {
	t.Helper()
	args := []string{"egress", "check", "--config", filepath.Join(w.dir, "Caddyfile"), "--policy", "table"}
	for _, row := range pathRows {
		args = append(args, row.target)
	}
	cmd := exec.Command(os.Getenv(binaryVar), args...)
	cmd.Dir, cmd.Env = w.dir, w.app.cmd.Env
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Fatalf("check: %v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != 2*len(pathRows) {
		t.Fatalf("check says\n%s", out)
	}
	said := make([]judged, len(pathRows))
	for i := range said {
		code, reason, _ := strings.Cut(strings.TrimSpace(lines[2*i+1]), ": ")
		said[i] = judged{code: code, reason: reason}
		_, rest, _ := strings.Cut(lines[2*i], "policy table")
		if rest, ok := strings.CutPrefix(rest, `  rule "`); ok {
			said[i].rule, rest, _ = strings.Cut(rest, `"`)
			said[i].source = strings.TrimSpace(rest)
		}
	}
	return said
}
