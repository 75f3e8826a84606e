package nameguard

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	// One thread waits for the other end of a FIFO, while others of its process take the
	// signals that the process gets.
	enemies["disturbed"] = func([]string) error {
		got := make(chan os.Signal, 1)
		signal.Notify(got, syscall.SIGUSR1)
		if err := unix.Mkfifo("fifo", 0o600); err != nil {
			return err
		}
		done := make(chan error)
		go func() {
			runtime.LockOSThread()
			for {
				if err := made(unix.Open("fifo", unix.O_WRONLY, 0)); !errors.Is(err, unix.EINTR) {
					done <- err
					return
				}
			}
		}()
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
			if err := unix.Kill(os.Getpid(), unix.SIGUSR1); err != nil {
				return err
			}
			select {
			case err := <-done:
				return fmt.Errorf("it ends although nobody has the other end: %w", err)
			default:
			}
		}
		reader, err := unix.Open("fifo", unix.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		err = <-done
		return errors.Join(err, unix.Close(reader))
	}
}

// A call that waits is not ended by a signal that another thread takes.
func TestSignalsOfOthersDisturbNoCall(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	if o := b.do("disturbed"); o.err != nil || o.out != "" {
		t.Errorf("%q (%v)", o.out, o.err)
	}
}
