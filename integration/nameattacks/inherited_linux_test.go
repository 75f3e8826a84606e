package nameattacks

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// outside has the sandbox inherit a folder that it is not shown, a file in it, and the
// workspace as the host sees it.
const (
	hostFolder = firstInherited
	hostFile   = firstInherited + 1
	hostWS     = firstInherited + 2
)

func inherits(b *bed) {
	b.inherit = []string{b.outside, b.outside + "/host.pem", b.ws}
	b.stdin = b.outside + "/plain"
}

func setInherits(a attack) attack {
	a.group, a.inside = "inherited", true
	a.prepare = func(_ *testing.T, b *bed) { inherits(b) }
	return a
}

// What the sandbox was started with by mistake.
var inherited = []attack{
	setInherits(attack{name: "folder", quiet: true, run: func() error { return spill(unix.Openat(hostFolder, "new", unix.O_CREAT|unix.O_WRONLY, 0o644)) }}),
	setInherits(attack{name: "folder's parent", quiet: true, run: func() error {
		return spill(unix.Openat(hostFolder, "../outside/new", unix.O_CREAT|unix.O_WRONLY, 0o644))
	}}),
	setInherits(attack{name: "folder by its number", quiet: true, run: func() error { return spill(unix.Creat(ofFD(hostFolder)+"/new", 0o644)) }}),
	setInherits(attack{name: "folder as working directory", quiet: true, run: func() error {
		return first(func() error { return unix.Fchdir(hostFolder) }, func() error {
			return errors.Join(spill(unix.Creat("new", 0o644)), unix.Mkdir("d", 0o755), unix.Symlink("x", "l"), unix.Mkfifo("f", 0o644), unix.Rename("plain", "moved"), unix.Link("plain", "linked"), bindAt("s"), unix.Truncate("plain", 1))
		})
	}}),
	setInherits(attack{name: "folder to link out of", quiet: true, run: func() error {
		return errors.Join(unix.Linkat(hostFolder, "host.pem", here, "linked", 0), unix.Renameat(hostFolder, "host.pem", here, "moved"), unix.Renameat(here, "plain", hostFolder, "moved"))
	}, native: "files are linked and renamed within one mount"}),
	setInherits(attack{name: "file", quiet: true, run: func() error { return spill(unix.Open(ofFD(hostFile), unix.O_WRONLY, 0)) }}),
	setInherits(attack{name: "standard input", quiet: true, run: func() error { return spill(unix.Open("/dev/stdin", unix.O_WRONLY, 0)) }}),
	setInherits(attack{name: "standard input by truncate", quiet: true, run: func() error { return unix.Truncate("/proc/self/fd/0", 0) }}),
	setInherits(attack{name: "workspace of the host", quiet: true, run: func() error {
		return errors.Join(spill(unix.Openat(hostWS, ".env", unix.O_CREAT|unix.O_WRONLY, 0o644)), unix.Mkdirat(hostWS, "x.key", 0o755), unix.Renameat(hostWS, "plain", hostWS, "x.pem"))
	}}),
}
