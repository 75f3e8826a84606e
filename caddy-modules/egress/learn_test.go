package egress

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"postern/caddy-modules/policy"
)

// said is a line of the trail, with more fields than are read.
func said(ts int, session, proto, target, code, more string) string {
	return fmt.Sprintf(`{"level":"info","ts":%d.5,"logger":"egress","msg":"decision","conn":7,"session":%q,"agent":"x","policy":"agent","proto":%q,"target":%q,"allowed":false,"code":%q%s}`+"\n", ts, session, proto, target, code, more)
}

const reported = `,"allowed":true,"would_deny":true`

func TestLearn(t *testing.T) {
	var log strings.Builder
	for _, line := range []string{
		said(100, "a", "connect", "b.example:443", "not_allowed", reported),
		said(200, "a", "http", "b.example:80", "not_allowed", ""),
		said(300, "a", "connect", "c.example:8443", "port_not_allowed", ""),
		said(300, "a", "socks5", "c.example:443", "not_allowed", reported),
		said(400, "a", "transparent", "d.example:443", "scheme_not_allowed", ""),
		said(400, "a", "dns", "e.example", "not_allowed", ""),
		said(400, "a", "connect", "93.184.216.34:443", "not_allowed", ""),
		said(400, "a", "connect", "[2606:2800::1]:22", "not_allowed", ""),
		// What is not drafted.
		said(400, "a", "connect", "ok.example:443", "allowed", `,"allowed":true`),
		said(400, "a", "connect", "denied.example:443", "denied", reported),
		said(400, "a", "connect", "never.example:443", "always_denied", ""),
		said(400, "a", "connect", "inside.example:443", "address_class", ""),
		said(400, "a", "connect", "10.0.0.1:5432", "not_allowed", ""),
		said(400, "a", "connect", "localhost:3000", "not_allowed", ""),
		said(400, "a", "connect", "not a host:443", "not_allowed", ""),
		said(400, "a", "connect", "b.example:443", "made up", ""),
		said(400, "other", "connect", "other.example:443", "not_allowed", ""),
		`{"level":"info","ts":1,"msg":"close","session":"a","target":"closed.example:443","code":"not_allowed"}` + "\n",
		`{"level":"info","ts":1,"msg":"something","note":"decision"}` + "\n",
		"no json\n",
		strings.Repeat("x", maxLogLine+5) + "\n",
		`{"msg":"decision","session":"a","targ`,
	} {
		log.WriteString(line)
	}
	l := learner{session: "a"}
	lines, objects, err := l.readLines(strings.NewReader(log.String()))
	if err != nil || lines != 21 || objects != 19 {
		t.Errorf("%d lines, %d of JSON, %v", lines, objects, err)
	}
	draft, rules, err := l.draft()
	const want = `b.example # seen 2×, connect http, 1970-01-01T00:01:40Z to 1970-01-01T00:03:20Z
c.example 443 8443 # seen 2×, connect socks5, 1970-01-01T00:05:00Z
d.example # seen 1×, transparent, 1970-01-01T00:06:40Z
e.example # seen 1×, dns, 1970-01-01T00:06:40Z
93.184.216.34 443 # seen 1×, connect, 1970-01-01T00:06:40Z
2606:2800::1 22 # seen 1×, connect, 1970-01-01T00:06:40Z
# not drafted: localhost 3000 (the name means this machine), seen 1×
# not drafted: 10.0.0.1 5432 (it is an address of a private network (RFC 1918)), seen 1×
# not drafted: 1 decisions with the code address_class
# not drafted: 1 decisions with the code always_denied
# not drafted: 1 decisions with the code denied
# not drafted: 1 decisions with the code unknown
# not drafted: 1 decisions whose target cannot be read
`
	if err != nil || rules != 6 || string(draft) != want {
		t.Errorf("%d rules, %v:\n%s", rules, err, draft)
	}
	// The list allows what was seen.
	list, err := policy.ParseList(bytes.NewReader(draft), "draft")
	if err != nil {
		t.Fatal(err)
	}
	set, err := policy.Compile(policy.Lists{Allow: list}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for target, allowed := range map[string]bool{
		"b.example:443": true, "b.example:80": true, "c.example:8443": true, "c.example:443": true, "c.example:80": false, "93.184.216.34:443": true,
		"[2606:2800::1]:22": true, "[2606:2800::1]:80": false, "10.0.0.1:5432": false, "denied.example:443": false,
	} {
		to, err := policy.ParseTarget(target, policy.SchemeTCP)
		if err != nil {
			t.Fatal(err)
		}
		if got := set.Decide(to).Allowed; got != allowed {
			t.Errorf("%s: %v", target, got)
		}
	}
}

func TestLearnHintsAndBounds(t *testing.T) {
	var l learner
	for i := range 5 {
		l.add(&auditLine{Proto: "connect", Target: fmt.Sprintf("h%d.cdn.example:443", i), Code: "not_allowed"}, time.Unix(1, 0))
		l.add(&auditLine{Proto: "connect", Target: fmt.Sprintf("h%d.example:443", i), Code: "not_allowed"}, time.Unix(1, 0))
	}
	for port := range 1000 {
		l.add(&auditLine{Proto: "connect", Target: fmt.Sprintf("scanned.test:%d", port+1), Code: "not_allowed"}, time.Unix(1, 0))
	}
	draft, rules, err := l.draft()
	if err != nil || rules != 10 {
		t.Fatalf("%d rules, %v\n%s", rules, err, draft)
	}
	for text, want := range map[string]bool{
		"# 5 hosts are directly below cdn.example: if that is one owner's, *.cdn.example allows": true,
		"*.example allows": false,
		"# not drafted: scanned.test (1000 ports of it were asked for": true,
	} {
		if strings.Contains(string(draft), text) != want {
			t.Errorf("%q there: %v\n%s", text, !want, draft)
		}
	}
}

// What was refused for its scheme alone is opened for that scheme alone.
func TestLearnKeepsSchemes(t *testing.T) {
	const code = "scheme_not_allowed"
	var l learner
	for _, d := range []auditLine{
		{Proto: "http", Target: "plain.example:80", Code: code, Scheme: "http"},
		{Proto: "http", Target: "odd.example:8080", Code: code, Scheme: "http"},
		{Proto: "connect", Target: "tls.example:443", Code: code, Scheme: "tls"},
		{Proto: "connect", Target: "any.example:8443", Code: code, Scheme: "tcp"},
		{Proto: "connect", Target: "both.example:443", Code: code, Scheme: "tls"},
		{Proto: "http", Target: "both.example:80", Code: code, Scheme: "http"},
		{Proto: "connect", Target: "new.example:443", Code: "not_allowed", Scheme: "tls"},
		{Proto: "http", Target: "93.184.216.34:80", Code: code, Scheme: "http"},
		{Proto: "http", Target: "evil.example:80", Code: code, Scheme: "http\nevil"},
	} {
		l.add(&d, time.Unix(1, 0))
	}
	draft, _, err := l.draft()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(draft)) {
		rule, _, _ := strings.Cut(line, " #")
		lines = append(lines, rule)
	}
	want := []string{
		"any.example 8443", "both.example", "evil.example", "new.example", "odd.example 8080 http", "plain.example 80 http", "tls.example 443 https", "93.184.216.34 80 http",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("drafted %q", lines)
	}
	list, err := policy.ParseList(bytes.NewReader(draft), "draft")
	if err != nil {
		t.Fatal(err)
	}
	set, err := policy.Compile(policy.Lists{Allow: list}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		target  string
		scheme  policy.Scheme
		allowed bool
	}{
		{"plain.example:80", policy.SchemeHTTP, true},
		{"plain.example:443", policy.SchemeTLS, false},
		{"odd.example:8080", policy.SchemeHTTP, true},
		{"odd.example:8080", policy.SchemeTCP, false},
		{"tls.example:443", policy.SchemeTLS, true},
		{"tls.example:80", policy.SchemeHTTP, false},
		{"any.example:8443", policy.SchemeTCP, true},
	} {
		to, err := policy.ParseTarget(c.target, c.scheme)
		if err != nil {
			t.Fatal(err)
		}
		if got := set.Decide(to).Allowed; got != c.allowed {
			t.Errorf("%s as %s: %v", c.target, c.scheme, got)
		}
	}
}

// A trail with holes makes a draft with holes, which says so.
func TestLearnTellsOfMissingLines(t *testing.T) {
	l := learner{session: "a", since: time.Unix(50, 0)}
	log := `{"level":"error","ts":10,"msg":"dropped","count":100}` + "\n" + said(100, "a", "connect", "b.example:443", "not_allowed", "") +
		`{"level":"error","ts":101,"msg":"dropped","count":3,"reason":"slow"}` + "\n" + `{"level":"error","ts":102,"msg":"dropped","count":-7}` + "\n" +
		`{"level":"info","ts":103,"msg":"said","note":"dropped","count":9}` + "\n"
	if _, _, err := l.readLines(strings.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	draft, rules, err := l.draft()
	if err != nil || rules != 1 || !strings.Contains(string(draft), "\n# the trail left out 3 lines") {
		t.Errorf("%d rules, %v\n%s", rules, err, draft)
	}
}

// The files that Caddy rolled away count, and only what is young enough.
func TestLearnReadsRolledFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		data := []byte(text)
		if strings.HasSuffix(name, ".gz") {
			var buf bytes.Buffer
			z := gzip.NewWriter(&buf)
			_, _ = z.Write(data)
			_ = z.Close()
			data = buf.Bytes()
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "egress.log")
	if err := new(learner).read(path); err == nil || !strings.Contains(err.Error(), "--log") {
		t.Errorf("no log: %v", err)
	}
	write("egress.log", said(300, "a", "connect", "now.example:443", "not_allowed", ""))
	write("egress-2026-01-01T00-00-00.000-size.log.gz", said(100, "a", "connect", "first.example:443", "not_allowed", ""))
	write("egress-2026-01-02T00-00-00.000.log", said(200, "b", "connect", "second.example:443", "not_allowed", ""))
	write("egressive.log", "no log of ours\n")
	for name, c := range map[string]struct {
		l    learner
		want string
	}{
		"all":     {learner{}, "first.example now.example second.example"},
		"session": {learner{session: "a"}, "first.example now.example"},
		"since":   {learner{since: time.Unix(150, 0)}, "now.example second.example"},
		"policy":  {learner{policy: "other"}, ""},
	} {
		if err := c.l.read(path); err != nil {
			t.Fatal(err)
		}
		draft, _, err := c.l.draft()
		if err != nil {
			t.Fatal(err)
		}
		var hosts []string
		for line := range strings.Lines(string(draft)) {
			host, _, _ := strings.Cut(line, " ")
			hosts = append(hosts, host)
		}
		if got := strings.Join(hosts, " "); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	write("plain.log", "INFO egress decision\n")
	if err := new(learner).read(filepath.Join(dir, "plain.log")); err == nil || !strings.Contains(err.Error(), "format json") {
		t.Errorf("a log that is not JSON: %v", err)
	}
}

func TestLearnCommand(t *testing.T) {
	dir := t.TempDir()
	log, list := filepath.Join(dir, "egress.log"), filepath.Join(dir, "draft.list")
	if err := os.WriteFile(log, []byte(said(int(time.Now().Unix()), "a", "connect", "b.example:443", "not_allowed", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want string // of the output, or of the error
		ok   bool
	}{
		{"", "name a session, or say --since", false},
		{"--since yesterday", "parse --since", false},
		{"nobody", "nothing to learn", false},
		{"a", "b.example # seen 1×", true},
		{"--since 1h", "b.example # seen 1×", true},
		{"--since 2006-01-02T15:04:05Z a", "b.example # seen 1×", true},
		{"--since 2106-01-02T15:04:05Z a", "nothing to learn", false},
		{"a --write " + list, "", true},
		{"a --write " + list, "file exists", false},
	} {
		cmd := learnCommand()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SilenceUsage = true
		cmd.SetArgs(append(strings.Fields(c.args), "--log", log))
		err := cmd.Execute()
		text := out.String()
		if err != nil {
			text = err.Error()
		}
		if (err == nil) != c.ok || !strings.Contains(text, c.want) {
			t.Errorf("learn %s: %v, %s", c.args, err, text)
		}
	}
	written, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	if rules, err := policy.ParseList(bytes.NewReader(written), list); err != nil || len(rules) != 1 {
		t.Errorf("%v %v", rules, err)
	}
}

func TestLearnTimes(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, text := range []string{
		"1772600767", "1772600767.0", "1772600767000", "1772600767000000000", `"2026-03-04T05:06:07Z"`, `"2026-03-04T05:06:07.000Z"`, `"2026-03-04T06:06:07.000+0100"`,
		at.In(time.Local).Format(`"2006/01/02 15:04:05.000"`), at.In(time.Local).Format(`"2006/01/02 15:04:05"`),
	} {
		if got := stamp([]byte(text)); !got.Equal(at) {
			t.Errorf("%s is %s", text, got)
		}
	}
	for _, text := range []string{"", "null x", `"yesterday"`, "{}"} {
		if got := stamp([]byte(text)); !got.IsZero() {
			t.Errorf("%s is %s", text, got)
		}
	}
}

// Whatever is in a log, what comes of it is a list that a policy takes.
func FuzzLearn(f *testing.F) {
	f.Add([]byte(said(100, "a", "connect", "b.example:443", "not_allowed", reported)))
	f.Add([]byte(said(100, "a", "dns", "*.example", "not_allowed", "")))
	f.Add([]byte(said(100, "a", "connect", "[::ffff:1.2.3.4]:1", "port_not_allowed", "")))
	f.Add([]byte(said(100, "a", "x\n# y", "b.example:1\nevil.example", "a\nb", "")))
	f.Fuzz(func(t *testing.T, data []byte) {
		var l learner
		if _, _, err := l.readLines(bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		draft, rules, err := l.draft()
		if err != nil {
			t.Fatalf("%v in\n%s", err, draft)
		}
		if list, err := policy.ParseList(bytes.NewReader(draft), "draft"); err != nil || len(list) != rules {
			t.Fatalf("%v in\n%s", err, draft)
		}
	})
}
