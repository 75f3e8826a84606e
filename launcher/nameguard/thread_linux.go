package nameguard

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnOwnThread does something on a thread that ends with it, since what is done to it is
// never undone, and that is not the main one: by that the kernel judges the process, whoever
// asks for it by its number. It returns when that is done.
func OnOwnThread(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for ever, but on the main thread
		if unix.Gettid() != unix.Getpid() {
			do()
			return
		}
		OnOwnThread(do)
		runtime.UnlockOSThread()
	}()
	<-done
}
