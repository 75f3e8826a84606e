package nameguard

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// timed are what calls cost inside, each with how often it is done.
var timed = map[string]struct {
	times int
	do    func(i int) error
}{
	"open-rdonly": {50000, func(int) error { return made(unix.Open("plain", unix.O_RDONLY|unix.O_CLOEXEC, 0)) }},
	"open-rdwr":   {10000, func(int) error { return made(unix.Open("plain", unix.O_RDWR|unix.O_CLOEXEC, 0)) }},
	"stat": {50000, func(int) error {
		var st unix.Stat_t
		return unix.Stat("plain", &st)
	}},
	"create": {5000, func(i int) error {
		fd, err := unix.Open("c"+strconv.Itoa(i), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		_, _ = unix.Write(fd, page[:])
		_ = unix.Close(fd)
		return unix.Unlink("c" + strconv.Itoa(i))
	}},
	"rename": {10000, func(i int) error { return unix.Rename("r"+strconv.Itoa(i%2), "r"+strconv.Itoa(1-i%2)) }},
	"mkdir": {5000, func(i int) error {
		if err := unix.Mkdir("d"+strconv.Itoa(i), 0o755); err != nil {
			return err
		}
		return unix.Rmdir("d" + strconv.Itoa(i))
	}},
}

var page [4096]byte

func init() {
	enemies["timed"] = func(args []string) error {
		if err := os.WriteFile("plain", nil, 0o644); err != nil {
			return err
		}
		if err := os.WriteFile("r0", nil, 0o644); err != nil {
			return err
		}
		c := timed[args[0]]
		began := time.Now()
		for i := range c.times {
			if err := c.do(i); err != nil {
				return err
			}
		}
		fmt.Println(int64(time.Since(began)) / int64(c.times))
		return nil
	}
}

// BenchmarkPaired measures calls in a guarded sandbox, each beside the same in a sandbox
// of the same mounts without a guard. The metrics are medians of the rounds in
// microseconds, and their ratio.
func BenchmarkPaired(b *testing.B) {
	var names []string
	for name := range timed {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b.Run(name, func(b *testing.B) {
			once := func(plain bool) float64 {
				x := newBox(b)
				x.plain = plain
				o := x.do("timed", name)
				n, err := strconv.ParseInt(strings.TrimSpace(o.out), 10, 64)
				if err != nil {
					b.Fatalf("%v: %s", o.err, o.out)
				}
				return float64(n) / 1000
			}
			var bare, kept []float64
			for b.Loop() {
				bare, kept = append(bare, once(true)), append(kept, once(false))
			}
			slices.Sort(bare)
			slices.Sort(kept)
			b.ReportMetric(bare[len(bare)/2], "bare-us")
			b.ReportMetric(kept[len(kept)/2], "guarded-us")
			b.ReportMetric(kept[len(kept)/2]/bare[len(bare)/2], "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}
