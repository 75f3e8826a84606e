package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// wish is a random profile over one small tree on the disk.
type wish struct {
	profile   Profile
	writable  []string // folders that some bind or state directory lets the run write, without links
	readOnly  []string
	states    []string
	protected []string
	hidden    []string
}

// spelled is one of the ways to write a path: each must mean the same.
func spelled(t *rapid.T, base, rel string) string {
	dir, name := filepath.Split(rel)
	switch rapid.IntRange(0, 5).Draw(t, "spelling") {
	case 1:
		return base + "/" + rel + "/"
	case 2:
		return base + "/./" + dir + "/" + name
	case 3:
		return base + "/a/../" + rel
	case 4:
		return base + "/link/" + rel // link leads to the base
	case 5:
		return base + "/link/../" + filepath.Base(base) + "/" + rel
	}
	return base + "/" + rel
}

func anyWish(t *rapid.T, base string, dirs, all []string) *wish {
	w := &wish{profile: Profile{Home: "/home/u", Mode: rapid.SampledFrom(Modes()).Draw(t, "mode")}}
	for i := range rapid.IntRange(1, 3).Draw(t, "binds") {
		rel := rapid.SampledFrom(dirs).Draw(t, "bind")
		b := Bind{Path: spelled(t, base, rel), ReadOnly: rapid.Bool().Draw(t, fmt.Sprintf("read-only %d", i))}
		w.profile.Binds = append(w.profile.Binds, b)
		if b.ReadOnly || !w.profile.Mode.Writes() {
			w.readOnly = append(w.readOnly, base+"/"+rel)
		} else {
			w.writable = append(w.writable, base+"/"+rel)
		}
	}
	if rapid.Bool().Draw(t, "state") {
		rel := rapid.SampledFrom(dirs).Draw(t, "state directory")
		w.profile.StateDirs = []string{spelled(t, base, rel)}
		w.states = append(w.states, base+"/"+rel)
		w.writable = append(w.writable, base+"/"+rel)
	}
	for range rapid.IntRange(0, 2).Draw(t, "protected") {
		rel := rapid.SampledFrom(all).Draw(t, "protect")
		w.profile.Protected = append(w.profile.Protected, spelled(t, base, rel))
		w.protected = append(w.protected, base+"/"+rel)
	}
	for range rapid.IntRange(0, 2).Draw(t, "hidden") {
		rel := rapid.SampledFrom(all).Draw(t, "hide")
		w.profile.Hidden = append(w.profile.Hidden, spelled(t, base, rel))
		w.hidden = append(w.hidden, base+"/"+rel)
	}
	if rapid.Bool().Draw(t, "patterns") {
		w.profile.HiddenGlobs = []string{"**/*.pem"}
		for _, rel := range all {
			if strings.HasSuffix(rel, ".pem") {
				w.hidden = append(w.hidden, base+"/"+rel)
			}
		}
	}
	return w
}

// From what a caller wishes, in any spelling, to the mounts: what is hidden is not seen,
// what is protected, read-only by its bind or by the mode, or a setting of a runner's
// state directory is not written, and the rest can be used (SPEC 75, 77, 78, 80 to 83).
func TestWishesAreKept(t *testing.T) {
	base := tree(t, "link -> .", "a/f", "a/k.pem", "a/b/f", "a/b/settings.json", "a/b/c/f", "a/b/c/k.pem", "b/settings.json", "b/hooks/f", "b/f", "b/c/.env", "b/c/f", "c/d.pem/f", "c/f", "c/d/e/f")
	var dirs, all []string
	must(t, filepath.WalkDir(base, func(path string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(base, path)
		switch {
		case err != nil || rel == "." || rel == "link":
			return err
		case e.IsDir():
			dirs = append(dirs, rel)
		}
		all = append(all, rel)
		return nil
	}))
	slices.Sort(all)
	under := func(list []string, p string) bool {
		return slices.ContainsFunc(list, func(dir string) bool { return contains(dir, p) })
	}
	kept := 0
	rapid.Check(t, func(t *rapid.T) {
		w := anyWish(t, base, dirs, all)
		f, err := Gather(&w.profile)
		if err != nil {
			if r, ok := err.(*Refusal); ok && r.Reason == ReasonDir { //nolint:errorlint // made so
				return // it would start in what is to be hidden
			}
			t.Fatal(err)
		}
		kept++
		f.Exe = "/bin/true"
		plan := Plan(f)
		for _, rel := range all {
			p := base + "/" + rel
			a := look(plan, p)
			// The folder that decides is the deepest; at one path the state directory,
			// then what is read-only.
			root, best := "", -1
			for _, list := range [][]string{w.readOnly, w.writable} {
				for _, dir := range list {
					if contains(dir, p) && len(dir) > best {
						root, best = dir, len(dir)
					}
				}
			}
			writes := root != "" && slices.Contains(w.writable, root) && (slices.Contains(w.states, root) || !slices.Contains(w.readOnly, root))
			settings := slices.Contains(w.states, root) && contains(root, p) && settingsInside(strings.Split(strings.TrimPrefix(p, root+"/"), "/")[0])
			named := strings.Contains(p, "/.env")
			switch {
			case under(w.hidden, p) && a.host:
				t.Fatalf("%s is hidden and seen\n%+v\n%s", p, w.profile, innerText(f))
			case root == "" && a.host:
				t.Fatalf("%s is seen and in no bind\n%+v\n%s", p, w.profile, innerText(f))
			case a.host && a.writable && (under(w.protected, p) || !writes || settings && p != root || named && !slices.Contains(w.states, root)):
				t.Fatalf("%s can be written\n%+v\n%s", p, w.profile, innerText(f))
			case root != "" && !under(w.hidden, p) && !a.host:
				t.Fatalf("%s is not seen\n%+v\n%s", p, w.profile, innerText(f))
			case writes && !under(w.hidden, p) && !under(w.protected, p) && !settings && !named && !a.writable && !aboveSettings(w, p):
				t.Fatalf("%s cannot be written\n%+v\n%s", p, w.profile, innerText(f))
			}
		}
	})
	if _, err := os.Stat(base); err != nil || kept < 20 {
		t.Errorf("only %d profiles were taken; %v", kept, err)
	}
}

// aboveSettings reports whether p lies in the settings of any state directory, whichever
// bind decides about it.
func aboveSettings(w *wish, p string) bool {
	return slices.ContainsFunc(w.states, func(dir string) bool {
		return p != dir && contains(dir, p) && settingsInside(strings.Split(strings.TrimPrefix(p, dir+"/"), "/")[0])
	})
}
