package pack_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"postern/gitgw/pack"
)

// git runs git without anybody's configuration.
func git(tb testing.TB, dir string, stdin []byte, args ...string) []byte {
	tb.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(stdin)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.org", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.org",
	}
	var out, fault bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &fault
	if err := cmd.Run(); err != nil {
		tb.Fatalf("git %v: %v\n%s", args, err, fault.String())
	}
	return out.Bytes()
}

// history makes a repository whose packs hold deltas of every kind of object.
func history(tb testing.TB, format string, commits int) string {
	tb.Helper()
	dir := tb.TempDir()
	git(tb, dir, nil, "init", "-q", "-b", "main", "--object-format="+format)
	var text strings.Builder
	for i := range 400 {
		text.WriteString(strings.Repeat(string(rune('a'+i%26)), 40) + "\n")
	}
	for i := range commits {
		text.WriteString("line " + strings.Repeat(string(rune('a'+i)), 9) + "\n")
		if err := os.WriteFile(filepath.Join(dir, "long.txt"), []byte(text.String()), 0o600); err != nil {
			tb.Fatal(err)
		}
		for j := range 20 {
			name := filepath.Join(dir, strings.Repeat("n", j+1))
			if err := os.WriteFile(name, []byte{byte(j), byte(i / (j + 1))}, 0o600); err != nil {
				tb.Fatal(err)
			}
		}
		git(tb, dir, nil, "add", "-A")
		git(tb, dir, nil, "commit", "-q", "-m", text.String()[:3000])
	}
	git(tb, dir, nil, "tag", "-a", "-m", "t", "t")
	return dir
}

// open reads a pack from memory and gathers its blobs.
func open(data []byte, sha256 bool, limits pack.Limits) (p *pack.Pack, blobs map[int][]byte, err error) {
	blobs = map[int][]byte{}
	p, err = pack.Open(context.Background(), bytes.NewReader(data), int64(len(data)), pack.Options{
		Limits: limits, SHA256: sha256,
		Blob: func(i int, content io.Reader) error {
			data, err := io.ReadAll(content)
			blobs[i] = data
			return err
		},
	})
	return p, blobs, err
}

// Every object of a pack is what git says it is, however it is stored.
func TestAgainstGit(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"sha1", "sha256"} {
		dir := history(t, format, 30)
		objects := strings.Fields(string(git(t, dir, nil, "rev-list", "--objects", "--no-object-names", "--all")))
		for _, flags := range [][]string{{"--delta-base-offset"}, {}, {"--window=0"}, {"--depth=3", "--delta-base-offset"}} {
			args := append([]string{"pack-objects", "-q", "--stdout", "--revs", "--all", "--no-reuse-delta"}, flags...)
			data := git(t, dir, nil, args...)
			p, blobs, err := open(data, format == "sha256", pack.Limits{})
			if err != nil {
				t.Fatalf("%s %v: %v", format, flags, err)
			}
			if p.Len() != len(objects) || p.Outside() != 0 {
				t.Errorf("%s %v: %d objects of %d, %d outside", format, flags, p.Len(), len(objects), p.Outside())
			}
			for n, hex := range objects {
				id, _ := pack.ParseID(hex)
				i, ok := p.Find(id)
				if !ok {
					t.Fatalf("%s %v: %s is missing", format, flags, hex)
				}
				kind, content, err := p.Object(i)
				if err != nil {
					t.Fatal(err)
				}
				if kind == pack.Blob && !bytes.Equal(blobs[i], content) {
					t.Errorf("%s: the pass saw another blob", hex)
				}
				if n%9 > 0 {
					continue // its id says as much
				}
				if want := git(t, dir, nil, "cat-file", kind.String(), hex); !bytes.Equal(want, content) {
					t.Fatalf("%s %s: other content than git's", kind, hex)
				}
			}
		}
	}
}

// A thin pack has objects that nothing here can tell of, and says how many.
func TestThin(t *testing.T) {
	t.Parallel()
	dir := history(t, "sha1", 30)
	data := git(t, dir, []byte("main\n^main~1\n"), "pack-objects", "-q", "--stdout", "--revs", "--thin", "--delta-base-offset")
	p, _, err := open(data, false, pack.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Outside() == 0 {
		t.Error("no delta leads out of a thin pack")
	}
	id, _ := pack.ParseID(strings.TrimSpace(string(git(t, dir, nil, "rev-parse", "main"))))
	if _, ok := p.Find(id); !ok {
		t.Error("the commit is missing")
	}
}

// Whatever is cut, changed or appended is an error, and none is a panic.
func TestDamaged(t *testing.T) {
	t.Parallel()
	dir := history(t, "sha1", 5)
	data := git(t, dir, []byte("main\n^main~3\n"), "pack-objects", "-q", "--stdout", "--revs", "--delta-base-offset")
	for n := range data {
		if _, _, err := open(data[:n], false, pack.Limits{}); err == nil {
			t.Fatalf("cut to %d bytes it was read", n)
		}
		changed := bytes.Clone(data)
		changed[n] ^= 0x10
		if _, _, err := open(changed, false, pack.Limits{}); err == nil {
			t.Fatalf("with byte %d changed it was read", n)
		}
	}
	if _, _, err := open(append(bytes.Clone(data), 0), false, pack.Limits{}); err == nil {
		t.Error("with a byte more it was read")
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	dir := history(t, "sha1", 30)
	data := git(t, dir, []byte("main\n"), "pack-objects", "-q", "--stdout", "--revs", "--delta-base-offset")
	for _, c := range []struct {
		limits pack.Limits
		want   error
	}{
		{pack.Limits{Objects: 20}, pack.ErrObjects},
		{pack.Limits{Object: 2000}, pack.ErrLarge},
		{pack.Limits{Work: 20000}, pack.ErrWork},
	} {
		if _, _, err := open(data, false, c.limits); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c.limits, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := pack.Open(ctx, bytes.NewReader(data), int64(len(data)), pack.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits, and it answered %v", err)
	}
}

// BenchmarkOpen passes over a pack whose one blob does not compress, and over a
// history of differences.
func BenchmarkOpen(b *testing.B) {
	noise := make([]byte, 32<<20)
	_, _ = rand.Read(noise)
	var f forged
	f.object(3, len(noise), nil, noise)
	dir := history(b, "sha1", 30)
	for name, data := range map[string][]byte{
		"noise":   f.bytes(),
		"history": git(b, dir, nil, "pack-objects", "-q", "--stdout", "--revs", "--all", "--delta-base-offset"),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := pack.Open(b.Context(), bytes.NewReader(data), int64(len(data)), pack.Options{Blob: func(_ int, r io.Reader) error {
					_, err := io.Copy(io.Discard, r)
					return err
				}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
