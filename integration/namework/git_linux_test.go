package namework

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// gitTimes are the files of git that hold times and inode numbers, or are named after
// a process. What is in an index the scripts say themselves.
var gitTimes = regexp.MustCompile(`/(index|gc\.pid)$`)

var gitWork = []work{
	{name: "git/commands", needs: []string{"git"}, prepare: linkedRepositories, script: gitCommands(), aside: gitTimes},
	{
		name: "git/init and clone", needs: []string{"git"}, aside: gitTimes,
		prepare: func(t *testing.T, p *place) {
			t.Helper()
			repository(t, p, p.tree+"/from", size(200, 5000))
		},
		script: `
git init -q -b main made; git -C made commit -q --allow-empty -m one; git -C made status -sb; test ! -e made/.git/hooks
git init -q --bare bare.git; git -C made push -q ../bare.git main; git -C bare.git log --format=%H main
git clone -q --no-hardlinks from local; git clone -q --no-local from packed; git clone -q --bare --no-hardlinks from bare2.git; git clone -q --mirror made mirror.git; git clone -q made hard; git -C hard fsck
git clone -q --shared from shared && git -C shared log --format=%H -1
git clone -q --depth 1 "file://$PWD/from" shallow
git clone -q --no-hardlinks -b side from side; git -C side ls-files -s | cksum
for r in local packed shallow side; do git -C $r fsck --no-dangling; git -C $r status -sb; git -C $r ls-files -s | cksum; done
`,
	},
	{
		// What git writes of either leads it to other hooks and configuration.
		name: "git/worktree and submodule in a free folder", needs: []string{"git"}, aside: gitTimes,
		prepare: func(t *testing.T, p *place) {
			t.Helper()
			repository(t, p, p.tree+"/free/from", 20)
			p.free = []string{p.tree + "/free"}
		},
		script: `
cd free
git -C from worktree add -q -b work ../wt
cd wt; echo x > new; git add new; git commit -qm new; git log --format=%H -2; cd ..
git -C from worktree list; git -C from worktree lock wt; git -C from worktree unlock wt
git clone -q --no-hardlinks from over; cd over
git -c protocol.file.allow=always submodule --quiet add "file://$PWD/../from" sub
git commit -qm sub; git submodule status; git -C sub log --format=%H -1; git ls-files -s | cksum; cd ..
git -C from worktree remove wt; git -C from worktree list; ls
`,
	},
}

// repository makes one with files and two branches.
func repository(t *testing.T, p *place, at string, files int) {
	t.Helper()
	for i := range files {
		p.write(t, filepath.Join(at, fmt.Sprintf("d%02d/f%d.txt", i%17, i)), strings.Repeat(fmt.Sprintf("line %d\n", i), 1+i%9))
	}
	p.setUp(t, at, `git init -q -b main; git config pack.threads 1; git add .; git commit -qm first; git checkout -q -b side; echo side > side.txt; git add .; git commit -qm side; git checkout -q main`)
}

// setUp runs a script outside, in a folder of the tree.
func (p *place) setUp(t *testing.T, at, script string) {
	t.Helper()
	if got := p.outside(t, "cd "+at+"; "+script); got.code != 0 {
		t.Fatalf("prepare: status %d\n%s%s", got.code, got.out, got.err)
	}
}

// Hard links of a repository that was there before are not made in any run: what leads to
// its hooks is a mount of its own. So it is copied, outside as well.

// linkedRepositories are one with a submodule and a linked worktree, made before the run: in
// it no .git may become a file, and no .gitmodules be written.
func linkedRepositories(t *testing.T, p *place) {
	t.Helper()
	_ = os.RemoveAll(p.base + "/library")
	repository(t, p, p.base+"/library", 12)
	p.make(t, p.tree+"/main")
	p.setUp(t, p.tree+"/main", `git init -q -b main; git config pack.threads 1; git config gc.auto 0; mkdir src
git -c protocol.file.allow=always submodule --quiet add "`+p.base+`/library" lib; git commit -qm library; git worktree add -q -b linked ../linked`)
}

// gitCommands is a script of more than a hundred calls of git.
func gitCommands() string {
	var s strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&s, format+"\n", a...) }
	line("cd main; export GIT_EDITOR=true")
	for i := range size(12, 120) {
		line("seq %d %d > src/f%d; git add src; git commit -qm c%d", i, i+40, i, i)
	}
	line(`git tag -a -m t v1; git tag light; git describe; git log --oneline | head -3
git mv src/f1 src/moved; git commit -qm move; git rm -q src/f2; git commit -qm remove
git checkout -q -b topic HEAD~4; echo t > topic; git add topic; git commit -qm t1; echo u >> topic; git commit -qam t2
git rebase -q main; git log --format=%%s -3
git checkout -q main; git merge -q --no-ff -m merged topic; git branch -d topic
git checkout -q -b clash; echo mine > src/f0; git commit -qam mine; git checkout -q main; echo theirs > src/f0; git commit -qam theirs
git merge -q clash > /dev/null || git status -s; git merge --abort; git merge -q -X ours -m kept clash; cat src/f0
git checkout -q -b again HEAD~2; echo 1 > n1; git add n1; git commit -qm n1; echo 2 > n2; git add n2; git commit -qm n2; echo 3 > n3; git add n3; git commit -qm n3
GIT_SEQUENCE_EDITOR="sed -i -e 2s/pick/squash/ -e 3s/pick/reword/" git rebase -q -i HEAD~3; git log --format=%%s -3
git rebase -q --onto main HEAD~2; git cherry-pick --allow-empty -X theirs clash > /dev/null; git log --format=%%s -1; git cherry-pick -m 1 main > /dev/null 2>&1 || git cherry-pick --abort
git revert --no-edit HEAD > /dev/null; git reset -q --hard HEAD~1; git reset -q --soft HEAD~1; git commit -qm soft; git commit -q --amend -m amended
echo dirty > n1; git stash push -q -m s; git stash list; git stash pop -q; git diff --stat; git checkout -q -- n1; git restore --source HEAD~1 n1; git restore n1
echo junk > junk; mkdir junkdir; touch junkdir/a; git clean -qfd; git status -s
git notes add -m note; git notes show; git update-ref refs/keep/x HEAD; git for-each-ref
git switch -q main; git branch -f moved HEAD~1; git branch -D moved again clash
git bisect start HEAD HEAD~6 > /dev/null 2>&1; git bisect run true > /dev/null 2>&1; git bisect reset > /dev/null 2>&1
git format-patch -q -2 -o ../patches HEAD; git checkout -q -b mail HEAD~3; git am -q ../patches/*.patch > /dev/null 2>&1 || git am --abort; git checkout -q main
git archive --format=tar HEAD | tar t | wc -l; git bundle create -q ../all.bundle main; git bundle verify -q ../all.bundle > /dev/null; git clone -q --bare ../all.bundle ../unbundled.git; git -C ../unbundled.git fsck
git diff HEAD~3 | git patch-id > /dev/null; git diff main~2 main -- src > ../p.diff; git apply --allow-empty -R ../p.diff; git apply --allow-empty ../p.diff; git status -s
git sparse-checkout list 2>/dev/null || git ls-files -s | tail -2; git blame -s src/f3 | head -2; git grep -c 20 | tail -2; git shortlog -sn HEAD; git rev-list --count HEAD
git submodule status; git submodule foreach -q 'git log --format=%%s -1'
cd lib; git checkout -q -b inner; echo l > l; git add l; git commit -qm inner; git gc -q; git fsck; cd ..; git add lib; git commit -qm bump; git submodule status
cd ../linked; git log --format=%%s -1; echo w > w; git add w; git commit -qm linked; git merge -q -m both main; git rebase -q main; git stash list; git gc -q; cd ../main
git worktree list | wc -l; git worktree prune; git worktree lock ../linked; git worktree unlock ../linked
git repack -adq; git pack-refs --all; git prune; git gc -q --prune=now; git commit-graph write 2>/dev/null; git multi-pack-index write 2>/dev/null; git count-objects
git reflog expire --expire=now --all; git gc -q --aggressive; git fsck --no-dangling; git read-tree HEAD; git checkout-index -qf src/f3; git update-index -q --refresh; git write-tree; git status -s
git log --all --format='%%H %%s'; git ls-files -s`)
	return s.String()
}

// The script is as long as it says.
func TestGitCommands(t *testing.T) {
	if n := strings.Count(gitCommands(), "git "); n < 100 {
		t.Errorf("%d calls of git", n)
	}
}
