package policy

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// million is the length of list that is promised to load.
const million = 1_000_000

// writeLongList writes so many rules of the kinds that long lists are made of.
func writeLongList(tb testing.TB, n int) string {
	tb.Helper()
	name := filepath.Join(tb.TempDir(), "long.list")
	f, err := os.Create(name)
	if err != nil {
		tb.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for i := range n {
		switch i % 10 {
		case 0:
			_, _ = fmt.Fprintf(w, "*.zone%d.example.com\n", i)
		case 1:
			_, _ = fmt.Fprintf(w, "host%d.svc.example.org 443\n", i)
		default:
			_, _ = fmt.Fprintf(w, "www.host-%d.example.org\n", i)
		}
	}
	if err := w.Flush(); err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
	return name
}

func loadLong(tb testing.TB, path string) *Set {
	tb.Helper()
	list, err := LoadList(path, "long.list")
	if err != nil {
		tb.Fatal(err)
	}
	s, err := Compile(Lists{AllowLists: []*List{list}}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// A list of a million lines fits in 200 MiB, the process around it included. The
// measure is taken in a process of its own, which does nothing else. The race detector
// would multiply it: `make test` runs this one apart, by its name.
func TestMemoryOfMillionLines(t *testing.T) {
	const child = "POSTERN_TEST_LONG_LIST"
	if path := os.Getenv(child); path != "" {
		s := loadLong(t, path)
		for in, want := range map[string]string{
			"a.zone999990.example.com:443":     "long.list:999991",
			"host1.svc.example.org:443":        "long.list:2",
			"www.host-999999.example.org:80":   "long.list:1000000",
			"www.host-1000000.example.org:443": "",
		} {
			if d := s.Decide(targetOf(t, in)); d.Allowed != (want != "") || d.Source != want {
				t.Errorf("%s: %s", in, d.Reason())
			}
		}
		// Nothing here skips: a child that measured nothing would count as one that passed.
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "VmHWM:")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			t.Fatalf("no VmHWM in %q", status)
		}
		kib, err := strconv.Atoi(fields[0])
		if err != nil || kib > 200<<10 {
			t.Errorf("a list of a million lines took %d KiB, %v", kib, err)
		}
		t.Logf("%d KiB", kib)
		return
	}
	switch {
	case runtime.GOOS != "linux":
		t.Skip("only Linux says how much memory a process has had")
	case testing.Short() || raceEnabled:
		t.Skip("measures memory; go test -run Memory ./caddy-modules/policy does, without -race")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestMemoryOfMillionLines$", "-test.v")
	cmd.Env = append(os.Environ(), child+"="+writeLongList(t, million))
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

func BenchmarkCompileMillion(b *testing.B) {
	path := writeLongList(b, million)
	b.ReportAllocs()
	for b.Loop() {
		loadLong(b, path)
	}
}

// Decisions are no slower for a long list.
func BenchmarkDecideLong(b *testing.B) {
	for _, n := range []int{1000, million} {
		s := loadLong(b, writeLongList(b, n))
		targets := benchTargets(b, n, "www.host-%d.example.org:443", 5)
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if d := s.Decide(targets[i%len(targets)]); !d.Allowed {
					b.Fatal(d.Reason())
				}
			}
		})
	}
}

// A list file says what the same rules say in a list, whatever they are.
func TestPropListFile(t *testing.T) {
	line := rapid.Custom(func(t *rapid.T) string {
		text := rapid.OneOf(genLine, genPattern).Draw(t, "rule")
		return text + rapid.SampledFrom([]string{"", " 443", " 80 443", " # why", "\r", " http", " tcp"}).Draw(t, "rest")
	})
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(line, 0, 8).Draw(t, "lines")
		text := strings.Join(lines, "\n")
		rules, err := ParseList(strings.NewReader(text), "x.list")
		listed, lerr := Compile(Lists{AllowLists: []*List{newList(text, "x.list")}}, nil)
		if err != nil || lerr != nil {
			if err == nil || lerr == nil || err.Error() != lerr.Error() {
				t.Fatalf("%q: %v and %v", text, err, lerr)
			}
			return
		}
		plain := mustSet(t, Lists{Allow: rules})
		target := mustTarget(t, genName.Draw(t, "host"), genPort.Draw(t, "port"))
		a, b := plain.Decide(target), listed.Decide(target)
		if a.Code != b.Code || a.Rule != b.Rule || a.Source != b.Source || a.TCP != b.TCP {
			t.Fatalf("%q: %v is %v by %s %s, and %v by %s %s", text, target, a.Code, a.Rule, a.Source, b.Code, b.Rule, b.Source)
		}
		for _, r := range listed.Lists().Allow {
			if again, err := ParseRule(r.String(), r.Origin); err != nil || !reflect.DeepEqual(again, r) {
				t.Fatalf("%q gives the rule %+v", text, r)
			}
		}
		if got, want := len(listed.Dead()), len(plain.Dead()); (got == 0) != (want == 0) {
			t.Fatalf("%q: %d dead rules, and %d", text, got, want)
		}
	})
}

func TestListEmpty(t *testing.T) {
	for text, want := range map[string]bool{"": true, "\ufeff# a\n\n \t# b\r\n": true, "a.example": false, "#\n*": false} {
		if got := newList(text, "x").Empty(); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
