package gitgw

import (
	"errors"
	"os"
	"syscall"
)

// tmpfile is what the kernel's O_TMPFILE has beside O_DIRECTORY, on every architecture
// that Go and bubblewrap know.
const tmpfile = 0o20000000

// unnamedFile makes a file that never has a name: a run that sees the folder, as of the
// same user it may, would open one in the moment that it has, and write what was judged
// already. O_EXCL keeps it from getting one.
func unnamedFile(dir string) (*os.File, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	f, err := os.OpenFile(dir, os.O_RDWR|os.O_EXCL|syscall.O_DIRECTORY|tmpfile, 0o600)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.EINVAL) {
		return removedFile(dir) // not every file system can
	}
	return f, err
}
