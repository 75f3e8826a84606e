package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// onCommand makes the test binary the launcher in a folder on another file system, which it
// mounts: it is followed by its type, what is mounted, the folder, and the command line.
const onCommand = "__on"

// on is that process, in namespaces of its own.
func on(args []string) int {
	kind, source, dir := args[0], args[1], args[2]
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return complain(err)
	}
	if source == "" {
		if err := unix.Mount(kind, dir, kind, 0, ""); err != nil {
			return complain(fmt.Errorf("mount %s: %w", kind, err))
		}
	} else if out, err := exec.Command("mount", "-t", kind, "-o", "loop", source, dir).CombinedOutput(); err != nil {
		return complain(fmt.Errorf("mount %s: %w: %s", kind, err, out))
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return complain(err)
	}
	if err := os.Chdir(dir); err != nil { // it was what is below
		return complain(err)
	}
	return complain(syscall.Exec("/proc/self/exe", append([]string{"postern"}, args[3:]...), os.Environ()))
}

// mountAs asks for namespaces in which cmd may mount: as root what it likes, as another user
// what the kernel lets everybody.
func mountAs(cmd *exec.Cmd) {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
	cmd.SysProcAttr = attr
}

// vfatImage makes one, of the size of a floppy, where it can be mounted.
func vfatImage(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOT PASSED: only root mounts a vfat")
	}
	const sector, sectors, perTable = 512, 2880, 9
	image := make([]byte, sector*sectors)
	// The boot sector: a jump, the maker, sectors of 512 bytes, one in a cluster, one reserved,
	// two tables, 224 entries in the root, how many sectors, the medium, sectors of a
	// table, and the geometry.
	copy(image, "\xeb\x3c\x90postern \x00\x02\x01\x01\x00\x02\xe0\x00\x40\x0b\xf0\x09\x00\x12\x00\x02\x00")
	copy(image[510:], "\x55\xaa")
	for table := range 2 {
		copy(image[sector*(1+table*perTable):], "\xf0\xff\xff") // the medium, and an end
	}
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, image, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A run in a folder of a file system on which one file can have several names is refused: the
// folder and the file system are named, and nothing is started (SPEC 26). Without rules
// about names it is not.
func TestUnsafeFileSystem(t *testing.T) {
	for _, kind := range []string{"ramfs", "vfat"} {
		t.Run(kind, func(t *testing.T) {
			source := ""
			if kind == "vfat" {
				source = vfatImage(t)
			}
			w := newWorld(t)
			newAppliance(t, w.runs)
			start := func(flags ...string) result {
				t.Helper()
				args := append([]string{onCommand, kind, source, w.tree, "run"}, flags...)
				cmd := w.command(append(args, "--", "/bin/sh", "-c", "echo started; touch ran")...)
				mountAs(cmd)
				var stdout, stderr bytes.Buffer
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				if err := cmd.Run(); cmd.ProcessState == nil {
					t.Skipf("SKIPPED, NOT PASSED: this user gets no namespaces: %v", err)
				}
				// In a namespace of a user's own root's files are nobody's, bubblewrap too.
				if said := stderr.String(); strings.HasPrefix(said, "cannot become the launcher: mount ") || os.Geteuid() != 0 && strings.Contains(said, "[bwrap_untrusted]") {
					t.Skipf("SKIPPED, NOT PASSED: %s", said)
				}
				return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
			}
			got := start("--deny-name", "*.key")
			if got.code != 125 || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 || !strings.HasPrefix(got.stderr, "postern: refused: ") {
				t.Errorf("got %+v", got)
			}
			for _, text := range []string{"*.key", w.tree + " lies on " + kind, "another file system than " + kind, "[name_globs]"} {
				if !strings.Contains(got.stderr, text) {
					t.Errorf("%q does not say %q", got.stderr, text)
				}
			}
			if got := start(); got.code != 0 || got.stdout != "started\n" {
				t.Errorf("without rules: %+v", got)
			}
		})
	}
}
