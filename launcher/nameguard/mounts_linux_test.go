package nameguard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const someMounts = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /dev rw - devtmpfs udev rw
30 22 8:17 / /media/stick rw,nosuid - vfat /dev/sdb1 rw
31 22 0:44 / /home/u/remote rw - fuse.sshfs host: rw
32 22 0:45 / /home/u/app/iso ro - iso9660 /dev/sr0 ro
33 22 0:46 / /home/u/two\040words rw - 9p share rw
34 22 8:18 / /mnt/x rw - vfat /dev/sdb2 rw
35 34 8:19 / /mnt/x rw - xfs /dev/sdb3 rw
`

// What folders lie on and what lies in them tells whether names can be guarded there, before
// anything is started.
func TestCheckMounts(t *testing.T) {
	for _, tc := range []struct {
		folders string
		at, fs  string
	}{
		{"/home/u/app", "", ""}, // what cannot be written in it needs no guard
		{"/mnt/x", "", ""},      // the last mount at a place is what is seen
		{"/media/stick", "/media/stick", "vfat"},
		{"/media/stick/a/b", "/media/stick/a/b", "vfat"},
		{"/home/u", "/home/u/remote", "fuse.sshfs"},
		{"/home/u/two words/x", "/home/u/two words/x", "9p"},
		{"/home/u/app /media/stick", "/media/stick", "vfat"},
		{"/home/u/remotely", "", ""},
	} {
		folders := []string{tc.folders}
		if !strings.Contains(tc.folders, "two words") {
			folders = strings.Fields(tc.folders)
		}
		err := CheckMounts(someMounts, folders)
		got, _ := errors.AsType[*FileSystemError](err)
		switch {
		case tc.fs == "" && err != nil, tc.fs != "" && (got == nil || *got != FileSystemError{tc.at, tc.fs}):
			t.Errorf("%s: %v", tc.folders, err)
		}
	}
	for _, bad := range []string{"", "x\n", "a 1 8:1 / / rw - ext4 x rw\n"} {
		if err := CheckMounts(bad, []string{"/home"}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// mountsOf is the mountinfo of a sandbox with a workspace of some kind.
func mountsOf(kind, options string) string {
	return fmt.Sprintf(`120 90 0:40 / / ro,nosuid - tmpfs tmpfs rw
121 120 8:1 /usr /usr ro,nosuid,relatime master:1 - ext4 /dev/sda1 rw
122 120 0:41 / /proc rw,nosuid - proc proc rw
123 120 0:42 / /tmp rw,nosuid - tmpfs tmpfs rw
124 120 0:43 /a%[1]sb /w/my\040work %[3]s,nosuid,nodev,relatime master:2 - %[2]s /dev/source rw
`, `\040`, kind, options)
}

func opened(free ...string) *Options {
	return &Options{Free: append([]string{"/tmp", "/proc"}, free...)}
}

// A folder that may be written is on one of the file systems that are known to give a file
// one name. All others are refused by their names, whatever they are: those of Windows,
// those that a server or a host of virtual machines has, those of programs, and those to come.
func TestFileSystems(t *testing.T) {
	for _, kind := range []string{
		"vfat", "msdos", "exfat", "ntfs", "ntfs3", "hfs", "hfsplus", "apfs", "udf", "iso9660",
		"cifs", "smb3", "9p", "virtiofs", "vboxsf", "prl_fs", "afs", "ceph", "ncpfs",
		"fuse", "fuseblk", "fuse.sshfs", "fuse.gvfsd-fuse", "fuse.portal", "fuse.ext4", "fuse.vmhgfs-fuse", "fuse.osxfs", "drvfs",
		"ramfs", "ecryptfs", "zfs", "bcachefs", "EXT4", "ext", "ext4dev", "unheard-of",
	} {
		_, err := parseMounts(mountsOf(kind, "rw"), opened())
		fs, ok := errors.AsType[*FileSystemError](err)
		if !ok || fs.Type != kind || fs.Path != "/w/my work" || !strings.Contains(err.Error(), "/w/my work lies on "+kind+",") {
			t.Errorf("%s: %v", kind, err)
		}
		// Where the run cannot write, or acts by itself, no name has to be kept.
		if m, err := parseMounts(mountsOf(kind, "ro"), opened()); err != nil || m.zones[124] != guarded {
			t.Errorf("%s, only read: %v", kind, err)
		}
		if m, err := parseMounts(mountsOf(kind, "rw"), opened("/w/my work")); err != nil || m.zones[124] != free {
			t.Errorf("%s, free: %v", kind, err)
		}
	}
	for _, kind := range safe {
		m, err := parseMounts(mountsOf(kind, "rw"), opened())
		if err != nil || m.zones[124] != guarded || m.zones[122] != process || m.zones[123] != free {
			t.Errorf("%s: %v, %v", kind, m.zones, err)
		}
	}
}

// What is no table of mounts is none: nothing is known of the sandbox then.
func TestMountsThatCannotBeRead(t *testing.T) {
	lines := strings.SplitAfter(mountsOf("ext4", "rw"), "\n")
	for _, wrong := range []string{"\n", "x\n", "x 1 0:1 / / rw - tmpfs t rw\n", "-1 1 0:1 / / rw - tmpfs t rw\n", "1 1 0:1 / / rw tmpfs t rw\n", "1 1 0:1 / rw - tmpfs t rw\n", "1 1 0:1 / / rw - \n"} {
		for i := range lines {
			if m, err := parseMounts(strings.Join(slices.Insert(slices.Clone(lines[:len(lines)-1]), min(i, len(lines)-1), wrong), ""), opened()); err == nil {
				t.Errorf("%q: %v", wrong, m.zones)
			}
		}
	}
	if m, err := parseMounts("", opened()); err == nil {
		t.Errorf("nothing: %v", m.zones)
	}
}
