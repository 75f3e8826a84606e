package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// injectCommand makes the test binary a command that types into every terminal it can
// lay hands on, for whoever reads there next, and says which terminals it had.
const injectCommand = "__inject"

func inject() int {
	paths := []string{"/dev/tty", "/dev/console", "/dev/ptmx"}
	for _, glob := range []string{"/dev/pts/*", "/dev/tty*", "/proc/[0-9]*/fd/*", "/proc/self/task/*/fd/*"} {
		found, _ := filepath.Glob(glob)
		paths = append(paths, found...)
	}
	fds := map[int]string{}
	for fd := range 64 {
		fds[fd] = fmt.Sprintf("descriptor %d", fd)
	}
	for _, path := range paths {
		for _, flags := range []int{unix.O_RDWR, unix.O_WRONLY, unix.O_RDONLY} {
			if fd, err := unix.Open(path, flags|unix.O_NOCTTY|unix.O_NONBLOCK, 0); err == nil {
				fds[fd] = path
			}
		}
	}
	for fd, name := range fds {
		var st unix.Stat_t
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err != nil || unix.Fstat(fd, &st) != nil {
			continue
		}
		fmt.Printf("terminal %d:%d %s\n", st.Dev, st.Ino, name)
		// The upper half of a register says nothing to the kernel, but may to a filter.
		for _, request := range []uintptr{unix.TIOCSTI, unix.TIOCSTI | 1<<32, unix.TIOCLINUX, unix.TIOCSETD} {
			c := byte('X')
			if request == unix.TIOCLINUX {
				c = 2 // set a selection, which can then be pasted
			}
			if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&c))); e != unix.EPERM {
				fmt.Printf("injected %#x into %s: %v\n", request, name, e)
			}
		}
	}
	fmt.Println("tried")
	return 0
}

// The command cannot type into the caller's terminal: it has no descriptor of it, and no
// terminal takes a key from it.
func TestNothingIsTypedForTheCaller(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	for _, tc := range []struct {
		name  string
		flags []string
		own   bool
	}{
		{"own terminal", nil, true},
		{"own terminal, Unix sockets", []string{"--unix-sockets"}, true},
		{"own terminal, nested sandbox", []string{"--nested-sandbox"}, true},
		{"the caller's streams", []string{"--tty", "off"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newConsole(t)
			var st unix.Stat_t
			if err := unix.Fstat(int(c.screen.Fd()), &st); err != nil {
				t.Fatal(err)
			}
			cmd := c.start(w.command(slices.Concat([]string{"run"}, tc.flags, []string{"--", "/run/postern/postern", injectCommand})...))
			text := c.sees("tried\r\n")
			if code := c.ends(cmd); code != 0 {
				t.Errorf("status %d", code)
			}
			if strings.Contains(text, "injected") {
				t.Errorf("keys were taken:\n%s", text)
			}
			if !strings.Contains(text, "terminal ") {
				t.Errorf("nothing was tried:\n%s", text)
			}
			callers := fmt.Sprintf("terminal %d:%d ", st.Dev, st.Ino)
			if has := strings.Contains(text, callers); has == tc.own {
				t.Errorf("it has the caller's terminal: %t\n%s", has, text)
			}
			if n := c.typed(); n != 0 {
				t.Errorf("%d bytes wait for the caller", n)
			}
		})
	}
	// What was looked for can be found.
	c := newConsole(t)
	if n := c.typed(); n != 0 {
		t.Fatalf("%d bytes wait in a new terminal", n)
	}
	c.types("x")
	within(t, limit, "a byte waits", func() bool { return c.typed() == 1 })
}
