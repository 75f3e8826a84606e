package nameattacks

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// together runs do n times at once, and counts those that succeed.
func together(n int, do func(i int) error) (wait func() int64) {
	var all sync.WaitGroup
	var fine atomic.Int64
	for i := range n {
		all.Go(func() {
			if do(i) == nil {
				fine.Add(1)
			}
		})
	}
	return func() int64 { all.Wait(); return fine.Load() }
}

// works makes n files, and counts.
func works(n int) int {
	fine := 0
	for i := range n {
		if spill(unix.Open(fmt.Sprintf("w%d", i), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600)) == nil {
			fine++
		}
	}
	return fine
}

// Who waits holds up nobody else.
var stalls = []attack{
	{group: "stalls", name: "fifos", alone: true, says: "200 made, 60 opened", run: func() error {
		if err := unix.Mkfifo("fifo", 0o600); err != nil {
			return err
		}
		wait := together(60, func(int) error { return shut(unix.Open("fifo", unix.O_WRONLY, 0)) })
		time.Sleep(300 * time.Millisecond)
		made := works(200)
		fd, err := unix.Open("fifo", unix.O_RDONLY, 0)
		fmt.Printf("%d made, %d opened\n", made, wait())
		return shut(fd, err)
	}},
	{group: "stalls", name: "leases", alone: true, says: "200 made, 60 opened", run: func() error {
		signal.Ignore(syscall.SIGIO)
		var held []int
		for i := range 60 {
			fd, err := unix.Open(fmt.Sprintf("l%d", i), unix.O_CREAT|unix.O_RDWR, 0o600)
			if err != nil {
				return err
			}
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
				return fmt.Errorf("%stake a lease: %w", brokenMark, err)
			}
			held = append(held, fd)
		}
		wait := together(60, func(i int) error { return shut(unix.Open(fmt.Sprintf("l%d", i), unix.O_WRONLY, 0)) })
		time.Sleep(300 * time.Millisecond)
		made := works(200)
		for _, fd := range held {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
				return err
			}
		}
		fmt.Printf("%d made, %d opened\n", made, wait())
		return nil
	}},
	{group: "stalls", name: "who never gets to run", alone: true, says: "100 made", run: func() error {
		var over atomic.Bool
		wait := together(6, func(i int) error {
			if i < 2 {
				for !over.Load() { // it burns time
				}
				return nil
			}
			runtime.LockOSThread()
			attr := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
			if err := unix.SchedSetAttr(0, attr, 0); err != nil {
				return err
			}
			for !over.Load() {
				mem, err := unix.Mmap(-1, 0, 64<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
				if err != nil {
					return err
				}
				for at := 0; at < len(mem); at += 4096 {
					mem[at] = 1
				}
				_ = shut(unix.Open(fmt.Sprintf("i%d", i), unix.O_CREAT|unix.O_WRONLY, 0o600))
				_ = unix.Munmap(mem)
			}
			return nil
		})
		fmt.Printf("%d made\n", works(100))
		over.Store(true)
		wait()
		return nil
	}},
}

// The limits and the state of a process are its own.
var limits = []attack{
	{group: "limits", name: "descriptors", says: "too many open files, 0, then fine", run: func() error {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}); err != nil {
			return err
		}
		var held []int
		for {
			fd, err := unix.Open("plain", unix.O_RDWR, 0)
			if err != nil {
				fmt.Print(err)
				break
			}
			held = append(held, fd)
		}
		_, e1 := unix.Open("plain", unix.O_RDWR, 0)
		wrong := 0
		if !errors.Is(e1, unix.EMFILE) {
			wrong++
		}
		for _, fd := range held {
			_ = unix.Close(fd)
		}
		fmt.Printf(", %d, then ", wrong)
		if err := spill(unix.Open("fine", unix.O_CREAT|unix.O_WRONLY, 0o600)); err != nil {
			return err
		}
		fmt.Println("fine")
		return nil
	}},
	{group: "limits", name: "umask", says: "600 644 700 755 640", run: func() error {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		unix.Umask(0o022)
		done := make(chan struct{})
		step := func(prefix string) {
			_ = shut(unix.Creat(prefix+"f", 0o666))
			_ = unix.Mkdir(prefix+"d", 0o777)
		}
		go func() {
			defer close(done)
			runtime.LockOSThread()
			if unix.Unshare(unix.CLONE_FS) != nil {
				return
			}
			unix.Umask(0o077)
			step("a")
		}()
		<-done
		step("b")
		unix.Umask(0o027)
		_ = shut(unix.Creat("cf", 0o666))
		var modes []any
		for _, name := range []string{"af", "bf", "ad", "bd", "cf"} {
			var st unix.Stat_t
			_ = unix.Lstat(name, &st)
			modes = append(modes, st.Mode&0o777)
		}
		fmt.Printf("%o %o %o %o %o\n", modes...)
		return nil
	}},
	{group: "limits", name: "no access to its memory", run: func() error {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return err
		}
		if n := works(20); n != 20 {
			fmt.Println(brokenMark, n, "of 20 files were made")
		}
		return makeEnv()
	}},
	{group: "limits", name: "size of files", run: func() error {
		signal.Ignore(syscall.SIGXFSZ)
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4, Max: 1 << 20}); err != nil {
			return err
		}
		if err := unix.Truncate("second", 1<<20); !errors.Is(err, unix.EFBIG) {
			fmt.Println("a limit of file sizes does not hold:", err)
		}
		return makeEnv()
	}},
	{group: "limits", name: "everybody killed", alone: true, deadly: true, either: "it may be dead itself before it comes to that", run: func() error {
		_ = unix.Kill(-1, unix.SIGKILL)
		return makeEnv()
	}},
	{group: "limits", name: "guard killed", alone: true, deadly: true, quiet: true, prepare: func(_ *testing.T, b *bed) { b.killed = true }, run: func() error {
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
			_ = makeEnv()
			_ = os.Mkdir("x.key", 0o755)
			_ = unix.Rename("plain", "x.pem")
			_ = unix.Truncate("old.pem", 1)
		}
		return nil
	}},
}
