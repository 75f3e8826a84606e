package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// systemDirs are where bubblewrap is looked for, in this order. The caller's PATH is
// never asked: it may lead into the very folder that the run is to be kept in.
var systemDirs = []string{"/usr/bin", "/bin", "/usr/local/bin", "/run/wrappers/bin", "/run/current-system/sw/bin"}

// FindBwrap finds bubblewrap in dirs; nil means the system's.
func FindBwrap(dirs []string) (string, error) {
	if dirs == nil {
		dirs = systemDirs
	}
	for _, dir := range dirs {
		path, err := filepath.EvalSymlinks(filepath.Join(dir, "bwrap"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return "", &Refusal{Reason: ReasonUntrusted, Detail: "cannot look at " + filepath.Join(dir, "bwrap"), Err: err}
		}
		return path, checkTool(path)
	}
	return "", &Refusal{
		Reason: ReasonMissing,
		Detail: "bubblewrap (bwrap) is in none of the system's directories",
		Cure:   "install it: sudo apt-get install bubblewrap",
	}
}

// checkTool refuses a program that somebody else could have put there.
func checkTool(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return &Refusal{Reason: ReasonUntrusted, Detail: "cannot look at " + path, Err: err}
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return &Refusal{Reason: ReasonUntrusted, Detail: path + " is not an executable file", Cure: "reinstall bubblewrap"}
	}
	// A setuid bwrap sets up the sandbox with root's rights and by other rules
	// (PR_SET_PDEATHSIG is lost, capabilities differ): what we tested does not hold.
	if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		return &Refusal{
			Reason: ReasonSetuid,
			Detail: path + " is setuid, and works by other rules than the ones tested",
			Cure:   "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1) and remove the bit: sudo chmod u-s " + path,
		}
	}
	for at := path; ; at = filepath.Dir(at) {
		if why := writableByOthers(at); why != "" {
			return &Refusal{Reason: ReasonUntrusted, Detail: why, Cure: "give it to root, writable by root alone"}
		}
		if at == "/" {
			return nil
		}
	}
}

// writableByOthers says who else than root and this user may change path, if any.
func writableByOthers(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Sprintf("cannot look at %s: %v", path, err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "cannot tell who owns " + path
	}
	if !slices.Contains([]int{0, os.Geteuid()}, int(st.Uid)) {
		return fmt.Sprintf("%s belongs to user %d", path, st.Uid)
	}
	// In a sticky directory others may add files, but not replace this one.
	if info.Mode().Perm()&0o022 != 0 && (!info.IsDir() || info.Mode()&fs.ModeSticky == 0) {
		return path + " is writable by others"
	}
	return ""
}

// checkElevated refuses a launcher that runs with more rights than its caller.
func checkElevated() error {
	if os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() {
		return &Refusal{Reason: ReasonElevated, Detail: "the launcher is setuid or setgid", Cure: "remove the bit; it needs no rights of its own"}
	}
	return nil
}
