package nameattacks

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// race does the steps, each on a goroutine of its own, while the first changes the world
// under the others, until the time of the race is over.
func race(change func(i int), steps ...func(i int)) error {
	var over atomic.Bool
	var tries atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		for i := 0; !over.Load(); i++ {
			change(i)
		}
	})
	for _, step := range steps {
		all.Go(func() {
			i := 0
			for ; time.Now().Before(until); i++ {
				step(i)
			}
			tries.Add(int64(i))
		})
	}
	time.Sleep(time.Until(until))
	over.Store(true)
	all.Wait()
	fmt.Printf("%d tries\n", tries.Load())
	return nil
}

// page is one page of memory with a text in it, and the place of the byte that changes.
func page(before string, c byte, after string) (mem []byte, at int) {
	mem = pages(1)
	copy(mem, before)
	mem[len(before)] = c
	copy(mem[len(before)+1:], after)
	return mem, len(before)
}

// flip changes one byte there and back, each time after another while.
func flip(mem []byte, at int, one, other byte) func(i int) {
	return func(i int) {
		for range i * 7 % 64 {
			mem[at] = one
		}
		for range i * 11 % 64 {
			mem[at] = other
		}
		mem[at] = one
	}
}

// twoPlaces makes two links: a leads to a place where everything is allowed, b to the
// workspace. A path that begins with one of them differs in one byte from the other.
func twoPlaces() error {
	for name, text := range map[string]string{"old.pem": "mine\n", "plain": "mine\n"} {
		if err := os.WriteFile("/tmp/"+name, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return first(func() error { return os.Symlink("/tmp", "a") }, func() error { return os.Symlink(inside, "b") })
}

// freePlace races a path between the two places, for a call that takes its address.
func freePlace(name, rest string, call func(path uintptr)) attack {
	return attack{group: "races", name: name, raced: true, quiet: true, run: func() error {
		if err := twoPlaces(); err != nil {
			return err
		}
		mem, at := page(inside+"/", 'b', "/"+rest)
		call(ptr(&mem[0]))
		return race(flip(mem, at, 'a', 'b'), func(int) { call(ptr(&mem[0])) })
	}}
}

// call is a system call whose result does not matter. A descriptor that it gives is closed.
func call(opens bool, nr uintptr, args ...uintptr) {
	if fd, err := raw(nr, args...); err == nil && opens {
		_ = unix.Close(int(fd))
	}
}

// What a call reads in memory, changed after it was looked at.
var races = []attack{
	{group: "races", name: "path between two names", raced: true, run: func() error {
		mem, at := page(inside+"/.en", 'v', "")
		step := func(int) { call(true, unix.SYS_OPENAT, ptrHere, ptr(&mem[0]), unix.O_CREAT|unix.O_WRONLY, 0o644) }
		step(0)
		return race(flip(mem, at, 'x', 'v'), step, step)
	}},
	{group: "races", name: "path of a rename between two names", raced: true, run: func() error {
		mem, at := page(inside+"/.en", 'v', "")
		from := text("plain")
		step := func(int) {
			call(false, unix.SYS_RENAMEAT2, ptrHere, ptr(from), ptrHere, ptr(&mem[0]), 0)
			_ = unix.Rename(".enx", "plain")
		}
		step(0)
		return race(flip(mem, at, 'x', 'v'), step)
	}},
	freePlace("open between two places", "x.pem", func(p uintptr) { call(true, unix.SYS_OPENAT, ptrHere, p, unix.O_CREAT|unix.O_WRONLY, 0o644) }),
	freePlace("open to write between two places", "old.pem", func(p uintptr) {
		fd, err := raw(unix.SYS_OPENAT, ptrHere, p, unix.O_WRONLY|unix.O_APPEND, 0)
		_ = spill(int(fd), err)
	}),
	freePlace("cut while opening between two places", "old.pem", func(p uintptr) { call(true, unix.SYS_OPENAT, ptrHere, p, unix.O_RDONLY|unix.O_TRUNC, 0) }),
	freePlace("cut in access mode 3 between two places", "old.pem", func(p uintptr) { call(true, unix.SYS_OPENAT, ptrHere, p, unix.O_TRUNC|3, 0) }),
	freePlace("truncate between two places", "old.pem", func(p uintptr) { call(false, unix.SYS_TRUNCATE, p, 1) }),
	freePlace("mkdir between two places", "d.pem", func(p uintptr) {
		call(false, unix.SYS_MKDIRAT, ptrHere, p, 0o755)
		_ = unix.Rmdir("/tmp/d.pem")
	}),
	freePlace("mknod between two places", "f.pem", func(p uintptr) {
		call(false, unix.SYS_MKNODAT, ptrHere, p, unix.S_IFIFO|0o644, 0)
		_ = unix.Unlink("/tmp/f.pem")
	}),
	freePlace("symlink between two places", "s.pem", func(p uintptr) {
		target := text("plain")
		call(false, unix.SYS_SYMLINKAT, ptr(target), ptrHere, p)
		_ = unix.Unlink("/tmp/s.pem")
	}),
	{group: "races", name: "link between two places", raced: true, quiet: true, run: func() error { return twoPaths(unix.SYS_LINKAT, "plain", "l.pem") }},
	{group: "races", name: "link of what is forbidden between two places", raced: true, quiet: true, run: func() error { return twoPaths(unix.SYS_LINKAT, "old.pem", "free") }},
	{group: "races", name: "rename between two places", raced: true, quiet: true, run: func() error { return twoPaths(unix.SYS_RENAMEAT2, "plain", "r.pem") }},
	{group: "races", name: "rename away between two places", raced: true, quiet: true, run: func() error { return twoPaths(unix.SYS_RENAMEAT2, "old.pem", "free") }},
	{group: "races", name: "open_how", raced: true, run: func() error {
		mem := pages(1)
		how := (*unix.OpenHow)(pointer(ptr(&mem[0])))
		p, hooks := text("x.pem"), text("old.pem")
		step := func(path *byte) func(int) {
			return func(int) { call(true, unix.SYS_OPENAT2, ptrHere, ptr(path), ptr(how), unix.SizeofOpenHow) }
		}
		how.Flags, how.Mode = unix.O_CREAT|unix.O_WRONLY, 0o644
		step(p)(0)
		return race(func(i int) {
			how.Flags, how.Mode = unix.O_RDONLY, 0
			how.Resolve = uint64(i%2) * unix.RESOLVE_NO_XDEV
			how.Flags, how.Mode = unix.O_RDONLY|unix.O_TRUNC, 0
			how.Flags, how.Mode = unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC, 0o644
		}, step(p), step(hooks))
	}},
	{group: "races", name: "path of openat2 between two places", raced: true, quiet: true, run: func() error {
		if err := twoPlaces(); err != nil {
			return err
		}
		mem, at := page(inside+"/", 'b', "/old.pem")
		how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_TRUNC}
		step := func(int) { call(true, unix.SYS_OPENAT2, ptrHere, ptr(&mem[0]), ptr(how), unix.SizeofOpenHow) }
		step(0)
		return race(flip(mem, at, 'a', 'b'), step)
	}},
	{group: "races", name: "address of a socket", raced: true, quiet: true, run: func() error {
		if err := twoPlaces(); err != nil {
			return err
		}
		mem, at := page("\x01\x00"+inside+"/", 'b', "/s.pem")
		step := bindRaw(mem, uintptr(at)+9)
		step(0)
		return race(flip(mem, at, 'a', 'b'), step)
	}},
	{group: "races", name: "family of a socket's address", raced: true, run: func() error {
		mem, _ := page("\x01\x00", '.', "/s.pem")
		step := bindRaw(mem, 12)
		step(0)
		return race(func(i int) {
			mem[0] = byte(i % 3) // none, Unix, Internet
			mem[2] = "\x00."[i/3%2]
			mem[0] = unix.AF_UNIX
		}, step)
	}},
}

// twoPaths races two paths at once.
func twoPaths(nr uintptr, from, to string) error {
	if err := twoPlaces(); err != nil {
		return err
	}
	one, at := page(inside+"/", 'b', "/"+from)
	two, _ := page(inside+"/", 'b', "/"+to)
	step := func(int) {
		call(false, nr, ptrHere, ptr(&one[0]), ptrHere, ptr(&two[0]), 0)
		if nr == unix.SYS_LINKAT {
			_ = unix.Unlink("/tmp/" + to)
		} else {
			_ = unix.Rename("/tmp/"+to, "/tmp/"+from)
		}
	}
	step(0)
	f, g := flip(one, at, 'a', 'b'), flip(two, at, 'a', 'b')
	return race(func(i int) { f(i); g(i + i/64) }, step)
}

// bindRaw binds new sockets to an address in memory.
func bindRaw(mem []byte, size uintptr) func(int) {
	return func(int) {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return
		}
		call(false, unix.SYS_BIND, uintptr(fd), ptr(&mem[0]), size)
		_ = unix.Close(fd)
		_ = unix.Unlink("/tmp/s.pem")
	}
}
