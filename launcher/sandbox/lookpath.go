package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lookPath finds a command by the PATH the command itself will have.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	var denied error
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = "."
		}
		exe := filepath.Join(dir, name)
		if !strings.Contains(exe, "/") {
			exe = "./" + exe
		}
		info, err := os.Stat(exe)
		switch {
		case err != nil || info.IsDir():
		case info.Mode().Perm()&0o111 == 0:
			denied = &os.PathError{Op: "exec", Path: exe, Err: syscall.EACCES}
		default:
			return exe, nil
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", &os.PathError{Op: "exec", Path: name, Err: syscall.ENOENT}
}
