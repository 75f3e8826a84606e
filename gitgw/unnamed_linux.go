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
	f, err := os.OpenFile(dir, os.O_RDWR|os.O_EXCL|syscall.O_DIRECTORY|tmpfile, 0o600)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.EINVAL) {
		return removedFile(dir) // not every file system can
	}
	return f, err
}

// freeSpace is what is free on a file's disk for who is not root, and how large it is.
func freeSpace(f *os.File) (free, size int64, known bool) {
	var st syscall.Statfs_t
	if syscall.Fstatfs(int(f.Fd()), &st) != nil || st.Blocks == 0 {
		return 0, 0, false
	}
	block := int64(st.Bsize)                                        //nolint:unconvert // of other types elsewhere
	return int64(st.Bavail) * block, int64(st.Blocks) * block, true //nolint:gosec // far below
}
