package integration_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// soakEnv says "1" where a test may take its time, and look at the clock.
const soakEnv = "POSTERN_SOAK"

// TestSixtyReloads reloads sixty times, half of them in every way that fails, while
// clients ask over each front end for what every policy allows, what none does, and
// what the policies take from each other. No verdict is wrong: a client that asked while
// nothing changed heard what the policy says that ruled, also during a reload that fails
// before the rules govern. No allowed request fails, and of the tunnels the ones
// to a host that left the list are cut, and no other.
func TestSixtyReloads(t *testing.T) {
	const counter = "postern_egress_denied_total"
	r := newReloads(t)
	before := metric(t, r.run, counter)
	l := &reloadLoad{reloads: r, stop: make(chan struct{}), wrong: new(faults), failed: new(faults)}
	now := l.begin(verdicts{r.kept: true, r.revoked: true, r.added: false, nowhere: false})
	for name, ask := range map[string]func(string, string) (bool, error){"CONNECT": askConnect, "plain HTTP": askPlain, "SOCKS5": askSOCKS5} {
		at := r.proxy
		if name == "SOCKS5" {
			at = r.socks
		}
		l.wg.Go(func() { l.hammer(name, func(target string) (bool, error) { return ask(at, target) }) })
	}
	l.wg.Go(func() {
		l.repeat("control API", func() error {
			got, err := control(t, r.run, http.MethodGet, "/v1/sessions", "")
			if err == nil && (got.status != http.StatusOK || !strings.Contains(got.body, `"reload"`)) {
				err = fmt.Errorf("%+v", got)
			}
			return err
		})
	})
	l.wg.Go(func() { l.repeat("kept tunnel", func() error { return r.keptConn.tryEcho("load") }) })
	// A reload that fails does so when every client was answered meanwhile.
	failing := func(string) { l.now.Load().again(t) }
	onFailing.Store(&failing)
	defer onFailing.Store(nil)
	var ended sync.Once
	end := func() { ended.Do(func() { close(l.stop); l.wg.Wait() }) }
	defer end()

	kinds, cut := failedReloads(), []time.Duration(nil)
	on, off := r.revoked, r.added // what may be reached now, and what after the next good reload
	doomed := l.tunnels(t, on)
	for i := range 60 {
		now.wait(t)
		if i%2 == 0 {
			kind := kinds[i/2%len(kinds)]
			during := now
			if kind.late { // until it is taken back either policy is right
				during = l.begin(verdicts{r.kept: true, nowhere: false})
			}
			r.fail(t, kind, r.kept, off)
			if during != now {
				now = l.begin(verdicts{r.kept: true, on: true, off: false, nowhere: false})
			}
			for _, d := range doomed {
				d.echo(t, kind.name)
			}
			continue
		}
		l.begin(verdicts{r.kept: true, nowhere: false})
		asked := time.Now()
		if err := r.load(r.kept, off); err != nil {
			t.Fatalf("reload %d: %v", i, err)
		}
		on, off = off, on
		now = l.begin(verdicts{r.kept: true, on: true, off: false, nowhere: false})
		for _, d := range doomed {
			if !d.closed(t) {
				t.Errorf("reload %d: a tunnel to a host that left the list is open", i)
			}
			cut = append(cut, time.Since(asked))
		}
		doomed = l.tunnels(t, on)
	}
	now.wait(t)
	for _, d := range doomed {
		d.echo(t, "last")
	}
	end()

	worst := slices.Max(cut)
	t.Logf("%d verdicts judged (%d while the rules changed), %d wrong; %d requests of what is always allowed, %d failed; %d revoked tunnels cut, the last %v after its reload began",
		l.judged.Load(), l.between.Load(), l.wrong.len(), l.allowed.Load(), l.failed.len(), len(cut), worst.Round(time.Microsecond))
	if l.judged.Load() == 0 || l.allowed.Load() == 0 || l.wrong.len()+l.failed.len() > 0 {
		t.Errorf("wrong: %v\nfailed: %v", l.wrong, l.failed)
	}
	if os.Getenv(soakEnv) != "" && worst > time.Second {
		t.Errorf("a revoked tunnel lived for %v", worst)
	}
	// Repeated refusals are reported together; the end of the session brings
	// what is still counted.
	if got, err := control(t, r.run, http.MethodDelete, "/v1/sessions/reload", ""); err != nil || got.status != http.StatusNoContent {
		t.Fatalf("close the session: %+v %v", got, err)
	}
	want := before + float64(l.denied.Load())
	waitUntil(t, fmt.Sprintf("%s grows from %v to %v: it was reset by a reload, perhaps", counter, before, want), func() bool { return metric(t, r.run, counter) >= want })
}

// nowhere is what no policy allows.
const nowhere = "127.0.0.1:9"

// verdicts are whether a policy allows a target; of others it is not known.
type verdicts map[string]bool

// phase is a time in which the rules do not change.
type phase struct {
	verdicts
	mu     sync.Mutex
	judged map[string]bool // by front end and target
}

// wait waits until each front end was asked for each target.
func (p *phase) wait(t *testing.T) {
	t.Helper()
	waitUntil(t, "every client was answered", p.full)
}

// again waits until each was asked once more.
func (p *phase) again(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	clear(p.judged)
	p.mu.Unlock()
	for deadline := time.Now().Add(20 * time.Second); !p.full(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error("not every client was answered during a reload that fails")
			return
		}
	}
}

func (p *phase) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.judged) == 3*len(p.verdicts)
}

// reloadLoad is what goes on while configurations come and go.
type reloadLoad struct {
	*reloads
	stop chan struct{}
	wg   sync.WaitGroup
	now  atomic.Pointer[phase]

	judged, between, allowed, denied atomic.Int64
	wrong, failed                    *faults
}

func (l *reloadLoad) begin(v verdicts) *phase {
	p := &phase{verdicts: v, judged: map[string]bool{}}
	l.now.Store(p)
	return p
}

// tunnels opens some, which talk.
func (l *reloadLoad) tunnels(t *testing.T, target string) []*tunnel {
	t.Helper()
	opened := make([]*tunnel, 4)
	for i := range opened {
		opened[i] = connect(t, l.proxy, target)
		opened[i].echo(t, "begin")
	}
	return opened
}

func (l *reloadLoad) repeat(name string, once func() error) {
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		l.allowed.Add(1)
		if err := once(); err != nil {
			l.failed.add(fmt.Errorf("%s: %w", name, err))
		}
	}
}

// hammer asks one front end for every target in turn.
func (l *reloadLoad) hammer(name string, ask func(string) (bool, error)) {
	for {
		for _, target := range []string{l.kept, l.revoked, l.added, nowhere} {
			select {
			case <-l.stop:
				return
			default:
			}
			p := l.now.Load()
			allowed, err := ask(target)
			if !allowed && err == nil {
				l.denied.Add(1)
			}
			if target == l.kept {
				l.allowed.Add(1)
			}
			want, known := p.verdicts[target]
			switch {
			case !known || target != l.kept && target != nowhere && l.now.Load() != p:
				l.between.Add(1)
				continue
			case err != nil:
				l.failed.add(fmt.Errorf("%s %s: %w", name, target, err))
				continue
			case allowed != want:
				l.wrong.add(fmt.Errorf("%s %s: allowed is %t", name, target, allowed))
			}
			l.judged.Add(1)
			p.mu.Lock()
			p.judged[name+target] = true
			p.mu.Unlock()
		}
	}
}

// askConnect, askPlain and askSOCKS5 report whether they were let through, or an error
// where they were and got nothing from the far side.
func askConnect(proxy, target string) (bool, error) {
	conn, status, err := openTunnel(proxy, target)
	if err != nil {
		return true, err
	}
	defer conn.Close()
	if status == http.StatusForbidden {
		return false, nil
	}
	if status != http.StatusOK {
		return true, fmt.Errorf("status %d", status)
	}
	return true, (&tunnel{conn: conn}).tryEcho("hello")
}

func askPlain(proxy, target string) (bool, error) {
	conn, err := dialProxy(proxy)
	if err != nil {
		return true, err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET http://%s/ HTTP/1.1\r\nHost: %[1]s\r\nConnection: close\r\n\r\n", target); err != nil {
		return true, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return true, err
	case resp.StatusCode == http.StatusForbidden:
		return false, nil
	case string(body) != "echo":
		return true, fmt.Errorf("status %d, %q", resp.StatusCode, body)
	}
	return true, nil
}

func askSOCKS5(socks, target string) (bool, error) {
	conn, answer, err := openSOCKS(socks, target)
	if err != nil {
		return true, err
	}
	defer conn.Close()
	switch answer {
	case 0:
		return true, (&tunnel{conn: conn}).tryEcho("hello")
	case 2:
		return false, nil
	}
	return true, fmt.Errorf("answer %d", answer)
}

// openSOCKS asks for a target by its address or name, and gives the answer's code.
func openSOCKS(socks, target string) (net.Conn, byte, error) {
	host, text, err := net.SplitHostPort(target)
	if err != nil {
		return nil, 0, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, 0, err
	}
	request := append([]byte{5, 1, 0, 3, byte(len(host))}, host...)
	if at, err := netip.ParseAddr(host); err == nil {
		request = append([]byte{5, 1, 0, 1}, at.AsSlice()...)
	}
	conn, err := dialProxy(socks)
	if err != nil {
		return nil, 0, err
	}
	answer := make([]byte, 10)
	for _, step := range []struct {
		say  []byte
		hear int
	}{{[]byte{5, 1, 0}, 2}, {binary.BigEndian.AppendUint16(request, uint16(port)), 10}} {
		if _, err := conn.Write(step.say); err != nil {
			return nil, 0, errors.Join(err, conn.Close())
		}
		if _, err := io.ReadFull(conn, answer[:step.hear]); err != nil {
			return nil, 0, errors.Join(err, conn.Close())
		}
	}
	return conn, answer[1], conn.SetDeadline(time.Time{})
}

// faults keeps the first few of them, and counts all.
type faults struct {
	mu    sync.Mutex
	n     int
	first []error
}

func (f *faults) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; len(f.first) < 5 {
		f.first = append(f.first, err)
	}
}

func (f *faults) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

func (f *faults) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprintf("%d, as in %v", f.n, f.first)
}
