package nameattacks

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// text is a path as the kernel takes it.
func text(path string) *byte {
	b := append([]byte(path), 0)
	return &b[0]
}

// raw is any system call.
func raw(nr uintptr, args ...uintptr) (uintptr, error) {
	var a [6]uintptr
	copy(a[:], args)
	r, _, e := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if e != 0 {
		return r, e
	}
	return r, nil
}

// ptr is the address of what a system call is given.
func ptr[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// openat2Raw is openat2 with a structure of another size.
func openat2Raw(path string, how *unix.OpenHow, size uintptr) error {
	p := text(path)
	_, err := raw(unix.SYS_OPENAT2, ptrHere, ptr(p), ptr(how), size)
	runtime.KeepAlive(p)
	return err
}

// ptrHere is AT_FDCWD in a register.
const ptrHere = ^uintptr(99)

// pages gives memory of whole pages.
func pages(n int) []byte {
	mem, err := unix.Mmap(-1, 0, n*unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	return mem
}

// pointer is the way back from an address of mapped memory.
func pointer(at uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&at)) }

// fixed is the address of a path that stays where it is.
func fixed(path string) uintptr {
	mem := pages(1)
	copy(mem, path)
	return ptr(&mem[0])
}
