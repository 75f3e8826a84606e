package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPasswd(t *testing.T) {
	const host = `root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
alice:x:1000:1000:Alice Example,,,:/home/alice:/bin/zsh
bob:x:1001:1001:Bob:/home/bob:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
broken line
`
	got := passwd(host, account{name: "alice", uid: 1000, gid: 1000, home: "/home/alice", shell: "/bin/bash"})
	want := `alice:x:1000:1000::/home/alice:/bin/bash
root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
nobody:x:65534:65534::/nonexistent:/bin/false
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := passwd("", account{name: "user", uid: 7, gid: 7, home: "/h", shell: "/bin/sh"}); !strings.HasPrefix(got, "user:x:7:7::/h:/bin/sh\n") {
		t.Errorf("without a host file: %s", got)
	}
	// An account that LDAP alone knows has the same number as one of the host.
	if got := passwd(host, account{name: "x", uid: 1, gid: 1, home: "/h", shell: "/bin/sh"}); strings.Contains(got, "daemon") {
		t.Errorf("two names for one number:\n%s", got)
	}
}

func TestGroup(t *testing.T) {
	const host = "root:x:0:\nsudo:x:27:alice,bob\nalice:x:1000:\nbob:x:1001:\nx:y\n"
	if got, want := group(host, 1000), "root:x:0:\nsudo:x:27:\nalice:x:1000:\nnogroup:x:65534:\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := group(host, 4242), "root:x:0:\nsudo:x:27:\nuser:x:4242:\nnogroup:x:65534:\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Only what everybody may read is taken from the system.
func TestSystemPaths(t *testing.T) {
	base := tree(t, "open/x", "closed/x", "file", "private", "big", "link -> file")
	for path, mode := range map[string]os.FileMode{"closed": 0o750, "private": 0o640} {
		if err := os.Chmod(filepath.Join(base, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	write(t, base+"/big", strings.Repeat("x", maxCopied+1))
	var f Facts
	for _, name := range []string{"open", "closed", "file", "private", "big", "link", "missing"} {
		f.addSystemPath(filepath.Join(base, name))
	}
	var got []string
	for _, s := range f.System {
		rel, _ := filepath.Rel(base, s.Path)
		got = append(got, rel+" "+s.Link)
	}
	if text, want := strings.Join(got, ","), "open ,big ,link file"; text != want {
		t.Errorf("mounted %q, want %q", text, want)
	}
	if len(f.Etc) != 1 || f.Etc[0] != (Data{Path: base + "/file", From: base + "/file"}) {
		t.Errorf("copied %q", f.Etc)
	}
}

func TestCopiedDirectories(t *testing.T) {
	base := tree(t, "some/a", "some/b", "empty/", "deep/a/b", "linked/a -> b")
	var f Facts
	for _, name := range []string{"some", "empty", "deep", "linked"} {
		if f.copyDir(filepath.Join(base, name)) {
			t.Errorf("%s, which is not below /etc, was copied", name)
		}
	}
	if _, err := os.Stat("/etc/profile.d"); err == nil && f.copyDir("/etc/profile.d") {
		for _, d := range f.Etc {
			if !strings.HasPrefix(d.Path, "/etc/profile.d/") || d.From != d.Path {
				t.Errorf("copied %q", d)
			}
		}
	}
}

func TestProcCovers(t *testing.T) {
	base := tree(t, "sys/kernel/core_pattern", "irq/1", "fs/xfs/stat", "driver/rtc", "scsi/scsi", "acpi/", "1/mem", "123/mem", "sysrq-trigger", "version", "net/x", "self -> 1")
	for path, mode := range map[string]os.FileMode{"sysrq-trigger": 0o200, "version": 0o444, "fs/xfs/stat": 0o444, "driver/rtc": 0o444} {
		if err := os.Chmod(filepath.Join(base, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	var f Facts
	f.addProcCovers(base)
	var got []string
	for _, p := range f.ProcCovers {
		got = append(got, filepath.Base(p))
	}
	if text, want := strings.Join(got, " "), "scsi sys sysrq-trigger"; text != want {
		t.Errorf("covered %q, want %q", text, want)
	}
}

// The run's resolv.conf is written, and never a copy of the host's or a link to where that
// has its own: bubblewrap would follow one that is absolute out of the new root.
func TestResolvConf(t *testing.T) {
	var f Facts
	f.addSystem()
	found := 0
	for _, d := range f.Etc {
		if d.Path == "/etc/resolv.conf" {
			found++
			if d.From != "" || d.Content != resolvConf {
				t.Errorf("it is %+v", d)
			}
		}
	}
	for _, s := range f.System {
		if s.Path == "/etc/resolv.conf" || s.Path == "/etc" {
			t.Errorf("the host's is shown: %+v", s)
		}
	}
	if found != 1 {
		t.Errorf("there are %d", found)
	}
	for line := range strings.Lines(resolvConf) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		want := map[string]string{"nameserver": "127.0.0.1", "options": "timeout:2 attempts:1 ndots:1"}
		if word != "#" && want[word] != rest {
			t.Errorf("line %q", line)
		}
	}
}
