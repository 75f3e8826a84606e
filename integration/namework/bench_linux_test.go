package namework

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// benched is work that is timed, in a run whose names are guarded and in a bare sandbox of
// the same folder. The ratio of the medians is not to be above limit.
type benched struct {
	name    string
	limit   float64
	prepare string // outside, before each time; its end is in the tree
	script  string
}

// tracked makes a repository of 20,000 files in 400 folders, whose branch side changes a
// third of them. Its index is younger than every file: those as old as it git reads again.
const tracked = `
mkdir from; cd from; git init -q -b main .; git config gc.auto 0
i=0; while [ $i -lt 400 ]; do mkdir -p a$((i%20))/d$i; i=$((i+1)); done
for d in a*/d*; do seq 1 50 | while read -r n; do printf '%s\n' "$d $n some text that is a line" > "$d/f$n.txt"; done; done
git add .; git commit -qm one; git checkout -q -b side
for d in a[0-6]/d*; do for f in "$d"/*; do echo more >> "$f"; done; done
git commit -qam two; git checkout -q main
sleep 1.1; git update-index --force-write-index
`

// many makes 50,000 files of 2 KiB in 4,000 folders, and of them an archive.
const many = `
mkdir many; cd many; head -c 1500 /dev/urandom | base64 > ../text
i=0; while [ $i -lt 4000 ]; do mkdir -p p$((i%40))/d$i; i=$((i+1)); done
for d in p*/d*; do tee "$d"/f1 "$d"/f2 "$d"/f3 "$d"/f4 "$d"/f5 "$d"/f6 "$d"/f7 "$d"/f8 "$d"/f9 "$d"/f10 "$d"/f11 "$d"/f12 < ../text > "$d"/f13; done
cd ..; tar cf many.tar many
`

// module makes one that takes a good part of Go's own packages along.
const module = `
mkdir -p m/cache; cd m; printf 'module m\n\ngo 1.24\n' > go.mod
printf 'package main\n\nimport (\n\t_ "go/types"\n\t_ "encoding/json"\n\t_ "net/http"\n)\n\nfunc main() {}\n' > main.go
`

var benches = []benched{
	{"go build", 1.05, module, `cd m; GOCACHE=$PWD/cache CGO_ENABLED=0 GOFLAGS=-mod=mod go build -o x .`},
	{"read 50,000 files", 1.10, many, `find many -type f -print0 | xargs -0 cat`},
	{"rm -rf of 50,000 files", 1.10, many, `rm -rf many`},
	{"untar 50,000 files", 2.8, many + "rm -rf many", `tar xf many.tar`},
	{"git status", 1.10, tracked, `for i in 1 2 3 4 5 6 7 8 9 10; do git -C from status; done`},
	{"git commit of a file", 1.10, tracked, `for i in 1 2 3 4 5 6 7 8 9 10; do echo more >> from/a7/d7/f$i.txt; git -C from commit -qam $i; done`},
	{"git commit of 10 files", 1.10, tracked, `for i in 1 2 3 4 5 6 7 8 9 10; do for n in 0 1 2 3 4 5 6 7 8 9; do echo more >> from/a$n/d$n/f$i.txt; done; git -C from commit -qam $i; done`},
	{"git clone of 20,000 files", 2.2, tracked, `git clone -q --no-hardlinks from to`},
	{"git checkout of 6,500 files", 2.0, tracked, `git -C from checkout -q side`},
	{"launch", 0, "", `true`},
}

// BenchmarkWork times each in turns, so that a noisy machine disturbs both. The metrics are
// medians in milliseconds, their ratio, and the limit that it has.
func BenchmarkWork(b *testing.B) {
	postern(b)
	for i := range benches {
		w := &benches[i]
		b.Run(strings.ReplaceAll(w.name, " ", "_"), func(b *testing.B) {
			var bare, kept []float64
			for b.Loop() {
				bare, kept = append(bare, w.once(b, (*place).bare)), append(kept, w.once(b, (*place).inside))
			}
			middle := func(of []float64) float64 { slices.Sort(of); return of[len(of)/2] }
			b.ReportMetric(middle(bare), "bare-ms")
			b.ReportMetric(middle(kept), "guarded-ms")
			b.ReportMetric(middle(kept)/middle(bare), "ratio")
			b.ReportMetric(w.limit, "limit")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// once does the work in a new place and returns how long it took inside, in milliseconds.
func (w *benched) once(b *testing.B, run func(*place, testing.TB, string) said) float64 {
	b.Helper()
	p := newPlace(b)
	appliance(b, p.runs)
	if s := p.outside(b, w.prepare); s.code != 0 {
		b.Fatalf("prepare: %s", s.err)
	}
	s := run(p, b, "began=$(date +%s%N); { "+w.script+"\n} > /dev/null; echo $(($(date +%s%N)-began))")
	took, err := strconv.ParseInt(strings.TrimSpace(s.out), 10, 64)
	if s.code != 0 || err != nil {
		b.Fatalf("status %d: %v\n%s%s", s.code, err, s.out, tail(s.err))
	}
	if err := os.RemoveAll(p.base); err != nil { // now, for there will be many
		b.Fatal(err)
	}
	return float64(took) / 1e6
}

// bare runs a script in a sandbox that has the same folder, and no guard.
func (p *place) bare(tb testing.TB, script string) said {
	tb.Helper()
	cmd := exec.Command("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
		"--tmpfs", p.home, "--bind", p.tree, p.tree, "--chdir", p.tree, "--", "/bin/sh", "-euc", script)
	cmd.Dir = p.tree
	cmd.Env = append(slices.Clone(p.env), "PATH="+p.path, "HOME="+p.home, "GIT_CONFIG_GLOBAL="+filepath.Join(p.base, "gitconfig"))
	return end(tb, cmd)
}
