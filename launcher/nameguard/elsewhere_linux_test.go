package nameguard

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	// It opens files until somebody outside has said where it may run, and goes on for a
	// while.
	enemies["told"] = func([]string) error {
		runtime.LockOSThread()
		left := 500
		for i := 0; left > 0; i++ {
			if err := made(unix.Open("f"+strconv.Itoa(i%10), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)); err != nil {
				return err
			}
			if left == 500 && unix.Access("go", unix.F_OK) != nil {
				continue
			}
			left--
		}
		var now processors
		if e := now.read(0); e != 0 || now.count() != 1 {
			return fmt.Errorf("it may run on %d processors, and was told one (%w)", now.count(), e)
		}
		return nil
	}
	// A thread looks where another one may run that opens files.
	enemies["watched"] = func([]string) error {
		var all processors
		if e := all.read(0); e != 0 {
			return e
		}
		tid, stop, done := make(chan int), make(chan struct{}), make(chan error)
		go func() {
			runtime.LockOSThread()
			tid <- unix.Gettid()
			for i := 0; ; i++ {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				if err := made(unix.Open("f"+strconv.Itoa(i%10), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)); err != nil {
					done <- err
					return
				}
			}
		}()
		other := <-tid
		var seen error
		for i := range 20000 {
			var now processors
			if e := now.read(other); e != 0 || now != all {
				seen = fmt.Errorf("at look %d it may run on %d processors of %d (%w)", i, now.count(), all.count(), e)
				break
			}
		}
		close(stop)
		return errors.Join(seen, <-done)
	}
}

// threadsOf finds the threads of the hostile program below a process.
func threadsOf(pid int) (tids []int) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
		if err != nil {
			return ""
		}
		return string(text)
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return nil
	}
	for _, task := range tasks {
		if strings.Contains(read("cmdline"), enemyCommand) && !strings.Contains(read("cmdline"), shimCommand) {
			if tid, err := strconv.Atoi(filepath.Base(task)); err == nil {
				tids = append(tids, tid)
			}
		}
		for child := range strings.FieldsSeq(read("task/" + filepath.Base(task) + "/children")) {
			if child, err := strconv.Atoi(child); err == nil {
				tids = append(tids, threadsOf(child)...)
			}
		}
	}
	return tids
}

// What somebody outside says of where a caller may run holds.
func TestCallersRunWhereOthersSay(t *testing.T) {
	var all processors
	if e := all.read(0); e != 0 {
		t.Fatal(e)
	}
	one := all.first()
	b := newBox(t)
	b.started = func(_ *Broker, cmd *exec.Cmd) {
		for range 500 {
			if len(threadsOf(cmd.Process.Pid)) > 2 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		// What is said while a caller is kept where it is told to be cannot be told from that,
		// neither by the broker nor, for a moment, by us.
		for range 50 {
			for _, tid := range threadsOf(cmd.Process.Pid) {
				_ = one.apply(tid)
			}
			held := true
			for range 10 {
				time.Sleep(3 * time.Millisecond)
				for _, tid := range threadsOf(cmd.Process.Pid) {
					var now processors
					held = held && (now.read(tid) != 0 || now == one)
				}
			}
			if held {
				break
			}
		}
		b.write("go", "")
	}
	if o := b.do("told"); o.err != nil || o.out != "" {
		t.Errorf("%q (%v)", o.out, o.err)
	}
}

// Nobody else in the sandbox sees what we do to a caller.
func TestCallersAreSeenWhereTheyMayRun(t *testing.T) {
	b := newBox(t)
	if o := b.do("watched"); o.err != nil || o.out != "" {
		t.Errorf("%q (%v)", o.out, o.err)
	}
}
