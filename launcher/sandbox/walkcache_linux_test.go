package sandbox

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// notedWalk walks with notes of whatever size. A time of change cannot be set, but what a
// walk takes for now can.
func notedWalk(tb testing.TB, root, notes string, globs *globSet, later time.Duration) (findings, *walk) {
	tb.Helper()
	w := newWalk(root, "", notes, globs)
	w.small = true
	w.later = later
	found, err := w.run(place{path: root, depth: 1, names: true})
	must(tb, err)
	return found, w
}

// givenWalk walks by the notes of another walk of the same run.
func givenWalk(tb testing.TB, of *walk, globs *globSet) findings {
	tb.Helper()
	w := newWalk(of.root, "", of.dir, globs)
	w.cache, w.small, w.later = of.after, true, time.Minute
	found, err := w.run(place{path: of.root, depth: 1, names: true})
	must(tb, err)
	if !w.given || w.after != of.after {
		tb.Errorf("the walk did not go by the notes that it was given")
	}
	return found
}

func walkWithout(tb testing.TB, root string, globs *globSet) findings {
	tb.Helper()
	found, _ := notedWalk(tb, root, "", globs, 0)
	return found
}

// Whatever happens to a folder between two walks, the second finds with its notes what
// it would find without.
func TestNotesAreNeverWrong(t *testing.T) {
	globs, err := parseGlobs([]string{"**/*.pem", "a/*/b/*"})
	must(t, err)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	root, notes := tempDir(t), tempDir(t)
	names := []string{"a", "b", "c", "d", ".git", "HEAD", "objects", "refs", ".claude", "hooks", "node_modules", ".vscode"}
	files := []string{"x", "k.pem", ".env", ".npmrc", ".git", "HEAD", "commondir", "settings.json", ".bashrc"}
	dirs := func() (out []string) {
		must(t, filepath.WalkDir(root, func(path string, e os.DirEntry, _ error) error {
			if e.IsDir() {
				out = append(out, path)
			}
			return nil
		}))
		return out
	}
	pick := func(of []string) string { return of[random.IntN(len(of))] }
	for i := range 30 {
		must(t, os.MkdirAll(fmt.Sprintf("%s/p%d/q/r%d", root, i%5, i), 0o700))
	}
	hits, again := 0, 0
	change := func(times int) {
		all := dirs()
		for range times {
			in := pick(all)
			switch random.IntN(9) {
			case 0, 1, 2:
				_ = os.MkdirAll(filepath.Join(in, pick(names), pick(names)), 0o700)
			case 3, 4:
				_ = os.WriteFile(filepath.Join(in, pick(files)), []byte("gitdir: x\n"), 0o600)
			case 5:
				_ = os.Rename(in, filepath.Join(pick(all), pick(names)))
			case 6:
				_ = unix.Renameat2(unix.AT_FDCWD, in, unix.AT_FDCWD, pick(all), unix.RENAME_EXCHANGE)
			case 7:
				if in != root && random.IntN(3) == 0 {
					must(t, os.RemoveAll(in))
				}
			case 8:
				_ = os.Symlink(pick(all), filepath.Join(in, pick(append(files, names...))))
			}
			// A time that is set is not believed.
			_ = os.Chtimes(in, stamp, stamp)
			all = dirs()
		}
	}
	for round := range 120 {
		change(1 + random.IntN(4))
		got, w := notedWalk(t, root, notes, globs, time.Minute)
		want := walkWithout(t, root, globs)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d, round %d: with notes\n%+v\nwithout\n%+v", seed, round, got, want)
		}
		if w.cache != nil {
			if w.after != w.cache {
				again++
			}
			for _, s := range w.workers {
				hits += int(w.cache.count) - s.missed
			}
		}
		// The clock of a file system ticks; two changes in one tick are what settled is for.
		time.Sleep(12 * time.Millisecond)
		change(random.IntN(3))
		// As at the end of a run, whatever has become of the file.
		if round%5 == 0 {
			write(t, w.cacheFile, "nonsense")
		}
		if got, want = givenWalk(t, w, globs), walkWithout(t, root, globs); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d, round %d, at the end: with notes\n%+v\nwithout\n%+v", seed, round, got, want)
		}
		if round%7 == 0 { // as after many changes
			_ = os.Remove(w.cacheFile)
		}
		time.Sleep(12 * time.Millisecond)
	}
	if again < 20 {
		t.Errorf("only %d times notes were put right: this test shows nothing", again)
	}
	if hits < 100 {
		t.Errorf("only %d directories were as noted: this test shows nothing", hits)
	}
}

// What changed a moment ago is not noted: its next change might not show.
func TestNotesOfFreshFolders(t *testing.T) {
	root, notes := tempDir(t), tempDir(t)
	must(t, os.MkdirAll(root+"/a/b", 0o700))
	_, first := notedWalk(t, root, notes, nil, 0)
	_, second := notedWalk(t, root, notes, nil, 0)
	if first.top == nil || second.cache == nil || second.workers[0].missed != 3 {
		t.Errorf("%+v", second)
	}
	_, _ = notedWalk(t, root, tempDir(t), nil, time.Minute)
	again := tempDir(t)
	_, _ = notedWalk(t, root, again, nil, time.Minute)
	if _, w := notedWalk(t, root, again, nil, 0); w.workers[0].missed != 0 {
		t.Errorf("%d of settled folders are not noted", w.workers[0].missed)
	}
}

// What was not noted for having changed a moment before, or is other than noted, is noted
// by the next walk: it is not listed by every one from then on.
func TestNotesArePutRight(t *testing.T) {
	root, notes := tempDir(t), tempDir(t)
	for i := range 40 {
		must(t, os.MkdirAll(fmt.Sprintf("%s/p%d/q/r", root, i), 0o700))
	}
	walk := func(later time.Duration) int {
		_, w := notedWalk(t, root, notes, nil, later)
		missed := 0
		for _, s := range w.workers {
			missed += s.missed
		}
		return missed
	}
	walk(0) // too early for all of them
	if missed := walk(time.Hour); missed != 121 {
		t.Errorf("%d directories are other than noted, want all 121", missed)
	}
	must(t, os.MkdirAll(root+"/p1/q/new/x", 0o700))
	must(t, os.Rename(root+"/p2/q", root+"/p3/q2"))
	must(t, os.RemoveAll(root+"/p4"))
	write(t, root+"/p5/q/file", "")
	if missed := walk(time.Hour); missed == 0 || missed > 20 {
		t.Errorf("%d directories are other than noted, want those few that changed", missed)
	}
	if missed := walk(time.Hour); missed != 0 {
		t.Errorf("%d directories are still other than noted", missed)
	}
}

// Other patterns, other notes; damaged ones are none; there are never many.
func TestNotesAreKeptApart(t *testing.T) {
	root, notes := tempDir(t), tempDir(t)
	write(t, root+"/s/k.pem", "")
	write(t, root+"/s/k.key", "")
	ln, err := net.Listen("unix", "@notes-"+filepath.Base(root))
	must(t, err)
	defer ln.Close()
	for i := range 2 * cacheFiles {
		globs, err := parseGlobs([]string{fmt.Sprintf("**/*.%d", i)})
		must(t, err)
		notedWalk(t, root, notes, globs, time.Minute)
	}
	pem, err := parseGlobs([]string{"**/*.pem"})
	must(t, err)
	for range 2 {
		if found, _ := notedWalk(t, root, notes, pem, time.Minute); len(found.globbed) != 1 || found.globbed[0].path != root+"/s/k.pem" {
			t.Errorf("found %+v", found.globbed)
		}
	}
	left, _ := filepath.Glob(notes + "/.*")
	if len(left) == 0 || len(left) > cacheFiles {
		t.Errorf("%d files of notes", len(left))
	}
	_, w := notedWalk(t, root, notes, pem, time.Minute)
	data, err := os.ReadFile(w.cacheFile)
	must(t, err)
	for n := range data {
		if decodeCache(data[:n]) != nil {
			t.Errorf("the first %d of %d bytes are taken", n, len(data))
		}
	}
	write(t, w.cacheFile, "nonsense")
	if found, w := notedWalk(t, root, notes, pem, time.Minute); len(found.globbed) != 1 || w.cache != nil {
		t.Errorf("found %+v with damaged notes", found.globbed)
	}
}

func FuzzDecodeCache(f *testing.F) {
	top := &cacheNode{children: []*cacheNode{{cacheRec: cacheRec{dev: 1, ino: 2, sec: 3, nsec: 4, context: 5}, name: "a"}, {name: "b"}}}
	f.Add(encodeCache(top))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := decodeCache(data)
		if c == nil {
			return
		}
		// Every place leads to later ones, and so to an end.
		for i := range c.count {
			r := c.rec(i)
			if r.first <= i || r.first+r.many > c.count {
				t.Fatalf("note %d leads to %d, %d", i, r.first, r.many)
			}
			if name := c.name(i); i > 0 && (filepath.Base(name) != name || strings.Contains(name, "\x00")) {
				t.Fatalf("note %d is of %q", i, name)
			}
		}
		if again := encodeCache(c.tree(0, nil)); !bytes.Equal(again, data) {
			t.Fatalf("%x is written again as %x", data, again)
		}
	})
}

// Notes that were taken when fewer names were looked for are no notes of where the
// further ones are not.
func TestNotesAreOfTheirRelease(t *testing.T) {
	root, notes := tempDir(t), tempDir(t)
	for _, name := range []string{"a/.newrc", "b/.newdir/x", "c/.claude/newhooks"} {
		write(t, filepath.Join(root, name), "")
	}
	if found, _ := notedWalk(t, root, notes, nil, time.Hour); len(found.names) != 0 {
		t.Fatalf("found %v", found.names)
	}
	for name, in := range map[string]map[string]bool{".newrc": protectedFiles, ".newdir": protectedDirs, "newhooks": protectedClaude} {
		in[name] = true
		found, _ := notedWalk(t, root, notes, nil, time.Hour)
		delete(in, name)
		if len(found.names) != 1 || filepath.Base(found.names[0].path) != name {
			t.Errorf("%s: found %v", name, found.names)
		}
	}
}
