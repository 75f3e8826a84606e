package sandbox

import (
	"slices"
	"testing"

	"postern/launcher/nameguard"
)

// TestNameAliases: of what the host has mounted where, those sets that a run sees.
func TestNameAliases(t *testing.T) {
	mounts := readMounts(`22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 8:2 / /data rw - ext4 /dev/sda2 rw
31 22 8:2 /homes /home rw - ext4 /dev/sda2 rw
32 22 8:2 /homes/me/app/.git /srv/git rw - ext4 /dev/sda2 rw
33 22 8:2 /lib /home/me/app/vendor rw - ext4 /dev/sda2 rw
34 22 0:9 / /home/me/app/tmp rw - tmpfs tmpfs rw
`)
	for _, tc := range []struct {
		name  string
		roots []string
		want  [][]string
	}{
		{"one name", []string{"/home/me/app"}, nil},
		{"a second mount", []string{"/home/me/app", "/data/homes/me"}, [][]string{{"/data/homes/me/app", "/home/me/app"}}},
		{"a part of it", []string{"/home/me/app", "/srv/git"}, [][]string{{"/home/me/app/.git", "/srv/git"}}},
		{"what is mounted in it", []string{"/home/me/app", "/data/lib"}, [][]string{{"/data/lib", "/home/me/app/vendor"}}},
		{"folders in one another", []string{"/home/me", "/home/me/app"}, nil},
		{"other file systems", []string{"/home/me/app", "/opt"}, nil},
	} {
		var roots []Root
		for _, path := range tc.roots {
			roots = append(roots, Root{Path: path, Writable: true, Dir: true})
		}
		got := nameAliases(mounts, roots)
		if !slices.EqualFunc(got, tc.want, slices.Equal) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
		if _, err := nameguard.Compile(nameguard.Config{Aliases: got}); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
