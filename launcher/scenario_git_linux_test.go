package main

import (
	"os"
	"path/filepath"
	"strings"
)

// linkedWorktree makes a repository main and a worktree of it in the folder tree.
func linkedWorktree(s *stage) {
	s.repository("main")
	_ = os.Remove(s.tree)
	s.git("main", "worktree", "add", "-q", "-b", "agent/x", s.tree)
}

const workInWorktree = `echo 2 > f && git add f && git commit -q -m two && git log --format=%s && git status --porcelain && git switch -q -c agent/y && git stash -q 2>/dev/null
	for f in config hooks/x info/attributes packed-refs HEAD commondir objects/info/alternates worktrees/tree/commondir worktrees/tree/gitdir worktrees/tree/config.worktree worktrees/other; do
		echo evil > $HOME/main/.git/$f && echo "$f written"; done 2>/dev/null; true`

// gitScenarios are about git directories of every form.
func gitScenarios() []scenario {
	return []scenario{
		{
			name: "30_git_add_all", prep: func(s *stage) { s.git("", "init", "-q", "-b", "main", "tree") },
			script: "echo hi > f && git add -A && git status --porcelain", want: "A  f\n",
			check: func(s *stage, _ result) {
				if got := s.git("tree", "status", "--porcelain", "--ignored"); got != "A  f\n" {
					s.tb.Errorf("on the host: %q", got)
				}
			},
		},
		{
			name: "30_git_status_clean", prep: func(s *stage) { s.repository("tree") },
			script: "git status --porcelain --ignored; git add -A && git commit -q --allow-empty -m two && git log --format=%s", want: "two\none\n", check: clean,
		},
		{name: "33_worktree_commit", prep: linkedWorktree, script: workInWorktree, want: "two\none\n", check: func(s *stage, _ result) {
			clean(s, result{})
			if got := s.git("main", "log", "--format=%s", "agent/x"); got != "two\none\n" {
				s.tb.Errorf("the branch: %q", got)
			}
			if got := s.git("main", "status", "--porcelain", "--ignored"); got != "" {
				s.tb.Errorf("the repository: %q", got)
			}
		}},
		{
			name: "33_worktree_in_review", prep: linkedWorktree, flags: []string{"--mode", "review"},
			script: "git log --format=%s; git diff HEAD; echo x > f || git commit -q --allow-empty -m x || echo refused", want: "one\nrefused\n",
			check: clean,
		},
		{
			name: "33_worktree_of_a_bare_repository",
			prep: func(s *stage) {
				s.repository("first")
				s.git("", "clone", "-q", "--bare", "first", "hub.git")
				_ = os.Remove(s.tree)
				s.git("hub.git", "worktree", "add", "-q", "-b", "agent/x", s.tree)
			},
			script: "echo 2 > f && git add f && git commit -q -m two && git log --format=%s; echo evil > $HOME/hub.git/config || echo refused; echo evil > $HOME/hub.git/objects/info/alternates || echo refused",
			want:   "two\none\nrefused\nrefused\n", check: clean,
		},
		{
			name: "33_two_worktrees_of_one_repository",
			prep: func(s *stage) {
				linkedWorktree(s)
				s.git("main", "worktree", "add", "-q", "-b", "agent/b", filepath.Join(s.home, "b"))
			},
			flags:  []string{"--bind", ".", "--bind", "$HOME/b"},
			script: "git commit -q --allow-empty -m two && cd $HOME/b && git commit -q --allow-empty -m other && git log --format=%s --all | sort", want: "one\nother\ntwo\n",
		},
		{
			name: "33_planted_objects_link",
			prep: func(s *stage) {
				linkedWorktree(s)
				s.write(".ssh/id", "key\n", 0o600)
				_ = os.Rename(s.home+"/main/.git/objects", s.home+"/main/.git/objects.real")
				s.link("$HOME/.ssh", "main/.git/objects")
			},
			script: "cat $HOME/main/.git/objects/id || cat $HOME/.ssh/id || ls $HOME/.ssh || echo not there", want: "not there\n", says: "objects is not a folder of its own",
		},
		{
			name: "33_planted_git_file",
			prep: func(s *stage) {
				s.repository("private")
				s.git("private", "worktree", "add", "-q", "-b", "x", filepath.Join(s.home, "mine"))
				s.write("tree/.git", "gitdir: "+s.home+"/private/.git/worktrees/mine\n", 0o644)
			},
			script: "ls $HOME/private || ls $HOME/private/.git || git log || echo nothing", want: "nothing\n", says: "does not say that it belongs there",
		},
		{
			name: "33_planted_git_directory",
			prep: func(s *stage) {
				for _, name := range []string{"HEAD", "objects/x", "refs/x", "config"} {
					s.write("elsewhere/"+name, "", 0o644)
				}
				s.write("elsewhere/secret", "secret\n", 0o644)
				s.write("tree/.git", "gitdir: ../elsewhere\n", 0o644)
			},
			script: "cat $HOME/elsewhere/secret || echo nothing", want: "nothing\n", says: "does not say that it belongs there",
		},
		{
			name: "33_submodule",
			prep: func(s *stage) {
				s.repository("lib")
				s.repository("super")
				s.git("super", "submodule", "--quiet", "add", s.home+"/lib", "sub")
				s.git("super", "commit", "-q", "-m", "sub")
			},
			flags: []string{"--bind", "$HOME/super/sub"},
			script: `cd $HOME/super/sub && echo 2 > f && git add f && git commit -q -m two && git log --format=%s; G=$HOME/super/.git
				for f in config hooks/x commondir info/attributes; do echo evil > $G/modules/sub/$f && echo "$f written"; done 2>/dev/null; mv $G/modules/sub $G/modules/x 2>/dev/null && echo moved; ls $G`,
			want: "two\none\nmodules\n",
			check: func(s *stage, _ result) {
				if got := s.git("super/sub", "status", "--porcelain"); got != "" {
					s.tb.Errorf("status %q", got)
				}
			},
		},
		{
			name: "34_git_is_a_directory", prep: func(s *stage) { s.repository("tree") },
			script: "git rev-parse --git-dir; echo evil > .git/config || echo refused", want: ".git\nrefused\n", check: clean,
		},
		{
			name: "34_git_is_a_file",
			prep: func(s *stage) {
				s.git("", "init", "-q", "--separate-git-dir", filepath.Join(s.home, "apart"), "tree")
			},
			flags:  []string{"--bind", ".", "--bind", "$HOME/apart"},
			script: "git commit -q --allow-empty -m one && git log --format=%s; echo 'gitdir: /tmp/x' > .git || echo refused; rm .git || mv .git x || echo refused", want: "one\nrefused\nrefused\n", check: clean,
		},
		{
			name: "34_git_is_a_link",
			prep: func(s *stage) { s.repository("real"); s.link("../real/.git", "tree/.git") }, flags: []string{"--bind", ".", "--bind", "$HOME/real"},
			script: "git log --format=%s; echo evil > .git/hooks/x || echo evil > .git/config || echo refused", want: "one\nrefused\n",
		},
		{
			name: "36_hooks_is_a_link",
			prep: func(s *stage) {
				s.repository("tree")
				s.write("tree/tracked/pre-commit", "true\n", 0o755)
				_ = os.RemoveAll(s.tree + "/.git/hooks")
				s.link("../tracked", "tree/.git/hooks")
			},
			script: "git status --porcelain; echo x > .git/hooks/pre-push || echo refused; echo x > tracked/pre-commit || echo refused; rm .git/hooks && mkdir .git/hooks && echo evil > .git/hooks/x; true",
			want:   "?? tracked/\nrefused\nrefused\n", says: "was a symbolic link to ../tracked and was replaced",
		},
		{
			name: "42_git_config", prep: func(s *stage) { s.repository("tree") },
			script: "git config a.b c", code: 4, says: "git could not write a configuration: a run reads .git/config and cannot change it", check: clean,
		},
		{
			name: "42_git_push_u",
			prep: func(s *stage) {
				s.repository("tree")
				s.git("", "clone", "-q", "--bare", "tree", "up.git")
				s.git("tree", "remote", "add", "up", "../up.git")
			},
			flags:  []string{"--bind", ".", "--bind", "$HOME/up.git"},
			script: "git switch -q -c agent/z && git push -q -u up agent/z && git -C $HOME/up.git log --format=%s agent/z", want: "one\n", says: "what else the command did stands, a push too", check: clean,
		},
		{
			name: "45_hook_in_a_new_repository", prep: func(s *stage) { s.repository("tree") },
			script: "git init -q sub; mkdir -p sub/.git/hooks; echo x > sub/.git/hooks/pre-commit; true", says: "tree/sub/.git/hooks is new, and git runs what is in it; read or remove it before you work in this folder",
		},
		{
			name: "45_hook_in_a_nested_repository", prep: func(s *stage) { s.repository("tree"); s.repository("tree/a/b/c/d/nested") },
			script: "echo x > a/b/c/d/nested/.git/hooks/pre-commit || echo refused", want: "refused\n",
			check: func(s *stage, got result) {
				if strings.Contains(got.stderr, "is new") {
					s.tb.Errorf("told as planted: %s", got.stderr)
				}
			},
		},
		{
			name: "45_quiet_init", prep: func(s *stage) { s.repository("tree") },
			script: "git init -q sub && cd sub && echo x > f && git add f && git commit -q -m sub && git log --format=%s", want: "sub\n",
			check: func(s *stage, got result) {
				if got.stderr != "" {
					s.tb.Errorf("told: %s", got.stderr)
				}
			},
		},
	}
}
