package nameguard

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The broker lives outside of the sandbox, where the sandbox's mount points are none: what
// the kernel refuses to a process inside it has to refuse itself.
func TestMountPoints(t *testing.T) {
	t.Parallel()
	script := `mv secret x; mv a secret; mv -T d e; /shim ` + enemyCommand + ` exchange a secret; mv a dir/secret; ln secret y; rm -f secret; rm -rf d; echo z > secret; mkdir secret; ls; cat a`
	for _, trap := range []bool{false, true} {
		for _, plain := range []bool{true, false} {
			b := newBox(t)
			b.plain, b.config.TrapRemove = plain, trap
			b.write("secret", "secret\n")
			b.write("a", "a\n")
			b.write("dir/secret", "secret\n")
			b.write("d/f", "f\n")
			b.args = []string{
				"--ro-bind", "/dev/null", inside + "/secret", "--ro-bind", "/dev/null", inside + "/dir/secret",
				"--bind", filepath.Join(b.dir, "d"), inside + "/d",
			}
			o := b.sh(script)
			for _, name := range []string{"secret", "dir/secret"} {
				if data, err := os.ReadFile(filepath.Join(b.dir, name)); string(data) != "secret\n" {
					t.Errorf("plain %t, trapped %t: %s holds %q (%v) after\n%s", plain, trap, name, data, err, o.out)
				}
			}
			if b.has("x") || b.has("e") || b.has("y") || !b.has("d") {
				t.Errorf("plain %t, trapped %t: a mount point was moved:\n%s", plain, trap, o.out)
			}
			if n := strings.Count(o.out, "Device or resource busy"); n < 5 {
				t.Errorf("plain %t, trapped %t: busy %d times:\n%s", plain, trap, n, o.out)
			}
		}
	}
}

// What leads to a mount point stays, in a private tree, too: the rules about paths would
// be about nothing.
func TestWaysToMountPoints(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.config.Paths = []Rule{{Text: home + "/src/app/denied", Source: "test"}}
	b.args = []string{"--bind", b.other, home + "/src/app"}
	o := b.sh(`cd $HOME; mkdir free; mv free freed && echo moved; mv src x || mv -T freed src || echo x > src/app/denied || /shim ` + enemyCommand + ` exchange src freed; ls`)
	if want := "EBUSY\nfreed\np\nsrc\n"; !strings.HasSuffix(o.out, want) || len(o.violations) != 1 {
		t.Errorf("%s%v", o.out, o.violations)
	}
	if entries, _ := os.ReadDir(b.other); len(entries) > 0 {
		t.Errorf("%v was made", entries)
	}
}

// Where names may not be removed either they stay, and nothing else is touched.
func TestTrapRemove(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.config.TrapRemove = true
	b.write(".env", "x")
	b.write("sub/x.key", "x")
	b.write("sub/y", "x")
	o := b.sh("rm -f .env; rm -rf sub; rm -f none; rmdir none; mkdir e; rmdir e; ls -A . sub")
	if !b.has(".env") || !b.has("sub/x.key") || b.has("sub/y") || b.has("e") {
		t.Errorf("%s", o.out)
	}
	if want := "file-write-unlink /w/.env **/.env\nfile-write-unlink /w/sub/x.key **/*.key"; o.told() != want {
		t.Errorf("refused: %q, want %q", o.told(), want)
	}
}

func init() {
	enemies["exchange"] = func(args []string) error {
		fmt.Println(errName(unix.Renameat2(unix.AT_FDCWD, args[0], unix.AT_FDCWD, args[1], unix.RENAME_EXCHANGE)))
		return nil
	}
	enemies["inherited"] = func([]string) error {
		fd, err := unix.Openat(9, "made", unix.O_CREAT|unix.O_WRONLY, 0o644)
		fmt.Println("made:", errName(made(fd, err)))
		fmt.Println("moved:", errName(unix.Renameat(9, "there", 9, "gone")))
		fmt.Println("folder:", errName(unix.Mkdirat(9, "folder", 0o755)))
		return nil
	}
	enemies["full"] = func([]string) error {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 4, Max: 4}); err != nil {
			return err
		}
		for fd := 3; fd < 100; fd++ {
			_ = unix.Close(fd)
		}
		var last error
		for i := range 8 {
			_, err := unix.Open(fmt.Sprintf("f%d", i), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644)
			if err != nil {
				last = err
			}
		}
		fmt.Println(errName(last))
		return nil
	}
	enemies["private"] = func([]string) error {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
		fmt.Println(errName(made(unix.Creat("a", 0o644))), errName(made(unix.Creat("a.key", 0o644))))
		return nil
	}
}

// A directory of the host that is left open leads nowhere: it is no mount of the sandbox.
func TestInheritedDirectory(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{true, false} {
		b := newBox(t)
		b.plain = plain
		host := t.TempDir()
		must(t, os.WriteFile(filepath.Join(host, "there"), nil, 0o644))
		dir, err := os.Open(host)
		must(t, err)
		b.stdin = dir
		o := b.run("/bin/sh", "-c", "exec /shim "+enemyCommand+" inherited 9<&0")
		_ = dir.Close()
		_, err = os.Lstat(filepath.Join(host, "made"))
		if got := err == nil; got != plain {
			t.Errorf("plain %t: made %t: %s", plain, got, o.out)
		}
		if want := "made: EACCES\nmoved: EACCES\nfolder: EACCES\n"; !plain && o.out != want {
			t.Errorf("%q, want %q", o.out, want)
		}
	}
}

func TestFullTable(t *testing.T) {
	t.Parallel()
	if o := newBox(t).do("full"); o.out != "EMFILE\n" {
		t.Errorf("%q", o.out)
	}
}

// Whoever hides its memory from other processes is served as well.
func TestNotDumpable(t *testing.T) {
	t.Parallel()
	if o := newBox(t).do("private"); o.out != "done EACCES\n" {
		t.Errorf("%q", o.out)
	}
}
