package namework

import "testing"

var editorWork = []work{
	{name: "editor/vim", needs: []string{"vim"}, prepare: texts, script: `
vim -u NONE -N -es -c '%s/one/two/' -c wq a
vim -u NONE -N -es -c 'set backup backupcopy=no' -c '%s/one/two/' -c wq b; vim -u NONE -N -es -c 'set backup backupcopy=yes undofile undodir=/tmp' -c '%s/one/two/' -c wq link
vim -u NONE -N -es -c 'set writebackup swapfile directory=.' -c 'normal Onew' -c 'w made' -c q! c; ls -A; cat a b c made`},
	{name: "editor/sed and ed", prepare: texts, script: `
sed -i s/one/three/ a; sed -i.bak s/one/three/ b; sed -i --follow-symlinks s/one/four/ link; perl -pi -e 's/one/five/' c 2>/dev/null || sed -i s/one/five/ c
sort -o c c; patch -s a <<X || true
1c1
< three
---
> six
X
cat a b c b.bak; ls -A`},
	{name: "editor/atomic saves", needs: []string{"/usr/bin/python3"}, prepare: func(t *testing.T, p *place) {
		t.Helper()
		texts(t, p)
		p.write(t, p.tree+"/save.py", saves)
	}, script: `/usr/bin/python3 save.py; ls -A; cat a b c`},
}

func texts(t *testing.T, p *place) {
	t.Helper()
	for _, name := range []string{"a", "b", "c", "target"} {
		p.write(t, p.tree+"/"+name, "one\nmore\n")
	}
	p.setUp(t, p.tree, "chmod 640 a; chmod 755 b; ln -s target link")
}

// saves are the ways in which editors put a new file in the place of the old one.
const saves = `import os, tempfile
def sync(f):
    f.flush(); os.fsync(f.fileno())
def folder():
    d = os.open(".", os.O_RDONLY | os.O_DIRECTORY); os.fsync(d); os.close(d)
# A temporary file beside it, and a rename.
with tempfile.NamedTemporaryFile(dir=".", prefix=".a.", delete=False) as f:
    f.write(b"new a\n"); os.fchmod(f.fileno(), 0o640); sync(f)
os.replace(f.name, "a"); folder()
# The old one becomes the backup.
os.rename("b", "b~")
with open("b", "xb") as f:
    f.write(b"new b\n"); sync(f)
os.chmod("b", 0o755)
# A file without a name, linked when it is whole.
fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(fd, b"new c\n"); os.fsync(fd)
os.link("/proc/self/fd/%d" % fd, ".c.new", dst_dir_fd=os.open(".", os.O_PATH), follow_symlinks=True)
os.replace(".c.new", "c"); os.close(fd); folder()
# A hard link as the backup, and the same file written again.
os.link("target", "target.orig"); os.unlink("target")
with open("target", "w") as f:
    f.write("new target\n"); os.ftruncate(f.fileno(), 4); sync(f)
# A lock of emacs, and by O_EXCL.
os.symlink("me@here.1:2", ".#a"); print(os.readlink(".#a")); os.unlink(".#a")
lock = os.open(".lock", os.O_CREAT | os.O_EXCL, 0o600); os.close(lock)
try:
    os.open(".lock", os.O_CREAT | os.O_EXCL)
except FileExistsError as e:
    print(e.errno)
# By descriptors of folders.
os.mkdir("d"); d = os.open("d", os.O_PATH | os.O_DIRECTORY)
with open(os.open("t", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=d), "w") as f:
    f.write("t\n")
os.rename("t", "u", src_dir_fd=d, dst_dir_fd=d); print(os.listdir("d"))
`
