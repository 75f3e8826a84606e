package sandbox

import (
	"path"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// planText is one line an operation.
func planText(plan []Mount) string {
	var b strings.Builder
	for _, m := range plan {
		b.WriteString(string(m.Op))
		for _, part := range []string{m.Perms, m.Source, m.Target} {
			if part != "" {
				b.WriteByte(' ')
				b.WriteString(part)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// innerText is the part of a plan that is the run's own.
func innerText(f *Facts) string { return strings.TrimSpace(planText(inner(f))) }

// access is what a path is like when every mount has been made.
type access struct {
	host     bool // it is the host's file
	writable bool
	by       Mount
}

// look models the kernel: the last mount at or above a path decides, and a remount
// changes the one it names.
func look(plan []Mount, p string) access {
	var a access
	for _, m := range plan {
		if m.Op == OpRemountRO {
			if a.by.Target == m.Target {
				a.writable = false
			}
			continue
		}
		if !contains(m.Target, p) {
			continue
		}
		switch m.Op {
		case OpBind:
			a = access{host: true, writable: true, by: m}
		case OpRoBind:
			a = access{host: m.Source == m.Target, by: m}
		case OpTmpfs, OpDev, OpProc:
			a = access{writable: true, by: m}
		case OpDir, OpFile, OpSymlink, OpRemountRO:
			// They are entries of the mount they lie in.
		}
	}
	return a
}

func TestPlan(t *testing.T) {
	for _, tc := range []struct {
		name    string
		roots   []Root
		denials []Denial
		want    string
	}{
		{
			"a writable folder",
			[]Root{{Path: "/w", Writable: true, Dir: true}},
			nil,
			"--bind /w /w",
		},
		{
			"hooks: every ancestor inside the root is pinned",
			[]Root{{Path: "/w", Writable: true, Dir: true}},
			[]Denial{{Path: "/w/.git/config"}, {Path: "/w/.git/hooks", Dir: true}},
			"--bind /w /w\n--bind /w/.git /w/.git\n--ro-bind /w/.git/config /w/.git/config\n--ro-bind /w/.git/hooks /w/.git/hooks",
		},
		{
			"a pin comes before what lies below it, also from another denial",
			[]Root{{Path: "/w", Writable: true, Dir: true}},
			[]Denial{{Path: "/w/a"}, {Path: "/w/b/c/d"}},
			"--bind /w /w\n--ro-bind /w/a /w/a\n--bind /w/b /w/b\n--bind /w/b/c /w/b/c\n--ro-bind /w/b/c/d /w/b/c/d",
		},
		{
			"nothing to protect in a read-only folder",
			[]Root{{Path: "/w", Dir: true}},
			[]Denial{{Path: "/w/.git/hooks", Dir: true}},
			"--ro-bind /w /w",
		},
		{
			"a secret is hidden in a read-only folder too",
			[]Root{{Path: "/w", Dir: true}},
			[]Denial{{Path: "/w/s", Kind: Hide, Dir: true}, {Path: "/w/f", Kind: Hide}},
			"--ro-bind /w /w\n--ro-bind /dev/null /w/f\n--tmpfs 0000 /w/s\n--remount-ro /w/s",
		},
		{
			"a read-only folder in a writable one cannot be moved away",
			[]Root{{Path: "/w", Writable: true, Dir: true}, {Path: "/w/a/b", Dir: true}},
			nil,
			"--bind /w /w\n--bind /w/a /w/a\n--ro-bind /w/a/b /w/a/b",
		},
		{
			"a writable folder in a read-only one",
			[]Root{{Path: "/w", Dir: true}, {Path: "/w/a", Writable: true, Dir: true}},
			[]Denial{{Path: "/w/a/x"}},
			"--ro-bind /w /w\n--bind /w/a /w/a\n--ro-bind /w/a/x /w/a/x",
		},
		{
			"a denial beats a grant at the same place",
			[]Root{{Path: "/w", Writable: true, Dir: true}, {Path: "/w/a", Writable: true, Dir: true}},
			[]Denial{{Path: "/w/a", Dir: true}},
			"--bind /w /w\n--ro-bind /w/a /w/a",
		},
		{
			"and below it",
			[]Root{{Path: "/w", Writable: true, Dir: true}, {Path: "/w/a/b", Writable: true, Dir: true}},
			[]Denial{{Path: "/w/a", Dir: true}},
			"--bind /w /w\n--ro-bind /w/a /w/a\n--ro-bind /w/a/b /w/a/b",
		},
		{
			"a protected folder around everything makes it read-only",
			[]Root{{Path: "/p/w", Writable: true, Dir: true}},
			[]Denial{{Path: "/p", Dir: true}, {Path: "/p/w/x"}},
			"--ro-bind /p/w /p/w",
		},
		{
			"a hidden folder around a root takes it away",
			[]Root{{Path: "/p/w", Writable: true, Dir: true}, {Path: "/v", Dir: true}},
			[]Denial{{Path: "/p", Kind: Hide, Dir: true}},
			"--ro-bind /v /v",
		},
		{
			"hidden beats protected",
			[]Root{{Path: "/w", Writable: true, Dir: true}},
			[]Denial{{Path: "/w/a", Kind: Hide, Dir: true}, {Path: "/w/a/b"}},
			"--bind /w /w\n--tmpfs 0000 /w/a\n--remount-ro /w/a",
		},
		{
			"hidden inside protected",
			[]Root{{Path: "/w", Writable: true, Dir: true}},
			[]Denial{{Path: "/w/a", Dir: true}, {Path: "/w/a/b", Kind: Hide}},
			"--bind /w /w\n--ro-bind /w/a /w/a\n--ro-bind /dev/null /w/a/b",
		},
		{
			"what the run does not see needs no denial",
			[]Root{{Path: "/w", Writable: true, Dir: true}},
			[]Denial{{Path: "/home/u/.ssh", Kind: Hide, Dir: true}, {Path: "/v/x"}},
			"--bind /w /w",
		},
		{
			"/w is not above /wide",
			[]Root{{Path: "/w", Writable: true, Dir: true}},
			[]Denial{{Path: "/wide/x"}},
			"--bind /w /w",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &Facts{Roots: tc.roots, Denials: tc.denials}
			if got := innerText(f); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func TestBaseIsPrivateAndSealed(t *testing.T) {
	f := &Facts{
		System:  []SystemPath{{Path: "/usr"}, {Path: "/bin", Link: "usr/bin"}, {Path: "/etc/ssl/certs"}},
		Etc:     []Data{{Path: "/etc/passwd", Content: "x"}},
		Home:    "/home/u",
		Runtime: "/run/user/7",
		Exe:     "/opt/postern",
		GitFile: "/host/run/git",
		Links:   []Link{{"/home/u/link", "/w"}, {"/bin", "usr/bin"}, {"/var/run", "/run"}, {"/w/inside", "x"}, {"/home", "/data/home"}},
		Roots:   []Root{{Path: "/w", Writable: true, Dir: true}},
	}
	plan := Plan(f)
	text := planText(plan)
	for _, tc := range []struct {
		path           string
		host, writable bool
	}{
		{"/usr/bin/env", true, false},
		{"/etc/ssl/certs/x.pem", true, false},
		{"/etc/passwd", false, false},
		{"/etc/shadow", false, false},
		{"/tmp/x", false, true},
		{"/home/u/.ssh/id", false, true},
		{"/run/user/7/x", false, true},
		{"/run/docker.sock", false, false},
		{"/run/postern/empty/hook", false, false},
		{"/run/postern/gitconfig", false, false},
		{"/run/postern/postern", false, false},
		{"/w/file", true, true},
		{"/x", false, false},
	} {
		if a := look(plan, tc.path); a.host != tc.host || a.writable != tc.writable && tc.path != "/x" {
			t.Errorf("%s: host %t, writable %t; want %t, %t (by %s %s)", tc.path, a.host, a.writable, tc.host, tc.writable, a.by.Op, a.by.Target)
		}
	}
	for _, want := range []string{
		"--symlink usr/bin /bin\n",    // the system's own link
		"--symlink /w /home/u/link\n", // the way the folder was named
		"--symlink /run/postern/gitconfig /etc/gitconfig\n",
		"--remount-ro /\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, unwanted := range []string{"/w/inside", "/data/home"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("%s would be made where something else is:\n%s", unwanted, text)
		}
	}
	if last := plan[len(plan)-1]; last.Op != OpRemountRO || last.Target != "/" {
		t.Errorf("the last operation is %s %s", last.Op, last.Target)
	}
}

// anyFacts draws roots and denials in one small tree, where they meet often.
func anyFacts(t *rapid.T) *Facts {
	name := rapid.SampledFrom([]string{"a", "b", "c"})
	place := rapid.Custom(func(t *rapid.T) string {
		return "/" + path.Join(rapid.SliceOfN(name, 1, 4).Draw(t, "path")...)
	})
	f := &Facts{Home: "/home/u", Runtime: "/run/user/1"}
	for range rapid.IntRange(1, 4).Draw(t, "roots") {
		p := place.Draw(t, "root")
		if !slices.ContainsFunc(f.Roots, func(r Root) bool { return r.Path == p }) {
			f.Roots = append(f.Roots, Root{Path: p, Writable: rapid.Bool().Draw(t, "writable"), Dir: true})
		}
	}
	if rapid.Bool().Draw(t, "system") {
		f.System = []SystemPath{{Path: "/c"}} // whose parts may be hidden, or be roots
	}
	for range rapid.IntRange(0, 6).Draw(t, "denials") {
		d := Denial{Path: place.Draw(t, "denial"), Kind: rapid.SampledFrom([]DenialKind{Protect, Hide}).Draw(t, "kind"), Dir: rapid.Bool().Draw(t, "dir")}
		if !slices.ContainsFunc(f.Denials, func(o Denial) bool { return o.Path == d.Path }) {
			f.Denials = append(f.Denials, d)
		}
	}
	// In the order Gather gives.
	slices.SortFunc(f.Roots, func(a, b Root) int { return byDepth(a.Path, b.Path) })
	slices.SortFunc(f.Denials, func(a, b Denial) int { return byDepth(a.Path, b.Path) })
	return f
}

// places is every path of the small tree, one level deeper than anything in it.
func places() []string {
	var out []string
	var walk func(at string, depth int)
	walk = func(at string, depth int) {
		for _, name := range []string{"a", "b", "c"} {
			p := path.Join(at, name)
			out = append(out, p)
			if depth < 5 {
				walk(p, depth+1)
			}
		}
	}
	walk("/", 1)
	return out
}

// No later entry re-opens an earlier denial, nothing is writable that no writable
// root gives, and nothing between is in the way of what a root does give.
func TestPlanNeverReopens(t *testing.T) {
	all := places()
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts(t)
		plan := Plan(f)
		for _, p := range all {
			a := look(plan, p)
			root, inRoot := deepest(f.Roots, p)
			inSystem := slices.ContainsFunc(f.System, func(s SystemPath) bool { return contains(s.Path, p) })
			protected, hidden := false, false
			for _, d := range f.Denials {
				if contains(d.Path, p) {
					protected, hidden = true, hidden || d.Kind == Hide
				}
			}
			switch {
			case hidden && a.host:
				t.Fatalf("%s is hidden and visible, by %s %s\n%s", p, a.by.Op, a.by.Target, innerText(f))
			case protected && a.host && a.writable:
				t.Fatalf("%s is protected and writable, by %s %s\n%s", p, a.by.Op, a.by.Target, innerText(f))
			case a.host && a.writable && (!inRoot || !root.Writable):
				t.Fatalf("%s is writable without a root that says so\n%s", p, innerText(f))
			case a.host && !inRoot && !inSystem:
				t.Fatalf("%s is visible without a root\n%s", p, innerText(f))
			case inRoot && !protected && (!a.host || a.writable != root.Writable):
				t.Fatalf("%s should be as its root says (writable %t) and is %+v\n%s", p, root.Writable, a, innerText(f))
			}
		}
	})
}

// What is less than its surroundings cannot be moved out of its place: each
// directory above it that could be renamed is a mount point.
func TestPlanPinsAncestors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts(t)
		plan := Plan(f)
		point := map[string]bool{}
		for _, m := range plan {
			if m.Op == OpBind || m.Op == OpRoBind || m.Op == OpTmpfs {
				point[m.Target] = true
			}
		}
		for _, m := range plan {
			if m.role != roleGuard && (m.role != roleRoot || m.Op != OpRoBind) {
				continue
			}
			for dir := m.Target; dir != "/"; dir = path.Dir(dir) {
				// A directory can be renamed where its parent can be written.
				if a := look(plan, path.Dir(dir)); a.host && a.writable && !point[dir] {
					t.Fatalf("%s can be moved, and %s with it\n%s", dir, m.Target, innerText(f))
				}
			}
		}
	})
}

// Parents before children, so that the order of the options is the order of depth.
func TestPlanOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts(t)
		plan := inner(f)
		for j, later := range plan {
			for _, earlier := range plan[:j] {
				if earlier.Target != later.Target && contains(later.Target, earlier.Target) {
					t.Fatalf("%s %s comes after %s\n%s", later.Op, later.Target, earlier.Target, innerText(f))
				}
				if earlier.Target == later.Target && later.Op != OpRemountRO {
					t.Fatalf("%s is mounted twice\n%s", later.Target, innerText(f))
				}
			}
		}
	})
}

func TestArgs(t *testing.T) {
	fds := fakeDescriptors{}
	got, err := args([]Mount{
		{Op: OpTmpfs, Target: "/tmp", Perms: "1777"},
		{Op: OpBind, Source: "/a b", Target: "/a\nb"},
		{Op: OpFile, Data: "text", Target: "/etc/x", Perms: "0444"},
		{Op: OpFile, Source: "/etc/y", Target: "/etc/y", Perms: "0444"},
		{Op: OpSymlink, Source: "--evil", Target: "/l"},
		{Op: OpRemountRO, Target: "/"},
	}, &fds)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"--perms", "1777", "--tmpfs", "/tmp", "--bind", "/a b", "/a\nb", "--perms", "0444", "--file", "42", "/etc/x", "--perms", "0444", "--file", "43", "/etc/y", "--symlink", "--evil", "/l", "--remount-ro", "/"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if !slices.Equal(fds.contents, []string{"text", "<< /etc/y"}) {
		t.Errorf("contents %q", fds.contents)
	}
	if _, err := args([]Mount{{Op: "--overlay"}}, &fds); err == nil {
		t.Error("an operation nobody knows was written")
	}
}

type fakeDescriptors struct{ contents []string }

func (f *fakeDescriptors) data(content string) (int, error) {
	f.contents = append(f.contents, content)
	return 41 + len(f.contents), nil
}

func (f *fakeDescriptors) file(path string) (int, error) { return f.data("<< " + path) }
