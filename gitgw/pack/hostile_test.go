package pack_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"io"
	"runtime"
	"strings"
	"testing"

	"postern/gitgw/pack"
)

// forged builds packs that no git would make.
type forged struct {
	buf   bytes.Buffer
	count uint32
	z     *zlib.Writer
}

func (f *forged) object(kind byte, size int, base, content []byte) int {
	at := f.buf.Len() + 12
	b := kind<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		f.buf.WriteByte(b | 0x80)
		b = byte(size & 0x7f)
	}
	f.buf.WriteByte(b)
	f.buf.Write(base)
	// A writer is large; one serves them all.
	if f.z == nil {
		f.z = zlib.NewWriter(&f.buf)
	}
	f.z.Reset(&f.buf)
	_, _ = f.z.Write(content)
	_ = f.z.Close()
	f.count++
	return at
}

func (f *forged) bytes() []byte {
	out := binary.BigEndian.AppendUint32(append([]byte("PACK"), 0, 0, 0, 2), f.count)
	out = append(out, f.buf.Bytes()...)
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

// ofs writes the distance to a base as the format has it.
func ofs(n int) []byte {
	out := []byte{byte(n & 0x7f)}
	for n >>= 7; n > 0; n >>= 7 {
		n--
		out = append([]byte{byte(n&0x7f) | 0x80}, out...)
	}
	return out
}

func size(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// hostile are packs that cost much, or lie; some unfold into so many bytes.
func hostile(much int) map[string][]byte {
	zeros := make([]byte, much)
	tree := append([]byte("100644 a\x00"), make([]byte, 20)...)
	packs := map[string][]byte{}

	var f forged
	f.object(3, len(zeros), nil, zeros)
	packs["a blob that unfolds"] = f.bytes()

	f = forged{}
	f.object(1, len(zeros), nil, zeros)
	packs["a commit that unfolds"] = f.bytes()

	f = forged{}
	f.object(3, 10, nil, zeros)
	packs["a blob longer than it says"] = f.bytes()

	f = forged{}
	f.object(1, 1<<40, nil, []byte("tree"))
	packs["a commit shorter than it says"] = f.bytes()

	f = forged{count: 1<<32 - 1}
	packs["four thousand million objects"] = f.bytes()

	f = forged{count: 90_000}
	packs["objects that are not there"] = f.bytes()

	// Each delta doubles what the one before made.
	f = forged{}
	at, n := f.object(2, len(tree), nil, tree), len(tree)
	for range 40 {
		d := append(size(n), size(2*n)...)
		copyAll := func() {
			for left, from := n, 0; left > 0; {
				take := min(left, 0xffff)
				d = append(d, 0xbf, byte(from), byte(from>>8), byte(from>>16), byte(from>>24), byte(take), byte(take>>8))
				left, from = left-take, from+take
			}
		}
		if n < much {
			copyAll()
			copyAll()
		}
		n *= 2
		here := f.buf.Len() + 12
		f.object(6, len(d), ofs(here-at), d)
		at = here
	}
	packs["deltas that double"] = f.bytes()

	// A long chain, of which each link is resolved from its beginning.
	f = forged{}
	big := bytes.Repeat([]byte("x"), min(much, 3<<20))
	at = f.object(4, len(big), nil, big)
	d := append(size(len(big)), size(len(big))...)
	for from := 0; from < len(big); from += 0xffff {
		take := min(len(big)-from, 0xffff)
		d = append(d, 0xbf, byte(from), byte(from>>8), byte(from>>16), byte(from>>24), byte(take), byte(take>>8))
	}
	for range 6000 {
		here := f.buf.Len() + 12
		f.object(6, len(d), ofs(here-at), d)
		at = here
	}
	packs["a chain without end"] = f.bytes()

	// Two chains of nothing that take turns, so that neither link is at hand.
	f = forged{}
	turns := [2]int{f.object(4, 4, nil, []byte("oooo")), f.object(4, 4, nil, []byte("pppp"))}
	for i := range 2000 {
		here := f.buf.Len() + 12
		f.object(6, 4, ofs(here-turns[i%2]), []byte("\x04\x04\x90\x04"))
		turns[i%2] = here
	}
	packs["chains that take turns"] = f.bytes()

	f = forged{}
	base := f.object(4, 4, nil, []byte("oooo"))
	for range 3000 {
		f.object(7, 4, bytes.Repeat([]byte{0xaa}, 20), []byte("\x04\x04\x90\x04"))
	}
	here := f.buf.Len() + 12
	f.object(6, 4, ofs(here-base-1), []byte("\x04\x04\x90\x04"))
	packs["bases that are nowhere"] = f.bytes()

	// Chains side by side, so that none is resolved in passing, of next to nothing.
	f = forged{}
	tips := make([]int, 8)
	for i := range tips {
		tips[i] = f.object(4, 4, nil, []byte("oooo"))
	}
	for range 3000 {
		for i, tip := range tips {
			here := f.buf.Len() + 12
			f.object(6, 4, ofs(here-tip), []byte("\x04\x04\x90\x04"))
			tips[i] = here
		}
	}
	packs["long chains side by side"] = f.bytes()

	f = forged{}
	f.object(6, 4, ofs(1<<30), []byte("\x04\x04\x90\x04"))
	packs["a base before the pack"] = f.bytes()

	f = forged{}
	at = f.object(4, 4, nil, []byte("oooo"))
	here = f.buf.Len() + 12
	f.object(6, 11, ofs(here-at), []byte("\x04\x04\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	packs["a copy past the end"] = f.bytes()

	f = forged{}
	f.object(5, 4, nil, []byte("oooo"))
	packs["a type that is none"] = f.bytes()
	return packs
}

// Packs that lie, or unfold into more than anybody wants, end with an error, soon
// and without the memory that they ask for.
func TestHostile(t *testing.T) {
	packs := hostile(32 << 20)
	for name, data := range packs {
		t.Run(name, func(t *testing.T) {
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p, err := pack.Open(context.Background(), bytes.NewReader(data), int64(len(data)), pack.Options{
				Limits: pack.Limits{Work: 256 << 20},
				Blob: func(_ int, r io.Reader) error {
					_, err := io.Copy(io.Discard, r)
					return err
				},
			})
			runtime.ReadMemStats(&after)
			// Two are sound, as far as they go.
			if sound := strings.HasPrefix(name, "a blob that unfolds"); sound != (err == nil) {
				t.Errorf("%v", err)
			}
			runtime.KeepAlive(p)
			if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 16<<20 {
				t.Errorf("the heap grew by %d MiB", grown>>20)
			}
		})
	}
}

// Blobs that nobody asked for are passed over, however long their chains are and however
// often the rest has to be looked at again.
func TestChainsOfBlobs(t *testing.T) {
	var f forged
	at := f.object(3, 4, nil, []byte("oooo"))
	for range 5000 {
		here := f.buf.Len() + 12
		f.object(6, 4, ofs(here-at), []byte("\x04\x04\x90\x04"))
		at = here
	}
	data := f.bytes()
	p, err := pack.Open(context.Background(), bytes.NewReader(data), int64(len(data)), pack.Options{Limits: pack.Limits{Work: 1 << 20}})
	if err != nil || p.Outside() != 0 {
		t.Fatalf("%v", err)
	}
}

// FuzzOpen reads anything, and what it reads it can show.
func FuzzOpen(f *testing.F) {
	dir := history(f, "sha1", 4)
	f.Add(git(f, dir, []byte("main\n^main~2\n"), "pack-objects", "-q", "--stdout", "--revs", "--delta-base-offset"))
	f.Add(git(f, dir, []byte("main\n^main~2\n"), "pack-objects", "-q", "--stdout", "--revs", "--thin"))
	for _, data := range hostile(1 << 20) {
		if len(data) < 1<<16 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// A checksum that fits lets the fuzzer come deeper.
		if len(data) > 32 {
			sum := sha1.Sum(data[:len(data)-20])
			data = append(data[:len(data)-20:len(data)-20], sum[:]...)
		}
		limits := pack.Limits{Objects: 1000, Object: 1 << 20, Work: 16 << 20}
		p, _, err := open(data, false, limits)
		if err != nil {
			return
		}
		p.IDs(func(id pack.ID, i int) {
			kind, content, err := p.Object(i)
			if err != nil {
				t.Fatalf("object %s was named and cannot be shown: %v", p.Hex(id), err)
			}
			switch kind {
			case pack.Commit:
				_, _ = pack.ParseCommit(content)
			case pack.Tag:
				_, _ = pack.ParseTag(content)
			case pack.Tree:
				_, _ = p.ParseTree(content)
			case pack.Blob:
			default:
				t.Fatalf("kind %d", kind)
			}
		})
	})
}
