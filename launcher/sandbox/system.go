package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
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
	"alternatives", "ca-certificates.conf", "crypto-policies", "debian_version", "gai.conf", "host.conf",
	"inputrc", "java-8-openjdk", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "java-25-openjdk",
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf", "localtime",
	"magic", "mime.types", "os-release", "pki/ca-trust/extracted", "pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf",
	"profile", "profile.d", "bash.bashrc", "bashrc", "protocols", "redhat-release", "rpc", "services", "shells",
	"ssh/ssh_config", "ssh/ssh_config.d", "ssh/ssh_known_hosts", "ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf",
	"static", "terminfo", "timezone", "vimrc", "zsh", "zshenv",
}

// maxCopied is up to which size, in bytes, a file of /etc is copied instead of
// mounted: a mount costs several times as much, at every start.
const maxCopied = 256 << 10

// addSystem looks which of them there are. Only what everybody may read is shown: a
// run started by root would otherwise read what is root's alone.
func (f *Facts) addSystem() {
	for _, path := range systemTrees {
		f.addSystemPath(path)
	}
	for _, name := range etcTrees {
		f.addSystemPath(filepath.Join("/etc", name))
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
		f.System = append(f.System, SystemPath{Path: path})
	case info.Mode().IsRegular() && perm&0o004 != 0 && info.Size() <= maxCopied:
		f.Etc = append(f.Etc, Data{path, readText(path)})
	case info.Mode().IsRegular() && perm&0o004 != 0:
		f.System = append(f.System, SystemPath{Path: path})
	}
}

// addProcCovers finds what of /proc its owner may write. The kernel gives these files
// to the root of the host, and asks some of them for no capability: root inside a
// sandbox is that user, and could set kernel.core_pattern or pull sysrq-trigger.
// bubblewrap covers a part of them. Other users cannot write them anyway.
func (f *Facts) addProcCovers(proc string) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return // then the mount of /proc inside fails as well, and says so
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || strings.Trim(e.Name(), "0123456789") == "" {
			continue
		}
		owned := info.Mode().IsRegular() && info.Mode().Perm()&0o200 != 0
		if tree := info.IsDir() && procTrees[e.Name()]; owned || tree {
			f.ProcCovers = append(f.ProcCovers, filepath.Join(proc, e.Name()))
		}
	}
}

// procTrees hold files that their owner may write, further down.
var procTrees = set("acpi", "asound", "bus", "driver", "fs", "irq", "pressure", "scsi", "sys", "tty")
