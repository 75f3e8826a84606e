package nameguard

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	enemies["signals"] = signalStorm
	enemies["busy"] = busyText
	enemies["forks"] = forkStorm
	enemies["touch"] = func(args []string) error {
		for i := range 20 {
			if err := os.WriteFile(fmt.Sprintf("%s.%d", args[0], i), []byte(args[0]), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
}

// signalStorm makes files while signals come faster than calls are served. A call that was
// done and then interrupted is made again, and finds its own file.
func signalStorm([]string) error {
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGUSR1)
	stop := make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-got:
			default:
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGUSR1)
			time.Sleep(50 * time.Microsecond)
		}
	})
	wrong := 0
	for end, i := time.Now().Add(2*time.Second), 0; time.Now().Before(end); i++ {
		name := fmt.Sprintf("f%d", i)
		fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			wrong++
		default:
			if n, err := unix.Write(fd, []byte("x")); n != 1 || err != nil {
				wrong++
			}
			_ = unix.Close(fd)
		}
		if err := unix.Rename(name, name+"r"); err != nil && !errors.Is(err, unix.EINTR) {
			wrong++
		}
		_ = os.Remove(name + "r")
		if err := unix.Mkdir("d", 0o700); err != nil && !errors.Is(err, unix.EINTR) {
			wrong++
		}
		_ = os.Remove("d")
	}
	close(stop)
	sender.Wait()
	fmt.Println("wrong:", wrong)
	return nil
}

// busyText writes programs and runs them at once: whoever still had one open for writing
// would keep it from being run.
func busyText([]string) error {
	failed := 0
	for i := range 400 {
		name := fmt.Sprintf("./p%d", i)
		mode, flags := uint32(0o644), unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC
		switch i % 4 {
		case 1:
			mode = 0o755
		case 2:
			flags |= unix.O_EXCL
		case 3:
			mode, flags = 0o755, flags|unix.O_EXCL
		}
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, mode)
		if err != nil {
			return err
		}
		_, _ = unix.Write(fd, []byte("#!/bin/true\n"))
		_ = unix.Close(fd)
		if mode == 0o644 {
			if err := unix.Chmod(name, 0o755); err != nil {
				return err
			}
		}
		pid, err := syscall.ForkExec(name, []string{name}, &syscall.ProcAttr{})
		if err != nil {
			failed++
			fmt.Println(err)
			continue
		}
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		_ = os.Remove(name)
	}
	fmt.Println("failed:", failed)
	return nil
}

// forkStorm has many processes make files at once.
func forkStorm([]string) error {
	var pids []int
	for i := range 200 {
		name := fmt.Sprintf("n%d", i)
		pid, err := syscall.ForkExec("/shim", []string{"/shim", enemyCommand, "touch", name}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}, Env: []string{"GOMAXPROCS=1"}})
		if err != nil {
			return err
		}
		pids = append(pids, pid)
	}
	for _, pid := range pids {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || status != 0 {
			fmt.Println("wrong:", err, status)
		}
	}
	files, _ := filepath.Glob("n*.*")
	fmt.Println("files:", len(files))
	return nil
}

func TestSignalStorm(t *testing.T) {
	t.Parallel()
	if o := newBox(t).do("signals"); o.out != "wrong: 0\n" {
		t.Errorf("%s (%v)", o.out, o.err)
	}
}

// Alone: what other tests start is a copy of this process for a moment, with the files that a
// broker here is about to give away. A launcher starts nothing while its run is on.
func TestWrittenAndRunAtOnce(t *testing.T) {
	if o := newBox(t).do("busy"); o.out != "failed: 0\n" {
		t.Errorf("%s (%v)", o.out, o.err)
	}
}

func TestForkStorm(t *testing.T) {
	t.Parallel()
	if o := newBox(t).do("forks"); o.out != "files: 4000\n" {
		t.Errorf("%s (%v)", o.out, o.err)
	}
}

// Whoever waits for the other end of a FIFO, or the end of a lease, holds up nobody else;
// those that find no room are told; and a signal ends the wait as it does without a guard.
func TestStalled(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, script, want string }{
		{"others go on", `mkfifo p; for i in $(seq 60); do echo $i > p & done; sleep 0.3; i=0; while [ $i -lt 200 ]; do echo x > f$i; i=$((i+1)); done; ls f* | wc -l; cat p | wc -l; wait`, "200\n60\n"},
		{"both ends", `mkfifo p; cat p & echo hello > p; wait; (sleep 0.2; echo late > p) & cat < p; wait`, "hello\nlate\n"},
		{"no room", `mkfifo p; for i in $(seq 160); do (echo $i > p) 2>/dev/null || echo refused & done; sleep 0.5; cat p > all; wait; [ $(wc -l < all) -ge 100 ] && echo served`, ""},
		{"killed", `mkfifo p; timeout -s KILL 0.3 sh -c 'echo x > p'; echo $?; timeout 0.3 sh -c 'echo x > p'; echo $?`, ""},
		{"interrupted", `mkfifo p; trap 'echo trapped' USR1; me=$$; (sleep 0.3; kill -USR1 $me; sleep 0.3; timeout 1 cat p > /dev/null) & echo x > p; echo after; wait`, ""},
		{"truncated", `mkfifo p; (sleep 0.2; cat p) & : > p; echo done; wait`, "done\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b, bare := newBox(t), newBox(t)
			bare.plain = true
			o := b.sh(tc.script)
			want := tc.want
			if want == "" && tc.name != "no room" {
				want = bare.sh(tc.script).out
			}
			if tc.name == "no room" {
				if n := strings.Count(o.out, "refused\n"); n != 160-maxParked || !strings.HasSuffix(o.out, "served\n") {
					t.Errorf("%d refused: %q", n, o.out)
				}
				return
			}
			if o.out != want {
				t.Errorf("%q, want %q", o.out, want)
			}
		})
	}
}

func init() {
	enemies["lease"] = func([]string) error {
		fd, err := unix.Open("leased", unix.O_RDWR|unix.O_CREAT, 0o644)
		if err != nil {
			return err
		}
		broken := make(chan os.Signal, 1)
		signal.Notify(broken, syscall.SIGIO)
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
			return fmt.Errorf("take a lease: %w", err)
		}
		cmd := exec.Command("/bin/sh", "-c", "echo x >> leased && echo written && echo y > other && cat other")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		<-broken
		if err := os.WriteFile("meanwhile", nil, 0o644); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
		fmt.Println("given up")
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
			return err
		}
		return cmd.Wait()
	}
}

func TestLease(t *testing.T) {
	t.Parallel()
	if o := newBox(t).do("lease"); o.out != "given up\nwritten\ny\n" {
		t.Errorf("%q (%v)", o.out, o.err)
	}
}
