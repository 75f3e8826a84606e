package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// asMain makes the test binary be the program: it is what runs itself inside
// the lab.
const asMain = "POSTERN_CONFORM_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// built is the appliance, built once for all tests.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// applianceBinary builds the appliance at the first call.
func applianceBinary(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the appliance")
	}
	built.once.Do(func() {
		built.dir, built.err = os.MkdirTemp("", "conform-test-") //nolint:usetesting // outlives the test: all share it
		if built.err == nil {
			built.err = buildAppliance(filepath.Join(built.dir, "caddy"))
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "caddy")
}

// conformRun runs the program and gives its exit status and output.
func conformRun(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	binary := applianceBinary(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asMain+"=1", binaryVar+"="+binary)
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), out.String(), errb.String()
	} else if err != nil {
		t.Fatal(err)
	}
	return 0, out.String(), errb.String()
}

// sample reads the sample's lines by id.
func sample(t *testing.T, file string) map[string]map[string]any {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]map[string]any{}
	for line := range bytes.Lines(raw) {
		var c map[string]any
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		cases[c["id"].(string)] = c
	}
	return cases
}

// write makes a case file.
func write(t *testing.T, lines ...any) string {
	t.Helper()
	var b strings.Builder
	for _, l := range lines {
		if s, ok := l.(string); ok {
			b.WriteString(s + "\n")
			continue
		}
		raw, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(raw, '\n'))
	}
	file := filepath.Join(t.TempDir(), "cases.jsonl")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSamplePasses(t *testing.T) {
	code, out, stderr := conformRun(t, "egress", "testdata/sample.jsonl")
	if want := fmt.Sprintf("%d passed, 0 failed\n", len(sample(t, "testdata/sample.jsonl"))); code != exitPassed || out != want {
		t.Errorf("exit status %d, output\n%s%s", code, out, stderr)
	}
}

// A wrong expectation must come out as failed, whatever it is wrong about; and
// only that.
func TestWrongExpectationsFail(t *testing.T) {
	cases := sample(t, "testdata/sample.jsonl")
	change := func(id, newID string, fields map[string]any) map[string]any {
		c := maps.Clone(cases[id])
		if c == nil {
			t.Fatalf("no case %s", id)
		}
		maps.Copy(c, fields)
		c["id"] = newID
		return c
	}
	expect := func(v string) map[string]any { return map[string]any{"expect": v} }
	lines := []any{
		change("m001", "match-allow-as-deny", expect("deny")),
		change("m009", "match-deny-as-allow", expect("allow")),
		change("m009", "match-deny-as-error", expect("error")),
		change("m055", "bad-pattern-as-deny", expect("deny")),
		change("c001", "connect-allow-as-deny", expect("deny")),
		change("c002", "connect-deny-as-error", expect("error")),
		change("c008", "connect-error-as-deny", expect("deny")),
		change("c143", "sni-deny-as-allow", expect("allow")),
		change("c139", "wrong-sni", map[string]any{"sni": "evil.com"}),
		change("c087", "public-answer", map[string]any{"resolve": map[string]any{"api.example.com": []string{"93.184.216.34"}}}),
		change("c001", "too-many-lookups", map[string]any{"expect_dns_queries": 0}),
		change("c175", "no-revocation", map[string]any{"timing": ""}),
		change("h039", "sequence", map[string]any{"expect_seq": []string{"allow", "allow"}}),
		change("h083", "no-100", map[string]any{"timing": "expect_continue", "input": "POST http://api.github.com/ HTTP/1.1\r\nHost: api.github.com\r\nContent-Length: 0\r\n\r\n"}),
		change("s001", "socks-allow-as-deny", expect("deny")),
		change("s042", "socks-error-as-deny", expect("deny")),
		change("o001", "socks4-as-allow", expect("allow")),
		change("m001", "good-1", nil),
		change("c002", "good-2", nil),
		change("c001", "unknown-variant", map[string]any{"tls_variant": "by pigeon"}),
		change("c001", "unknown-proto", map[string]any{"proto": "gopher"}),
		`{"id": "broken"`,
	}
	file := write(t, lines...)
	code, out, stderr := conformRun(t, "egress", file)
	if code != exitFailed {
		t.Fatalf("exit status %d\n%s%s", code, out, stderr)
	}
	got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if last := got[len(got)-1]; last != fmt.Sprintf("2 passed, %d failed", len(lines)-2) {
		t.Errorf("last line %q", last)
	}
	for i, l := range lines {
		id := fmt.Sprintf("%s:%d", file, i+1)
		want := id + ": expected "
		if c, ok := l.(map[string]any); ok {
			id = c["id"].(string)
			want = id + ": expected "
		}
		switch {
		case strings.HasPrefix(id, "good-"):
			if strings.Contains(out, id) {
				t.Errorf("%s failed", id)
			}
			continue
		case strings.HasPrefix(id, "unknown-"):
			want = id + ": not yet ("
		}
		if !strings.HasPrefix(out, want) && !strings.Contains(out, "\n"+want) {
			t.Errorf("no line %q", want)
		}
	}
	if t.Failed() {
		t.Logf("output:\n%s%s", out, stderr)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"egress"}, {"ingress", "x"}, {"egress", "no-such-file"}} {
		var out, errb bytes.Buffer
		if code := run(args, &out, &errb); code != exitUsage || !strings.HasPrefix(errb.String(), "conform: ") || out.Len() > 0 {
			t.Errorf("%q: exit status %d, %q, %q", args, code, out.String(), errb.String())
		}
	}
}
