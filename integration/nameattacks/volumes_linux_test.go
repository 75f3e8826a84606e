package nameattacks

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The file system that makes trees by ioctl, through a folder that is open for reading.
var volumes = []attack{
	onBtrfs("subvolume", func(dir int) error { return btrfs(dir, subvolCreate, 0, ".env") }),
	onBtrfs("subvolume as a repository", func(dir int) error {
		return first(func() error { return btrfs(dir, subvolCreate, 0, "v") }, makeEvil("v"), func() error { return os.RemoveAll(".git") }, move("v", ".git"))
	}),
	onBtrfs("snapshot", func(dir int) error {
		return with("volume", func(from int) error { return btrfs(dir, snapCreate, from, "x.key") })
	}),
	onBtrfs("snapshot as a repository", func(dir int) error {
		return errors.Join(evil("volume/r"), os.RemoveAll(".git"), with("volume", func(from int) error { return btrfs(dir, snapCreate, from, ".git") }), makeHook(".git/hooks/pre-push"))
	}),
	onBtrfs("subvolume of the second kind", func(dir int) error {
		var args [4096]byte // struct btrfs_ioctl_vol_args_v2
		copy(args[56:], ".env")
		_, err := raw(unix.SYS_IOCTL, uintptr(dir), 0x50009418, ptr(&args))
		return err
	}),
}

func makeHook(path string) error {
	_ = os.MkdirAll(filepath.Dir(path), 0o755)
	return spill(unix.Creat(path, 0o755))
}

// The requests of btrfs, linux/btrfs.h.
const (
	subvolCreate = 0x5000940e
	snapCreate   = 0x50009401
)

// btrfs makes such a request: struct btrfs_ioctl_vol_args.
func btrfs(dir int, request uintptr, from int, name string) error {
	args := struct {
		fd   int64
		name [4088]byte
	}{fd: int64(from)}
	copy(args.name[:], name)
	_, err := raw(unix.SYS_IOCTL, uintptr(dir), request, ptr(&args))
	return err
}

func onBtrfs(name string, do func(dir int) error) attack {
	return attack{
		group: "btrfs", name: "btrfs " + name, quiet: true, alone: true,
		run: func() error { return with(".", do) },
		skip: func() string {
			if os.Getuid() != 0 {
				return "only root mounts a loop"
			}
			for _, tool := range []string{"mkfs.btrfs", "mount"} {
				if _, err := exec.LookPath(tool); err != nil {
					return "there is no " + tool
				}
			}
			return ""
		},
		prepare: func(t *testing.T, b *bed) {
			t.Helper()
			image := filepath.Join(b.dir, "image")
			run := func(name string, args ...string) {
				t.Helper()
				if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", name, err, out)
				}
			}
			run("truncate", "-s", "128M", image)
			run("mkfs.btrfs", "-q", image)
			run("mount", "-o", "loop", image, b.ws)
			t.Cleanup(func() { run("umount", b.ws) })
			b.fill(t)
			f, err := os.Open(b.ws)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			if err := btrfs(int(f.Fd()), subvolCreate, 0, "volume"); err != nil {
				t.Fatalf("make a subvolume: %v", err)
			}
		},
	}
}
