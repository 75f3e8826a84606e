package nameattacks

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// compiled is where programs lies outside: nowhere without a compiler.
var compiled string

// compile makes programs of what Go cannot say.
func compile(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		return
	}
	sources, err := filepath.Glob("testdata/*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	dir := folder(t)
	for _, source := range sources {
		name := strings.TrimSuffix(filepath.Base(source), ".c")
		args := []string{"-O1", "-Wall", "-Wno-unused-result", "-pthread", "-o", filepath.Join(dir, name), source}
		if isBare(name) {
			if runtime.GOARCH != "amd64" {
				continue
			}
			args = append([]string{"-static", "-nostdlib", "-no-pie", "-fno-stack-protector"}, args...)
		}
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("gcc %s: %v\n%s", source, err, out)
		}
	}
	compiled = dir
}

// isBare reports whether a program is all of its own, for one machine.
func isBare(name string) bool { return name == "int80" || name == "segment" || name == "x32" }

// needsProgram says why a program is not there.
func needsProgram(name string) func() string {
	return func() string {
		if compiled == "" {
			return "there is no gcc"
		}
		if isBare(name) && runtime.GOARCH != "amd64" {
			return "it is for amd64"
		}
		return ""
	}
}

// do runs a program. What it prints on the side is kept apart from what it says.
func do(name string, args ...string) error {
	cmd := exec.Command(filepath.Join(programs, name), args...)
	var aside strings.Builder
	cmd.Stdout, cmd.Stderr = os.Stdout, &aside
	err := cmd.Run()
	if err != nil {
		return fmt.Errorf("%s ended with %w", name, err)
	}
	return nil
}

// What the calling convention has to offer.
var machine = []attack{
	{group: "machine", name: "int 0x80", quiet: true, skip: needsProgram("int80"), run: func() error { return do("int80") }},
	{group: "machine", name: "32-bit code", quiet: true, skip: needsProgram("segment"), run: func() error { return do("segment") }},
	{group: "machine", name: "x32", either: "few kernels have x32", skip: needsProgram("x32"), run: func() error { return do("x32") }},
	{group: "machine", name: "high bits of a number", run: func() error {
		p := text(".env")
		_, err := raw(unix.SYS_OPENAT|0xdead_beef<<32, ptrHere, ptr(p), unix.O_CREAT|unix.O_WRONLY, 0o644)
		return err
	}},
	{group: "machine", name: "high bits of arguments", run: func() error {
		p := text("x.key")
		_, err := raw(unix.SYS_OPENAT, 0x1234_5678_ffff_ff9c, ptr(p), unix.O_CREAT|unix.O_WRONLY|0x7fff_ffff<<32, 0o644|0xffff<<40)
		return err
	}},
	{group: "machine", name: "unknown flags", run: func() error {
		p := text("x.key")
		_, err := raw(unix.SYS_OPENAT, ptrHere, ptr(p), unix.O_CREAT|unix.O_WRONLY|1<<29|1<<30, 0o644)
		return err
	}},
	{group: "machine", name: "unknown numbers", native: "the kernel does not know them", run: func() error {
		p, q := text(".env"), text("plain")
		for nr := uintptr(472); nr < 1100; nr++ {
			if _, err := raw(nr, ptr(p), 0o644, ptr(q)); !errors.Is(err, unix.ENOSYS) {
				return fmt.Errorf("%d: %w", nr, err)
			}
			_, _ = raw(nr, ptrHere, ptr(p), unix.O_CREAT|unix.O_WRONLY, 0o644)
			_, _ = raw(nr, ptrHere, ptr(q), ptrHere, ptr(p), 0)
		}
		return nil
	}},
}

// seconds is how long a program is to go on: as long as races do.
func seconds() string { return fmt.Sprint(time.Until(until).Seconds()) }

// often is how many times something is done: in a bare sandbox, in each run of the tests,
// and where they are to last long.
func often(bare, usual, long int) string {
	switch d := time.Until(until); {
	case d <= barely:
		return fmt.Sprint(bare)
	case d < 29*time.Second:
		return fmt.Sprint(usual)
	}
	return fmt.Sprint(long)
}

const nothingWrong = "wrong: 0"

// refused fails where a program that tries to make .env on the side was not refused, and
// where that did not happen at all.
func refused(t *testing.T, _ *bed, r result) {
	t.Helper()
	if len(r.Violations) == 0 {
		t.Errorf("nothing was refused: %s", r)
	}
}

// Many, fast, and interrupted. In a bare sandbox they make .env.
var storms = []attack{
	{group: "storms", name: "signals", raced: true, alone: true, says: nothingWrong, check: refused, skip: needsProgram("signals"), run: func() error { return do("signals", seconds()) }},
	{group: "storms", name: "written and run at once", alone: true, says: nothingWrong, skip: needsProgram("busy"), run: func() error { return do("busy", often(100, 2000, 50_000)) }},
	{group: "storms", name: "a thousand processes", alone: true, says: nothingWrong, check: refused, skip: needsProgram("crowd"), run: func() error { return do("crowd", often(1000, 1000, 1000)) }},
	{group: "storms", name: "killed and executed in the middle", raced: true, alone: true, says: nothingWrong, check: refused, skip: needsProgram("killed"), run: func() error { return do("killed", seconds()) }},
}
