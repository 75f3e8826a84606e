package namework

import (
	"fmt"
	"os"
	"regexp"
	"testing"
)

var fileWork = []work{
	{name: "file/tar and cp", needs: []string{"tar", "cp"}, prepare: manyKinds, script: `
tar cf all.tar from; mkdir to; tar xpf all.tar -C to; cp -a from copied; cp -al from linked; cp -r --reflink=auto from/d1 part
tar czf all.tgz --sort=name --mtime=@0 from; rm -f all.tgz all.tar; mv copied moved; mv moved/d0 moved/d1 to/; rm -rf moved; find . | sort | cksum
cp --backup=numbered from/d1/f1 from/d1/f18; chmod -R g+w to; find to -name 'f2*' -delete; find . -newer from -type f > /dev/null; rmdir --ignore-fail-on-non-empty to/* ; mkdir -p deep/$(seq -s/ 1 60)
umask 027; mkdir -m 1777 sticky; touch masked; mkfifo -m 600 pipe; install -D -m 4755 /bin/true sub/suid; truncate -s 4096 holes; fallocate -l 8192 full || true; dd if=/dev/zero of=full bs=1k count=3 conv=notrunc status=none; split -b 1000 -d holes piece.; stat -c '%n %a %s' piece.* full holes pipe sticky`},
	{name: "file/rsync", needs: []string{"rsync"}, prepare: manyKinds, script: `
rsync -aH --delete from/ to; echo more >> from/d1/f1; rm -rf from/d2; rsync -aHc --delete from/ to; rsync -a --inplace from/d1/ in; rsync -a --partial --temp-dir=/tmp from/ over; rsync -aH --link-dest="$PWD/to" from/ snapshot`},
	{name: "file/sqlite WAL", needs: []string{"/usr/bin/python3"}, prepare: databaseProgram, aside: regexp.MustCompile(`\.db`), script: `
for i in 1 2 3 4; do /usr/bin/python3 use.py $i & done; wait; /usr/bin/python3 use.py dump; ls`},
	{name: "file/locks", needs: []string{"flock"}, script: `
echo 0 > n; for i in $(seq 1 20); do flock lock sh -c 'n=$(cat n); echo $((n+1)) > n.tmp; mv n.tmp n' & done; wait; cat n
( flock -n 9 && echo got; flock -n lock true || echo held ) 9> lock; flock -s lock flock -s -n lock echo shared; flock -w 1 . echo folder; exec 8<> both; flock -x 8; echo kept >&8; cat both`},
	{name: "file/pipelines", script: `
seq 1 20000 | sort -r -S 100k -T . | uniq | tee a b | wc -l; cmp a b; mkfifo p; (seq 1 1000 > p &) ; wc -l < p; rm p
for i in 1 2 3 4 5 6 7 8; do (seq $i 8 2000 > part.$i) & done; wait; sort -n part.* | cksum; seq 1 300 | xargs -P 4 -n 10 touch; ls | wc -l
yes | head -c 100000 | gzip -n > y.gz; zcat y.gz | cksum; find . -name '1*' -print0 | xargs -0 rm -f; cat <<X > here
$(pwd | wc -l)
X
exec 5> five; echo five >&5; exec 5>&-; { echo out; echo err >&2; } > both 2>&1; : > empty; echo appended >> both; cat both; set -C; (echo no > both) 2> /dev/null || echo kept; trap 'rm -f gone' EXIT; touch gone`},
}

// manyKinds is a tree of what archives and copies know.
func manyKinds(t *testing.T, p *place) {
	t.Helper()
	for i := range size(300, 20000) {
		at := fmt.Sprintf("%s/from/d%d/f%d", p.tree, i%(7+i/100), i)
		p.write(t, at, fmt.Sprintf("file %d\n", i))
		if i%5 == 0 {
			if err := os.Symlink(fmt.Sprintf("f%d", i), at+".link"); err != nil {
				t.Fatal(err)
			}
		}
		if i%11 == 0 {
			if err := os.Link(at, at+".hard"); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.setUp(t, p.tree+"/from", `mkfifo pipe; chmod 640 d0/f0; chmod 755 d1/f1; chmod 750 d2; ln -s nowhere dangling; mkdir empty; printf 'ü' > 'with space ü'; truncate -s 1M sparse; touch -d @1000000000 d0 d0/f0`)
}

func databaseProgram(t *testing.T, p *place) {
	t.Helper()
	p.write(t, p.tree+"/use.py", `import sqlite3, sys
db = sqlite3.connect("some.db", timeout=60, isolation_level=None)
db.execute("pragma journal_mode=wal")
db.execute("create table if not exists t (who, n)")
if sys.argv[1] == "dump":
    print(db.execute("select who, count(*), sum(n) from t group by who order by who").fetchall())
    print(db.execute("pragma integrity_check").fetchall(), db.execute("pragma wal_checkpoint(truncate)").fetchall())
    db.execute("vacuum into 'copy.db'")
else:
    for n in range(`+fmt.Sprint(size(40, 1000))+`):
        db.execute("begin immediate")
        db.execute("insert into t values (?, ?)", (sys.argv[1], n))
        db.execute("commit")
db.close()
`)
}
