package gitgw

import (
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
)

// No one who watches the folder learns of a name under which the file could be opened.
func TestUnnamedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if _, err := syscall.InotifyAddWatch(fd, dir, syscall.IN_CREATE|syscall.IN_MOVED_TO); err != nil {
		t.Fatal(err)
	}
	f, err := unnamedFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, 4<<10)
	if n, err := syscall.Read(fd, buf); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("the folder told of %q, %v", buf[:max(n, 0)], err)
	}
	if _, err := f.WriteString("pack"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(io.NewSectionReader(f, 0, 10)); string(got) != "pack" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	info, err := f.Stat()
	if err != nil || info.Mode() != 0o600 || info.Sys().(*syscall.Stat_t).Nlink != 0 {
		t.Errorf("%v %v", info, err)
	}
	// Where the file system has no such files, one is made and removed.
	other, err := removedFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v %v", left, err)
	}
}
