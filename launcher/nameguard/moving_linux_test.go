package nameguard

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	// A link that takes eight hundred folders to lead nowhere keeps a rename busy when it
	// has looked where its source is. Meanwhile that comes to packages, and is filled there.
	enemies["packages"] = func([]string) error {
		for _, err := range []error{os.Mkdir("z", 0o755), os.Mkdir("node_modules", 0o755), os.Symlink(strings.Repeat("z/../", 800), "slow")} {
			if err != nil {
				return err
			}
		}
		for i := range 3 {
			from := fmt.Sprintf("p%d", i)
			if err := os.MkdirAll(from+"/d", 0o755); err != nil {
				return err
			}
			dir, err := unix.Open(from, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			if err != nil {
				return err
			}
			var leaving sync.WaitGroup
			leaving.Go(func() {
				_ = unix.Renameat(dir, "d", unix.AT_FDCWD, strings.Repeat("slow/", 30)+fmt.Sprintf("out%d", i))
			})
			time.Sleep(time.Duration(2+4*i) * time.Millisecond)
			if err := unix.Rename(from, "node_modules/"+from); err != nil {
				return err
			}
			_ = made(unix.Openat(dir, "d/.bashrc", unix.O_CREAT|unix.O_WRONLY, 0o644))
			leaving.Wait()
		}
		return nil
	}
}

// What is filled in packages does not leave them by a rename that began before it came
// there.
func TestMovesWhileLeaving(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.config = Config{Globs: Secrets(), Names: Mandatory(), Packages: Packages()}
	o := b.do("packages")
	if o.err != nil || o.out != "" {
		t.Errorf("%q (%v)", o.out, o.err)
	}
	for i := range 3 {
		if name := fmt.Sprintf("out%d/.bashrc", i); b.has(name) {
			t.Errorf("%s was made", name)
		}
	}
}
