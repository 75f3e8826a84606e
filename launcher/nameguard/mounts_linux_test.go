package nameguard

import (
	"errors"
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
		err := CheckMounts([]byte(someMounts), folders)
		got, _ := errors.AsType[*FileSystemError](err)
		switch {
		case tc.fs == "" && err != nil, tc.fs != "" && (got == nil || *got != FileSystemError{tc.at, tc.fs}):
			t.Errorf("%s: %v", tc.folders, err)
		}
	}
	for _, bad := range []string{"", "x\n", "a 1 8:1 / / rw - ext4 x rw\n"} {
		if err := CheckMounts([]byte(bad), []string{"/home"}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
