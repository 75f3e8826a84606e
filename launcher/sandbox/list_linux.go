package sandbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// listBuffer is how much of a directory is asked for at once, in bytes.
const listBuffer = 32 << 10

// list calls visit for every entry of a directory, in the order of the disk. The name is
// good until visit returns. Raw, because a folder may hold hundreds of thousands of
// files, of which hardly any is of interest: no text is made of the others, none is
// asked about, and nothing is sorted.
func list(dir string, buf []byte, st *folderStat, visit func(name []byte, mode fs.FileMode, ino uint64)) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	if st != nil {
		// Before the names: what comes later changes the time.
		var s unix.Stat_t
		if unix.Fstat(fd, &s) == nil {
			*st = folderStat{dev: s.Dev, ino: s.Ino, sec: s.Ctim.Sec, nsec: s.Ctim.Nsec}
		}
	}
	for {
		n, err := unix.Getdents(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return &os.PathError{Op: "read", Path: dir, Err: err}
		case n == 0:
			return nil
		}
		for rest := buf[:n]; len(rest) > 0; {
			// struct linux_dirent64: inode 8, offset 8, length 2, type 1, name.
			const head = 19
			if len(rest) < head {
				return &os.PathError{Op: "read", Path: dir, Err: unix.EIO}
			}
			size := int(binary.NativeEndian.Uint16(rest[16:]))
			if size <= head || size > len(rest) {
				return &os.PathError{Op: "read", Path: dir, Err: unix.EIO}
			}
			name := rest[head:size]
			if end := bytes.IndexByte(name, 0); end >= 0 {
				name = name[:end]
			}
			ino, kind := binary.NativeEndian.Uint64(rest), rest[18]
			rest = rest[size:]
			if name[0] == '.' && (len(name) == 1 || len(name) == 2 && name[1] == '.') {
				continue
			}
			mode, known := direntMode(kind)
			if !known {
				info, err := os.Lstat(dir + "/" + string(name))
				if err != nil {
					continue // it went away
				}
				mode = info.Mode().Type()
			}
			visit(name, mode, ino)
		}
	}
}

// direntMode is the type that a directory notes for an entry; some file systems note
// none.
func direntMode(kind byte) (mode fs.FileMode, known bool) {
	switch kind {
	case unix.DT_REG:
		return 0, true
	case unix.DT_DIR:
		return fs.ModeDir, true
	case unix.DT_LNK:
		return fs.ModeSymlink, true
	case unix.DT_SOCK:
		return fs.ModeSocket, true
	case unix.DT_FIFO:
		return fs.ModeNamedPipe, true
	case unix.DT_BLK:
		return fs.ModeDevice, true
	case unix.DT_CHR:
		return fs.ModeDevice | fs.ModeCharDevice, true
	}
	return 0, false
}

// sureInodes reports whether the directories around a file say the numbers of its inodes
// as it does itself.
func sureInodes(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && int64(fs.Type) != unix.OVERLAYFS_SUPER_MAGIC && slices.Contains(localFS, int64(fs.Type)) //nolint:unconvert // its width differs by platform
}
