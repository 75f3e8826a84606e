package nameguard

import (
	"fmt"
	"testing"
)

var asked = []struct{ dir, name string }{
	{"/home/user/src/app/internal/handlers/v2", "users_test.go"},
	{"/home/user/src/app/.git/objects/4b", "825dc642cb6eb9a060e54bf8d69288fbee4904"},
	{"/home/user/src/app/node_modules/@types/node/ts5.6", "index.d.ts"},
	{"/w/app/sub", ".ENV.local"},
	{"/mnt/app/.git", "Config"},
	{"/w/new/.git/modules/lib/x", "HEAD.lock"},
}

// TestNothingIsAllocated: what is asked for every file that a run makes costs no memory.
func TestNothingIsAllocated(t *testing.T) {
	r := compile(t, standard())
	for _, q := range asked {
		dir, name := []byte(q.dir), []byte(q.name)
		for _, op := range everyOp {
			if n := testing.AllocsPerRun(100, func() { r.Check(dir, name, op); r.CheckMove(dir, name, dir, name) }); n != 0 {
				t.Errorf("%s/%s: %v allocations", q.dir, q.name, n)
			}
		}
	}
}

// BenchmarkCheck is beside the floor that reading the path once is.
func BenchmarkCheck(b *testing.B) {
	many := standard()
	for i := range 5000 {
		many.Paths = append(many.Paths, Rule{fmt.Sprintf("/w/r%d/.git/config", i), "spec"})
	}
	for name, c := range map[string]Config{"standard": standard(), "5000 repositories": many} {
		r := compile(b, c)
		for _, q := range asked {
			dir, entry := []byte(q.dir), []byte(q.name)
			b.Run(name+"/"+q.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					r.Check(dir, entry, OpWrite)
				}
			})
		}
	}
	dir := []byte(asked[0].dir)
	b.Run("floor", func(b *testing.B) {
		n := 0
		for b.Loop() {
			for rest := dir; len(rest) > 0; n++ {
				_, rest, _ = cutPart(rest)
			}
		}
	})
}
