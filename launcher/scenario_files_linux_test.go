package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// linkScenarios are about names that are symbolic links, as dotfile managers make them.
func linkScenarios() []scenario {
	return []scenario{
		{
			name: "35_rc_file_is_a_link", prep: func(s *stage) {
				s.write("tree/dotfiles/bashrc", "true\n", 0o644)
				s.link("dotfiles/bashrc", "tree/.bashrc")
			},
			script: "cat .bashrc; echo evil > .bashrc || echo refused; echo evil > dotfiles/bashrc || echo refused", want: "true\nrefused\nrefused\n",
		},
		{
			name: "35_dangling_into_a_store", prep: func(s *stage) { s.link("/nix/store/0-none/bashrc", "tree/.bashrc"); s.link("nowhere", "tree/.zshrc") },
			script: "echo started; readlink .bashrc .zshrc", want: "started\n/nix/store/0-none/bashrc\nnowhere\n",
		},
		{
			name: "35_absolute_link_out_of_the_folder", prep: func(s *stage) { s.write("dots/zshrc", "true\n", 0o644); s.link("$HOME/dots/zshrc", "tree/.zshrc") },
			script: "cat .zshrc || echo not shown; echo evil > .zshrc; true", want: "not shown\n",
			check: func(s *stage, _ result) {
				if s.read("dots/zshrc") != "true\n" {
					s.tb.Error("the target was written")
				}
			},
		},
		{
			name: "35_linked_folder", prep: func(s *stage) {
				s.write("tree/cfg/claude/settings.json", "{}", 0o644)
				s.link("cfg/claude", "tree/.claude")
			},
			script: "echo evil > .claude/settings.json || echo refused; echo evil > cfg/claude/settings.json || echo refused", want: "refused\nrefused\n",
		},
		{
			name: "35_env_below_a_linked_folder", prep: func(s *stage) { s.write("tree/real/.env", "A=1\n", 0o644); s.link("real", "tree/short") },
			script: "echo evil > short/.env || echo refused; cat short/.env", want: "refused\nA=1\n",
		},
		{
			name: "35_link_of_the_home", prep: func(s *stage) { s.link("$HOME/elsewhere", ".claude") }, script: "echo started", want: "started\n",
		},
		{
			name: "35_replaced_link_is_told", prep: func(s *stage) { s.link("nowhere", "tree/.bashrc") },
			flags:  []string{"--guard-names", "off"},
			script: "rm .bashrc && echo evil > .bashrc", says: "was a symbolic link to nowhere and was replaced",
		},
		{
			name: "35_link_is_not_replaced", prep: func(s *stage) { s.link("nowhere", "tree/.bashrc") },
			script: "rm .bashrc; echo evil > .bashrc || echo no", want: "no\n", says: "(default, kept as it is), tried by sh; no run changes it: do that outside",
		},
	}
}

// fileScenarios are about what is hidden, missing, or many.
func fileScenarios() []scenario {
	return []scenario{
		{name: "37_secret_that_is_not_there", script: "ls $HOME/.aws || echo none; test ! -e $HOME/.ssh && echo none", want: "none\nnone\n", check: func(s *stage, _ result) {
			if s.has(".aws") || s.has(".ssh") {
				s.tb.Error("the run made it")
			}
		}},
		{
			name: "37_hide_what_is_not_there", flags: []string{"--hide", "$TREE/none"}, script: "echo started", code: exitRefused, says: "must be there",
		},
		{
			name: "38_hidden_folder_is_not_writable", prep: func(s *stage) { s.write("tree/secret/f", "x\n", 0o644) }, flags: []string{"--hide", "$TREE/secret"},
			script: "echo x > secret/g; echo $?; cat secret/f || echo hidden; rmdir secret 2>/dev/null || mv secret s || echo stays", want: "2\nhidden\nstays\n",
			check: func(s *stage, _ result) {
				if s.read("tree/secret/f") != "x\n" {
					s.tb.Error("it changed")
				}
			},
		},
		{
			name: "38_secret_folder_of_the_home", prep: func(s *stage) { s.write(".ssh/id", "key\n", 0o600) },
			script: "cat $HOME/.ssh/id || echo hidden; mkdir -p $HOME/.ssh && echo x > $HOME/.ssh/f && echo its own", want: "hidden\nits own\n",
			check: func(s *stage, _ result) {
				if s.has(".ssh/f") {
					s.tb.Error("written on the host")
				}
			},
		},
		{name: "39_mktemp", script: `d=$(mktemp -d) && echo x > "$d/f" && f=$(mktemp) && test -w "$f" && test -d "${TMPDIR:-/tmp}" && test "$(stat -c %a "$d")" = 700 && echo ok`, want: "ok\n"},
		{name: "39_tmpdir_of_the_caller", prep: func(s *stage) { s.env = append(s.env, "TMPDIR="+s.home+"/gone") }, script: `mktemp -d > /dev/null && echo ok`, want: "ok\n"},
		{
			name: "40_heredoc_of_a_shell", script: `for sh in sh bash zsh; do command -v $sh >/dev/null || continue; $sh -c 'cat <<E
text
E' || echo "$sh fails"; done | sort -u; echo "${TMPPREFIX:-/tmp/zsh}" | grep -c "^${TMPDIR:-/tmp}"`, want: "text\n1\n",
		},
		{name: "41_unset_temporary_folder", prep: func(s *stage) { s.write("tree/precious", "x", 0o644) }, script: `T=$(mktemp -d); test -n "$T" && rm -rf "$T"/; ls`, want: "precious\n"},
		{
			name: "48_thousands_of_matches",
			prep: func(s *stage) {
				for i := range 4000 {
					s.write(fmt.Sprintf("tree/d%02d/k%d.pem", i%40, i), "key\n", 0o644)
				}
			},
			flags: []string{"--hide", "**/*.pem"}, script: "cat */*.pem | wc -c; ls | wc -l; for f in d07/*; do rm -f $f 2>/dev/null && echo removed; done; echo x > d00/new && echo ok", want: "0\n40\nok\n",
		},
		{
			name: "48_hundreds_of_worktrees",
			prep: func(s *stage) {
				s.repository("tree")
				head := strings.TrimSpace(s.git("tree", "rev-parse", "HEAD"))
				for i := range 300 {
					at := fmt.Sprintf("tree/.git/worktrees/w%d/", i)
					s.write(at+"gitdir", fmt.Sprintf("%s/trees/w%d/.git\n", s.home, i), 0o644)
					s.write(at+"commondir", "../..\n", 0o644)
					s.write(at+"HEAD", head+"\n", 0o644)
				}
			},
			script: "git log --format=%s; ls .git/worktrees | wc -l; echo /evil > .git/worktrees/w77/commondir || echo refused", want: "one\n300\nrefused\n", check: clean,
		},
		{
			name: "48_long_arguments", script: `head -c 100000 /dev/zero | tr '\0' a > /tmp/a; /bin/echo "$(cat /tmp/a)" | wc -c`, want: "100001\n",
			prep: func(s *stage) {
				for i := range 300 {
					s.write("tree/"+strings.Repeat("n", 200)+fmt.Sprint(i)+"/.env", "x", 0o644)
				}
			},
		},
		{
			name: "54_long_tmpdir",
			prep: func(s *stage) {
				long := s.home + "/" + strings.Repeat("t", 120)
				if err := os.Mkdir(long, 0o700); err != nil {
					s.tb.Fatal(err)
				}
				s.env = append(s.env, "TMPDIR="+long)
			},
			script: "mktemp -d >/dev/null && echo ok", want: "ok\n",
		},
		{
			name: "55_stale_sockets",
			prep: func(s *stage) {
				// A socket file that nobody listens at, in the folder and in the run directory.
				for _, path := range []string{s.tree + "/s.sock", s.runs + "/x.sock"} {
					staleSocket(s.tb, path)
				}
			},
			script: "curl -sS http://allowed.example/ -o /dev/null && echo ok; ls; cat s.sock || echo hidden", want: "ok\ns.sock\nhidden\n",
		},
		{
			name: "hide_patterns_in_review", prep: func(s *stage) { s.write("tree/a/b/k.PEM", "key", 0o644); s.write("tree/[x]{y}.txt", "plain\n", 0o644) },
			flags: []string{"--mode", "review", "--hide", "**/*.pem", "--hide", "$TREE/[x]{y}.txt"}, script: "cat a/b/k.PEM || cat '[x]{y}.txt' || echo hidden", want: "hidden\n",
		},
		{
			name: "26_protect_pattern", flags: []string{"--protect", "**/*.key", "--protect", ".env*"}, script: "mkdir sub; echo x > sub/a.KEY || echo no; echo x > .envrc || echo no; touch .env || echo no; git init -q n && git -C n status -sb | head -1 && ls n/.git/hooks || echo none",
			want: "no\nno\nno\n## No commits yet on master\nnone\n", says: "violation: file-write-create $TREE/sub/a.KEY: the name is refused by **/*.key (--protect), tried by sh; ",
			check: func(s *stage, got result) {
				if s.has("tree/sub/a.KEY") || s.has("tree/.envrc") || strings.Count(got.stderr, "violation") != 3 {
					s.tb.Errorf("%s", got.stderr)
				}
			},
		},
		{
			name: "deny_name_and_free_dir", prep: func(s *stage) { s.repository("tree"); s.write("tree/free/x", "", 0o644) },
			flags:  []string{"--deny-name", ".env", "--free-dir", "$TREE/free"},
			script: "git worktree add -q wt 2>/dev/null || echo no; git worktree add -q free/wt 2>/dev/null || echo no; echo x > free/.env; echo x > .env || echo no; echo x > a.key; ls free",
			want:   "no\nno\nno\nx\n", says: "on the way to **/.git/hooks (default) only folders are made, and stay where they are, tried by git; linked worktrees and submodules need it",
			check: func(s *stage, _ result) {
				if !s.has("tree/free/.env") || s.has("tree/.env") || !s.has("tree/a.key") {
					s.tb.Error("not as it was said")
				}
			},
		},
		{name: "26_protect_pattern_is_refused", flags: []string{"--protect", "**/*.key", "--protect", ".env*", "--nested-sandbox"}, script: "touch started", code: exitRefused, says: "**/*.key .env* (--protect), and ", check: func(s *stage, got result) {
			if s.has("tree/started") || !strings.Contains(got.stderr, "[name_globs]") {
				s.tb.Errorf("started: %s", got.stderr)
			}
		}},
		{
			name: "hard_links", prep: func(s *stage) {
				s.write("tree/.npmrc", "mine\n", 0o644)
				if err := os.Link(s.tree+"/.npmrc", s.tree+"/alias"); err != nil {
					s.tb.Fatal(err)
				}
			},
			script: "echo evil > alias || echo refused", want: "refused\n", says: "hard link",
		},
		{name: "no_ghosts", prep: func(s *stage) {
			s.repository("tree")
			s.write("before", strings.Join(s.names(), "\n"), 0o644)
		}, script: "true", check: func(s *stage, _ result) {
			if now := s.names(); !slices.Equal(now, strings.Split(s.read("before"), "\n")) {
				s.tb.Errorf("left:\n%s\nbefore:\n%s", now, s.read("before"))
			}
		}},
	}
}
