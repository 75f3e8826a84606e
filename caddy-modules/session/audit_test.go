package session

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/proxy"
	"postern/caddy-modules/session/lease"
	"postern/dnsguard"
)

// trail collects what is logged.
type trail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *trail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *trail) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

// of returns the lines of a kind.
func (l *trail) of(tb testing.TB, msg string) []map[string]any {
	tb.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var some []map[string]any
	lines := bufio.NewScanner(bytes.NewReader(l.text.Bytes()))
	for lines.Scan() {
		var line map[string]any
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			tb.Fatalf("%v in %s", err, lines.Text())
		}
		if line["msg"] == msg {
			some = append(some, line)
		}
	}
	return some
}

// Each connection has a line for its decision and, where one was opened, a line for its
// close, with all there is to say and nothing that a client made up.
func TestAuditLines(t *testing.T) {
	r := newRegistry(t)
	upstream := echo(t)
	var log trail
	g := generation(t, r, rule(upstream))
	g.Log = log.logger()
	r.Push(g)
	s := open(t, r, lease.Spec{ID: "a", Agent: "claude", Workspace: "w"})
	tun := connect(t, "tcp", s.HTTP, upstream)
	if tun.status != 200 || !tun.alive() {
		t.Fatal(tun.phrase)
	}
	tun.Close()
	for range 3 {
		connect(t, "tcp", s.HTTP, "127.0.0.2:443")
	}
	eventually(t, "a close", func() bool { return len(log.of(t, "close")) == 1 })
	eventually(t, "a line for each refusal", func() bool { return len(log.of(t, "decision")) == 4 })
	has := func(line, want map[string]any) {
		t.Helper()
		for name, value := range want {
			if line[name] != value {
				t.Errorf("%s is %v, want %v, in %v", name, line[name], value, line)
			}
		}
	}
	who := map[string]any{"level": "INFO", "session": "a", "agent": "claude", "workspace": "w", "policy": "agent", "proto": "connect"}
	allowed := map[string]any{
		"target": upstream, "scheme": "tcp", "allowed": true, "code": "allowed", "rule": rule(upstream), "source": "test.list:1", "addr": upstream,
	}
	lines, end := log.of(t, "decision"), log.of(t, "close")[0]
	for _, line := range append(lines, end) {
		has(line, who)
	}
	has(lines[0], allowed)
	has(end, allowed)
	has(end, map[string]any{"conn": lines[0]["conn"], "bytes_up": 4.0, "bytes_down": 4.0, "cause": "done"})
	if ms, _ := end["duration_ms"].(float64); ms <= 0 {
		t.Errorf("it took %v", end["duration_ms"])
	}
	for _, line := range lines[1:] {
		has(line, map[string]any{"target": "127.0.0.2:443", "scheme": "tls", "allowed": false, "code": "not_allowed", "addr": nil, "would_deny": nil})
		if line["conn"] == lines[0]["conn"] || !strings.Contains(line["reason"].(string), "127.0.0.2:443 is refused") {
			t.Errorf("%v", line)
		}
	}
}

// entryFor is an entry whose record f has filled.
func entryFor(tb testing.TB, target string, d func(*policy.Set, policy.Target) policy.Decision, f func(*proxy.Record)) *entry {
	tb.Helper()
	to, err := policy.ParseTarget(target, policy.SchemeTLS)
	if err != nil {
		tb.Fatal(err)
	}
	allowed, err := policy.Compile(policy.Lists{Allow: rules(tb, "a.example")}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	rec := &proxy.Record{Time: time.Unix(1, 0), Kind: proxy.KindDecision, Conn: 7, Proto: proxy.ProtoSOCKS5, Target: to, Decision: d(allowed, to)}
	f(rec)
	return &entry{session: &session{spec: lease.Spec{ID: "a"}}, policy: "p", rec: rec}
}

func written(tb testing.TB, e *entry) map[string]any {
	tb.Helper()
	var log trail
	line := e.line()
	if err := log.logger().Handler().Handle(context.Background(), line); err != nil {
		tb.Fatal(err)
	}
	return log.of(tb, line.Message)[0]
}

func TestAuditFields(t *testing.T) {
	decide := (*policy.Set).Decide
	private := netip.MustParseAddr("10.0.0.1")
	for name, c := range map[string]struct {
		e    *entry
		want map[string]any
	}{
		"what a lookup and a dial came to": {entryFor(t, "a.example:443", decide, func(r *proxy.Record) {
			r.Resolved = []netip.Addr{netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("2606:2800::1")}
			r.Addr, r.SNI = netip.MustParseAddrPort("93.184.216.34:443"), "a.example"
			r.Lookup, r.Connect, r.AskedFor = 1500*time.Microsecond, 20*time.Millisecond, netip.MustParseAddr("198.18.0.7")
		}), map[string]any{
			"msg": "decision", "conn": 7.0, "policy": "p", "resolved": "93.184.216.34 2606:2800::1", "addr": "93.184.216.34:443",
			"sni": "a.example", "lookup_ms": 1.5, "connect_ms": 20.0, "asked_for": "198.18.0.7", "allowed": true,
		}},
		"not enforced": {
			entryFor(t, "b.example:443", func(s *policy.Set, to policy.Target) policy.Decision { return s.Reporting().Decide(to) }, func(*proxy.Record) {}),
			map[string]any{"allowed": true, "would_deny": true, "code": "not_allowed"},
		},
		"a private address": {
			entryFor(t, "a.example:443", func(s *policy.Set, to policy.Target) policy.Decision { return s.DecideAddr(to, private) }, func(*proxy.Record) {}),
			map[string]any{"allowed": false, "code": "address_class", "resolved": "10.0.0.1", "rule": "a.example", "would_deny": nil},
		},
		"not reached": {
			entryFor(t, "a.example:443", decide, func(r *proxy.Record) { r.Failed = "connect_timeout" }),
			map[string]any{"allowed": true, "failed": "connect_timeout"},
		},
		"a name that was only noted": {
			entryFor(t, "a.example:443", decide, func(r *proxy.Record) { r.Hello, r.SNI = proxy.HelloMismatch, "evil\r\n\x1b[2J\u202e.example" }),
			map[string]any{"allowed": true, "would_deny": true, "code": "sni_mismatch", "sni": "evil???[2J???.example"},
		},
		"a name that was refused": {entryFor(t, "a.example:443", decide, func(r *proxy.Record) {
			r.Hello, r.Decision.Allowed, r.SNI = proxy.HelloMismatch, false, strings.Repeat("a", 60000)
		}), map[string]any{"allowed": false, "would_deny": nil, "code": "sni_mismatch", "sni": strings.Repeat("a", maxClientText)}},
		"what was answered in process": {entryFor(t, "a.example:443", decide, func(r *proxy.Record) { r.Local = true }), map[string]any{"local": true}},
		"the end of it": {entryFor(t, "a.example:443", decide, func(r *proxy.Record) {
			r.Kind, r.BytesUp, r.BytesDown, r.Duration, r.Cause = proxy.KindClose, 1, 2, time.Second, proxy.CauseIdle
		}), map[string]any{"msg": "close", "bytes_up": 1.0, "bytes_down": 2.0, "duration_ms": 1000.0, "cause": "idle"}},
		"a question for a name": {&entry{session: &session{spec: lease.Spec{ID: "a"}}, policy: "p", name: &dnsguard.Record{
			Name: "b.example", Type: "A", Verdict: dnsguard.Deny, Reason: "not_allowed", Detail: "no rule", Suppressed: 3,
		}}, map[string]any{"msg": "decision", "proto": "dns", "target": "b.example", "type": "A", "allowed": false, "code": "not_allowed", "reason": "no rule", "suppressed": 3.0, "conn": nil}},
	} {
		line := written(t, c.e)
		if all, ok := line["resolved"].([]any); ok {
			var texts []string
			for _, a := range all {
				texts = append(texts, a.(string))
			}
			line["resolved"] = strings.Join(texts, " ")
		}
		for field, value := range c.want {
			if line[field] != value {
				t.Errorf("%s: %s is %v, want %v", name, field, line[field], value)
			}
		}
	}
}

// slowHandler is one that takes no line before it is let go.
type slowHandler struct {
	slog.Handler
	entered chan struct{}
	release chan struct{}
}

func (h slowHandler) Handle(ctx context.Context, r slog.Record) error {
	select {
	case h.entered <- struct{}{}:
	default:
	}
	<-h.release
	return h.Handler.Handle(ctx, r)
}

// A log that is slow holds up nobody, what had no room is counted, and the count is in
// the log as soon as that takes lines again.
func TestAuditDropsAndSays(t *testing.T) {
	var log trail
	h := slowHandler{log.logger().Handler(), make(chan struct{}, 1), make(chan struct{})}
	a := newAudit(func() slog.Handler { return h }, 3)
	go a.run()
	e := entryFor(t, "a.example:443", (*policy.Set).Decide, func(*proxy.Record) {})
	a.offer(e)
	<-h.entered // it is out of the queue, and its line is being written
	for range 3 + 7 {
		a.offer(e)
	}
	if n := a.dropped.Load(); n != 7 || len(a.queue) != 3 {
		t.Errorf("%d dropped, %d wait", n, len(a.queue))
	}
	close(h.release)
	eventually(t, "the count", func() bool { return len(log.of(t, "dropped")) == 1 })
	if line := log.of(t, "dropped")[0]; line["count"] != 7.0 || line["level"] != "ERROR" {
		t.Errorf("%v", line)
	}
	a.close()
	if n := len(log.of(t, "decision")); n != 4 {
		t.Errorf("%d lines", n)
	}
}

// The end of the process writes what waits, also when lines were lost at the very end.
func TestAuditIsFlushed(t *testing.T) {
	var log trail
	a := newAudit(log.logger().Handler, 2)
	e := entryFor(t, "a.example:443", (*policy.Set).Decide, func(*proxy.Record) {})
	for range 5 {
		a.offer(e)
	}
	go a.run()
	a.close()
	if n, lost := len(log.of(t, "decision")), log.of(t, "dropped"); n != 2 || len(lost) != 1 || lost[0]["count"] != 3.0 {
		t.Errorf("%d lines, lost %v", n, lost)
	}
}

// Observers hear of everything, in the log or not.
func TestObserve(t *testing.T) {
	var mu sync.Mutex
	var kinds []string
	r := New(Options{RunDir: runDir(t), Observe: func(rec *proxy.Record) {
		mu.Lock()
		defer mu.Unlock()
		kinds = append(kinds, string(rec.Kind)+" "+rec.Code())
	}})
	upstream := echo(t)
	r.Push(generation(t, r, rule(upstream)))
	s := open(t, r, lease.Spec{ID: "a"})
	connect(t, "tcp", s.HTTP, "127.0.0.2:443")
	connect(t, "tcp", s.HTTP, upstream).Close()
	if err := r.Destruct(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(kinds, ", "); got != "decision not_allowed, decision allowed, close allowed" {
		t.Error(got)
	}
}
