package sandbox

import (
	"path"
	"slices"
	"strings"
	"testing"
)

const someMounts = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /proc rw - proc proc rw
30 22 8:2 / /data rw - ext4 /dev/sda2 rw
31 22 8:2 /homes /home rw - ext4 /dev/sda2 rw
32 22 8:2 / /mnt/second\040disk rw - ext4 /dev/sda2 rw
33 22 8:2 /homes/me/.ssh/keys /srv/keys rw - ext4 /dev/sda2 rw
34 22 8:1 /root /mnt/root rw - ext4 /dev/sda1 rw
a line of something else
`

func TestOtherNames(t *testing.T) {
	mounts := readMounts(someMounts)
	for _, tc := range []struct {
		path         string
		names, parts []string
	}{
		{"/home/me/.ssh", []string{"/data/homes/me/.ssh", "/mnt/second disk/homes/me/.ssh"}, []string{"/srv/keys"}},
		{"/home/me/.aws", []string{"/data/homes/me/.aws", "/mnt/second disk/homes/me/.aws"}, nil},
		{"/root/.ssh", []string{"/mnt/root/.ssh"}, nil},
		{"/data/homes/me/.ssh", []string{"/home/me/.ssh", "/mnt/second disk/homes/me/.ssh"}, []string{"/srv/keys"}},
		{"/etc/ssl", nil, nil},
		{"/proc/self", nil, nil},
	} {
		if names, parts := otherNames(mounts, tc.path); !slices.Equal(names, tc.names) || !slices.Equal(parts, tc.parts) {
			t.Errorf("%s: got %q and %q, want %q and %q", tc.path, names, parts, tc.names, tc.parts)
		}
	}
	if names, parts := otherNames(nil, "/a"); names != nil || parts != nil {
		t.Errorf("without mounts: %q, %q", names, parts)
	}
}

func FuzzOtherNames(f *testing.F) {
	f.Add(someMounts, "/home/me/.ssh")
	f.Add("1 1 0:1 /a\\040b /c\\1 rw\n1 1 0:1 / / rw", "/c")
	f.Fuzz(func(t *testing.T, text, p string) {
		if p = path.Clean("/" + p); strings.Contains(p, "\x00") {
			return
		}
		names, parts := otherNames(readMounts(text), p)
		for _, other := range append(names, parts...) {
			if !strings.HasPrefix(other, "/") || other == p {
				t.Errorf("%q is called %q", p, other)
			}
		}
	})
}
