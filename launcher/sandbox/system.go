package sandbox

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// systemTrees are shown read-only where the host has them. /opt is not among them:
// what lies there may be anything, and a run that needs it can be given it.
var systemTrees = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/nix/store", "/run/current-system", "/gnu/store",
}

// etcTrees are the parts of /etc that programs need to load, trust certificates,
// format, and find their system-wide settings. The rest of /etc says who may log in
// and where the host's services keep their secrets.
var etcTrees = []string{
	"alternatives", "crypto-policies", "debian_version",
	"inputrc", "java-8-openjdk", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "java-25-openjdk",
	"ld.so.cache", "locale.alias", "locale.conf", "localtime",
	"mime.types", "os-release", "pki/ca-trust/extracted", "pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf",
	"profile", "profile.d", "bash.bashrc", "bashrc", "protocols", "redhat-release", "services", "shells",
	"ssh/ssh_config.d", "ssh/ssh_known_hosts", "ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf",
	"static", "terminfo", "timezone", "vimrc", "zsh", "zshenv",
}

// maxCopied is up to which size, in bytes, a file of /etc is copied instead of
// mounted: a mount costs several times as much, at every start.
const maxCopied = 256 << 10

// addSystem looks which of them there are. Only what everybody may read is shown: a
// run started by root would otherwise read what is root's alone.
//
// This is most of what the launcher itself does at a start, so it asks for nothing
// twice: one listing of /etc says which of its names are there at all.
func (f *Facts) addSystem() {
	for _, path := range systemTrees {
		f.addSystemPath(path)
	}
	there := map[string]bool{}
	entries, _ := os.ReadDir("/etc") // without one there is nothing to show
	for _, e := range entries {
		there[e.Name()] = true
	}
	for _, name := range etcTrees {
		if first, _, _ := strings.Cut(name, "/"); there[first] {
			f.addSystemPath("/etc/" + name)
		}
	}
	f.Etc = append(f.Etc, etcFiles(f.Home)...)
	if os.Geteuid() == 0 {
		f.addProcCovers("/proc")
	}
}

func (f *Facts) addSystemPath(path string) {
	info, err := os.Lstat(path)
	if err != nil {
		return
	}
	perm := info.Mode().Perm()
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if text, err := os.Readlink(path); err == nil {
			f.System = append(f.System, SystemPath{Path: path, Link: text})
		}
	case info.IsDir() && perm&0o005 == 0o005:
		if !f.copyDir(path) {
			f.System = append(f.System, SystemPath{Path: path})
		}
	case info.Mode().IsRegular() && perm&0o004 != 0 && info.Size() <= maxCopied:
		f.Etc = append(f.Etc, Data{Path: path, From: path})
	case info.Mode().IsRegular() && perm&0o004 != 0:
		f.System = append(f.System, SystemPath{Path: path})
	}
}

// copyDir copies a directory of /etc that holds a few small files, as most do whose
// name ends in .d, and leaves out an empty one. It reports whether that was all.
func (f *Facts) copyDir(dir string) bool {
	const few = 8
	if !contains("/etc", dir) {
		return false
	}
	entries, err := firstEntries(dir, few+1)
	if err != nil || len(entries) > few {
		return false
	}
	files := make([]Data, 0, few)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxCopied/few {
			return false
		}
		if info.Mode().Perm()&0o004 != 0 {
			path := filepath.Join(dir, e.Name())
			files = append(files, Data{Path: path, From: path})
		}
	}
	f.Etc = append(f.Etc, files...)
	return true
}

// firstEntries lists up to n entries of a directory, for some of /etc have hundreds.
func firstEntries(dir string, n int) ([]fs.DirEntry, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(n)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// addProcCovers finds what of /proc its owner may write. The kernel gives these files
// to the root of the host, and asks some of them for no capability: root inside a
// sandbox is that user, and could set kernel.core_pattern or pull sysrq-trigger. Other
// users cannot write them anyway. irq and bus are bubblewrap's to cover, as sys would
// be, but it looks whether the directory can be written, and not what is in it.
func (f *Facts) addProcCovers(proc string) {
	d, err := os.Open(proc)
	if err != nil {
		return // then the mount of /proc inside fails as well, and says so
	}
	defer d.Close()
	entries, err := d.ReadDir(-1) // unsorted: there are many processes
	if err != nil {
		return // then the mount of /proc inside fails as well, and says so
	}
	for _, e := range entries {
		path := filepath.Join(proc, e.Name())
		if strings.Trim(e.Name(), "0123456789") == "" {
			continue // a process; there are many
		}
		info, err := e.Info()
		if err != nil {
			continue
		}
		owned := info.Mode().IsRegular() && info.Mode().Perm()&0o200 != 0
		if owned || info.IsDir() && (e.Name() == "sys" || procTrees[e.Name()] && holdsWritable(path, scanDepth)) {
			f.ProcCovers = append(f.ProcCovers, path)
		}
	}
	slices.Sort(f.ProcCovers)
}

// procTrees may hold files that their owner may write, depending on drivers and file
// systems. Each cover is time at every start, so it is looked.
var procTrees = set("acpi", "asound", "driver", "fs", "scsi", "tty")

// holdsWritable reports whether there is a file below dir that its owner may write.
// What cannot be looked at counts as one.
func holdsWritable(dir string, depth int) bool {
	entries, err := os.ReadDir(dir)
	if err != nil || depth == 0 {
		return err != nil || len(entries) > 0
	}
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil:
			return true
		case e.IsDir():
			if holdsWritable(filepath.Join(dir, e.Name()), depth-1) {
				return true
			}
		case info.Mode().IsRegular() && info.Mode().Perm()&0o200 != 0:
			return true
		}
	}
	return false
}
