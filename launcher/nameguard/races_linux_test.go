package nameguard

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// raceTime is how long each race is run.
const raceTime = time.Second

// races are what two threads do at once: one changes what a call is about, again and again,
// while the other makes the call. Where nothing guards, the name comes to be; the oracle is
// outside.
var races = map[string]struct{ change, call func(i int) }{
	"the text of a path": {
		func(i int) {
			*(*[8]byte)(raced) = [2][8]byte{{'a', '.', 't', 'x', 't'}, {'a', '.', 'k', 'e', 'y'}}[i%2]
		},
		func(int) { rawOpen(unix.SYS_OPENAT, unix.O_CREAT|unix.O_WRONLY) },
	},
	"a text that leads to a free folder": {
		func(i int) {
			*(*[16]byte)(raced) = [2][16]byte{{'/', 't', 'm', 'p', '/', 'a'}, {'/', 'w', '/', '/', 'b', '.', 'k', 'e', 'y'}}[i%2]
		},
		func(int) { rawOpen(unix.SYS_OPENAT, unix.O_CREAT|unix.O_WRONLY) },
	},
	"how to open": {
		func(i int) {
			(*unix.OpenHow)(raced).Flags = [2]uint64{unix.O_RDONLY, unix.O_RDONLY | unix.O_TRUNC}[i%2]
		},
		func(int) {
			path := []byte("full.key\x00")
			fd, _, e := unix.Syscall6(unix.SYS_OPENAT2, atFDCWD, uintptr(unsafe.Pointer(&path[0])), uintptr(raced), unix.SizeofOpenHow, 0, 0)
			closeRaw(fd, e)
		},
	},
	"a link at the end": {
		func(i int) {
			_ = os.Remove("l")
			_ = os.Symlink([2]string{"c.txt", "c.key"}[i%2], "l")
		},
		func(int) { _ = made(unix.Open("l", unix.O_CREAT|unix.O_WRONLY, 0o644)) },
	},
	"a link on the way": {
		func(i int) {
			_ = os.Remove("m")
			_ = os.Symlink([2]string{"/tmp", "/w"}[i%2], "m")
		},
		func(int) { _ = made(unix.Open("m/d.key", unix.O_CREAT|unix.O_WRONLY, 0o644)) },
	},
	"a folder that changes places": {
		func(int) { _ = unix.Renameat2(unix.AT_FDCWD, "folder", unix.AT_FDCWD, "g/.git", unix.RENAME_EXCHANGE) },
		func(int) { _ = made(unix.Open("folder/hooks", unix.O_CREAT|unix.O_WRONLY, 0o644)) },
	},
	"a descriptor": {
		func(i int) {
			fd, err := unix.Open([2]string{"/tmp", "/w"}[i%2], unix.O_PATH, 0)
			if err == nil {
				_ = unix.Dup3(fd, 50, 0)
				_ = unix.Close(fd)
			}
		},
		func(int) { _ = made(unix.Openat(50, "e.key", unix.O_CREAT|unix.O_WRONLY, 0o644)) },
	},
	"the working directory": {
		func(i int) { _ = unix.Chdir([2]string{"/tmp", "/w"}[i%2]) },
		func(int) { _ = made(unix.Open("f.key", unix.O_CREAT|unix.O_WRONLY, 0o644)) },
	},
	"what is moved": {
		func(i int) {
			_ = os.Remove("v")
			if i%2 == 0 {
				_ = unix.Renameat(unix.AT_FDCWD, "filled", unix.AT_FDCWD, "v")
				_ = unix.Renameat(unix.AT_FDCWD, "v", unix.AT_FDCWD, "filled")
			} else {
				_ = made(unix.Creat("v", 0o644))
			}
		},
		func(int) { _ = unix.Renameat(unix.AT_FDCWD, "v", unix.AT_FDCWD, "g/.git/modules/x") },
	},
}

const atFDCWD = ^uintptr(99)

// raced is a page that the two threads share.
var raced = unsafe.Pointer(new([64]byte))

func rawOpen(nr, flags uintptr) {
	fd, _, e := unix.Syscall6(nr, atFDCWD, uintptr(raced), flags, 0o644, 0, 0)
	closeRaw(fd, e)
}

func closeRaw(fd uintptr, e unix.Errno) {
	if e == 0 {
		_ = unix.Close(int(fd))
	}
}

func init() {
	enemies["race"] = func(args []string) error {
		r := races[args[0]]
		_ = os.Mkdir("folder", 0o755)
		_ = os.Mkdir("/tmp/dir", 0o755)
		_ = os.MkdirAll("filled", 0o755)
		_ = os.WriteFile("filled/config", nil, 0o644)
		_ = os.MkdirAll("g/.git/modules", 0o755)
		runtime.GOMAXPROCS(4)
		var over atomic.Bool
		var both sync.WaitGroup
		tries := 0
		both.Go(func() {
			for i := 0; !over.Load(); i++ {
				r.change(i)
			}
		})
		both.Go(func() {
			for end := time.Now().Add(raceTime); time.Now().Before(end); tries++ {
				r.call(tries)
			}
			over.Store(true)
		})
		both.Wait()
		fmt.Println("tries:", tries)
		return syscall.Kill(os.Getpid(), 0)
	}
}

// won reports whether a race got something that the rules forbid.
func (b *box) won() string {
	if _, err := os.Readlink(b.dir + "/g/.git/modules/y"); err == nil {
		return "g/.git/modules/y, as a symlink"
	}
	for _, name := range []string{"a.key", "b.key", "c.key", "d.key", "e.key", "f.key", "g/.git/hooks", "g/.git/modules/x/config"} {
		if b.has(name) {
			return name
		}
	}
	data, err := os.ReadFile(b.dir + "/full.key")
	if err != nil || len(data) == 0 {
		return "full.key is cut"
	}
	return ""
}

// What a call is about may change while it is judged: it is judged by what is then done.
func TestRaces(t *testing.T) {
	bites := 0
	for name := range races {
		for _, plain := range []bool{true, false} {
			b := newBox(t)
			b.plain = plain
			b.write("full.key", "full")
			if b.plain {
				// The folder can be moved there at once.
				must(t, os.MkdirAll(b.dir+"/g/.git", 0o755))
			}
			o := b.do("race", name)
			won := b.won()
			switch {
			case !plain && won != "":
				t.Errorf("%s: %s (%s)", name, won, o.out)
			case plain && won != "":
				bites++
			case o.err != nil || o.code != 0:
				t.Errorf("%s: %v %s", name, o.err, o.out)
			}
			if !plain {
				t.Logf("%s: %s", name, o.out)
			}
		}
	}
	if bites < len(races)-1 {
		t.Errorf("only %d of %d races are won where nothing guards", bites, len(races))
	}
}
