package egress

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/caddy-modules/policy"
)

func targetOf(tb testing.TB, host string, port uint16) policy.Target {
	tb.Helper()
	h, err := policy.ParseHost(host)
	if err != nil {
		tb.Fatal(err)
	}
	target, err := policy.NewTarget(h, port, policy.SchemeTLS)
	if err != nil {
		tb.Fatal(err)
	}
	return target
}

// newAlways makes a list in a folder that nobody else may write to, whatever the
// umask.
func newAlways(tb testing.TB, text string, perm fs.FileMode) alwaysList {
	tb.Helper()
	dir := tb.TempDir()
	path := filepath.Join(dir, "approved.list")
	if err := os.Chmod(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Chmod(path, perm); err != nil {
		tb.Fatal(err)
	}
	return alwaysList{path}
}

func TestAlwaysListAdds(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	l := newAlways(t, "# mine\nexample.com 443", 0o640)
	for _, c := range []struct {
		host string
		port uint16
		by   string
		want bool
	}{
		{"EXAMPLE.org.", 8443, "ada", true},
		{"example.org", 8443, "bo", false}, // twice
		{"example.com", 443, "ada", false},
		{"2001:db9::1", 22, "eve\n*.evil.example\r\x1b[0m # x", true},
		{"1.1.1.1", 53, strings.Repeat("x", 1000), true},
	} {
		added, err := l.add(targetOf(t, c.host, c.port), approval{by: c.by, session: "s1", at: at})
		if err != nil || added != c.want {
			t.Errorf("%s: %v %v", c.host, added, err)
		}
	}
	got, err := os.ReadFile(l.path)
	if err != nil {
		t.Fatal(err)
	}
	want := "# mine\nexample.com 443\n" +
		"# approved by ada, 2026-05-04T03:02:01Z, session s1\nexample.org 8443\n" +
		"# approved by eve_*.evil.example__[0m_#_x, 2026-05-04T03:02:01Z, session s1\n2001:db9::1 22\n" +
		"# approved by " + strings.Repeat("x", 64) + ", 2026-05-04T03:02:01Z, session s1\n1.1.1.1 53\n"
	if string(got) != want {
		t.Errorf("the list is\n%s\nwant\n%s", got, want)
	}
	info, err := os.Stat(l.path)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if rules, err := policy.ParseList(bytes.NewReader(got), "l"); err != nil || len(rules) != 4 {
		t.Errorf("%d rules, %v", len(rules), err)
	}
	entries, _ := os.ReadDir(filepath.Dir(l.path))
	if len(entries) != 1 {
		t.Errorf("left beside it: %v", entries)
	}
}

// A rule that opens nothing is an error of the next load, so it is not written; nor
// is anything added to a list that does not parse.
func TestAlwaysListStaysLoadable(t *testing.T) {
	l := newAlways(t, "", 0o600)
	for _, host := range []string{"localhost", "x.localhost", "169.254.169.254"} {
		if _, err := l.add(targetOf(t, host, 80), approval{}); err == nil {
			t.Errorf("%s was written", host)
		}
	}
	broken := newAlways(t, "https://example.com/\n", 0o600)
	if _, err := broken.add(targetOf(t, "example.org", 443), approval{}); err == nil || !strings.Contains(err.Error(), ":1") {
		t.Errorf("a broken list: %v", err)
	}
	for _, l := range []alwaysList{l, broken} {
		if text, _ := os.ReadFile(l.path); strings.Contains(string(text), "#") {
			t.Errorf("%s", text)
		}
	}
}

func TestAlwaysListRefuses(t *testing.T) {
	shut := func(perm fs.FileMode) func(*testing.T) string {
		return func(t *testing.T) string { t.Helper(); return newAlways(t, "", perm).path }
	}
	for name, c := range map[string]struct {
		path func(*testing.T) string
		want string // "": fine
	}{
		"0600":     {shut(0o600), ""},
		"0644":     {shut(0o644), ""},
		"0660":     {shut(0o660), "chmod 0600"},
		"0602":     {shut(0o602), "chmod 0600"},
		"relative": {func(*testing.T) string { return "approved.list" }, "absolute"},
		"missing": {func(t *testing.T) string {
			t.Helper()
			return filepath.Join(filepath.Dir(newAlways(t, "", 0o600).path), "x.list")
		}, "make an empty one"},
		"no folder": {func(t *testing.T) string { t.Helper(); return filepath.Join(t.TempDir(), "x", "y.list") }, "no such file"},
		"a folder":  {func(t *testing.T) string { t.Helper(); return filepath.Dir(newAlways(t, "", 0o600).path) }, "not a regular file"},
		"a link": {func(t *testing.T) string {
			t.Helper()
			file := newAlways(t, "", 0o600).path
			link := filepath.Join(filepath.Dir(file), "link.list")
			if err := os.Symlink(file, link); err != nil {
				t.Fatal(err)
			}
			return link
		}, "symbolic link"},
		"a link to the folder": {func(t *testing.T) string {
			t.Helper()
			file := newAlways(t, "", 0o600).path
			link := filepath.Join(filepath.Dir(newAlways(t, "", 0o600).path), "d")
			if err := os.Symlink(filepath.Dir(file), link); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(link, filepath.Base(file))
		}, ""},
		"open folder": {func(t *testing.T) string {
			t.Helper()
			path := newAlways(t, "", 0o600).path
			if err := os.Chmod(filepath.Dir(path), 0o777|fs.ModeSticky); err != nil {
				t.Fatal(err)
			}
			return path
		}, "others may write to the folder"},
		"open folder above": {func(t *testing.T) string {
			t.Helper()
			above := filepath.Dir(newAlways(t, "", 0o600).path)
			dir := filepath.Join(above, "in")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(above, 0o770); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "x.list")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}, "others may write to the folder"},
	} {
		t.Run(name, func(t *testing.T) {
			l := alwaysList{c.path(t)}
			err := l.check()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if _, again := l.add(targetOf(t, "example.com", 443), approval{by: "a"}); (again == nil) != (err == nil) {
				t.Errorf("check says %v, add %v", err, again)
			}
		})
	}
}

// Somebody else's file: one that root gives away, and for everybody else one of root's.
func TestAlwaysListRefusesOthersFile(t *testing.T) {
	l := alwaysList{"/etc/passwd"}
	if os.Geteuid() == 0 {
		l = newAlways(t, "", 0o600)
		if err := os.Chown(l.path, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.check(); err == nil || !strings.Contains(err.Error(), "another user") {
		t.Error(err)
	}
}

// Two generations and an editor at once: no line is lost.
func TestAlwaysListTogether(t *testing.T) {
	l := newAlways(t, "", 0o600)
	const each = 20
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range each {
				if _, err := l.add(targetOf(t, fmt.Sprintf("h%d-%d.example.com", i, j), 443), approval{by: "a"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(l.path)
	if err != nil {
		t.Fatal(err)
	}
	if rules, err := policy.ParseList(bytes.NewReader(text), "l"); err != nil || len(rules) != 4*each {
		t.Errorf("%d rules, %v", len(rules), err)
	}
}

// alwaysChild makes the test program itself the process that is killed.
const alwaysChild = "POSTERN_TEST_ALWAYS_LIST"

func TestAlwaysListIsAtomic(t *testing.T) {
	if path := os.Getenv(alwaysChild); path != "" {
		for i := 0; ; i++ {
			if _, err := (alwaysList{path}).add(targetOf(t, "h"+strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(i)+".example.com", 443), approval{by: "a"}); err != nil {
				t.Fatal(err)
			}
			fmt.Println(i) // what the parent counts on
		}
	}
	l := newAlways(t, "first.example.com\n", 0o600)
	for i := range 8 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAlwaysListIsAtomic$")
		cmd.Env = append(os.Environ(), alwaysChild+"="+l.path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		before := linesOf(t, l)
		// Killed at whatever it is doing after some lines.
		buf, seen := make([]byte, 16), 0
		for seen <= i {
			n, err := out.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			seen += bytes.Count(buf[:n], []byte("\n"))
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if after := linesOf(t, l); after < before+seen {
			t.Errorf("%d lines of %d were lost", before+seen-after, before+seen)
		}
	}
}

// linesOf demands that the list is whole, and counts its rules.
func linesOf(t *testing.T, l alwaysList) int {
	t.Helper()
	text, err := os.ReadFile(l.path)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := policy.ParseList(bytes.NewReader(text), l.path)
	if err != nil || !bytes.HasPrefix(text, []byte("first.example.com\n")) || text[len(text)-1] != '\n' {
		t.Fatalf("%v in\n%s", err, text)
	}
	return len(rules)
}
