package nameguard

import (
	"strings"
	"testing"
)

// What is allowed works as it does without a guard, and what is not fails with EACCES,
// whatever makes it, and one violation that names the rule.
func TestGuard(t *testing.T) {
	for _, tc := range []struct {
		script  string
		want    string // of the output
		refused string // what the violations say, one a line
		absent  string
		present string
	}{
		{"echo hello > a && cat a", "hello\n", "", "", "a"},
		{"mkdir -p sub/dir && echo x > sub/dir/.env", "sh: 1: cannot create sub/dir/.env: Permission denied\n", "file-write-create /w/sub/dir/.env **/.env", "sub/dir/.env", ""},
		{"echo x > a; mv a b.key", "mv: cannot move 'a' to 'b.key': Permission denied\n", "file-write-create /w/b.key **/*.key", "b.key", "a"},
		{"ln -s x .git", "ln: failed to create symbolic link '.git': Permission denied\n", "file-write-create /w/.git **/.git/hooks", ".git", ""},
		{"echo x > a; ln a .ENV", "ln: failed to create hard link '.ENV' => 'a': Permission denied\n", "file-write-create /w/.ENV **/.env", ".ENV", ""},
		{"mkdir x.pem", "mkdir: cannot create directory 'x.pem': Permission denied\n", "file-write-create /w/x.pem **/*.pem", "x.pem", ""},
		{"mkfifo .env.x", "mkfifo: cannot create fifo '.env.x': Permission denied\n", "file-write-create /w/.env.x **/.env.*", ".env.x", ""},
		{"mkdir -p .git && mkdir .git/hooks", "mkdir: cannot create directory '.git/hooks': Permission denied\n", "file-write-create /w/.git/hooks **/.git/hooks", ".git/hooks", ".git"},
		{"mkdir .git && echo x > .git/hooks/pre-commit", "sh: 1: cannot create .git/hooks/pre-commit: Permission denied\n", "file-write-create /w/.git/hooks **/.git/hooks", ".git/hooks", ".git"},
		{"mkdir .git; ln -s .git/hooks l; echo x > l/a; ln -s $PWD/x.key/y m; echo x > m/a", "sh: 1: cannot create l/a: Permission denied\nsh: 1: cannot create m/a: Permission denied\n", "file-write-create /w/.git/hooks **/.git/hooks\nfile-write-create /w/x.key **/*.key", ".git/hooks", "l"},
		{"echo x > a/b/.env; mkdir a; echo x > a/b/.env; : < a/.env/x", "sh: 1: cannot create a/b/.env: Directory nonexistent\nsh: 1: cannot create a/b/.env: Directory nonexistent\nsh: 1: cannot open a/.env/x: No such file\n", "", "", "a"},
		{"mkdir d; mv d .git", "mv: cannot move 'd' to '.git': Permission denied\n", "file-write-create /w/.git **/.git/hooks", ".git", "d"},
		{"mkdir .git; mv .git d", "mv: cannot move '.git' to 'd': Permission denied\n", "file-write-unlink /w/.git **/.git/hooks", "d", ".git"},
		{"mkdir -p .git/modules/a/objects; cd .git/modules/a; echo x > objects/tmp && ln objects/tmp objects/f && ln objects/tmp b && cat objects/f b", "x\nx\n", "", "", ".git/modules/a/objects/f"},
		{"mkdir -p .git/modules/a; cd .git/modules/a; echo x > t; ln t config", "ln: failed to create hard link 'config' => 't': Permission denied\n", "file-write-create /w/.git/modules/a/config **/.git/modules/**/config", ".git/modules/a/config", ".git/modules/a/t"},
		{"mkdir -p .git/modules/a; ln -s /tmp l; ln -P l .git/modules/a/l; mkfifo p; ln p .git/modules/a/p", "ln: failed to create hard link '.git/modules/a/l' => 'l': Permission denied\nln: failed to create hard link '.git/modules/a/p' => 'p': Permission denied\n", "file-write-create /w/.git/modules/a/l **/.git/modules/**/hooks\nfile-write-create /w/.git/modules/a/p **/.git/modules/**/hooks", ".git/modules/a/l", "l"},
		{"echo x > a; ln a .git; ln -s x l; ln a l", "ln: failed to create hard link '.git' => 'a': Permission denied\nln: failed to create hard link 'l': File exists\n", "file-write-create /w/.git **/.git/hooks", ".git", "a"},
		{"cd /tmp && echo x > .env && cat .env && mv .env /w/e && cat /w/e", "x\nx\n", "", "", "e"},
		{"cd /tmp && echo x > .env && mv .env /w/", "mv: cannot create regular file '/w/.env': Permission denied\n", "file-write-create /w/.env **/.env", ".env", ""},
		{"echo x > $HOME/.env && cat $HOME/.env && rm $HOME/.env", "x\n", "", "", ""},
		{"echo x > $HOME/.env/x; echo x > $HOME/.git/hooks/x", "sh: 1: cannot create /home/u/.env/x: Directory nonexistent\nsh: 1: cannot create /home/u/.git/hooks/x: Directory nonexistent\n", "", "", ""},
		{"echo x > $HOME/p/.env", "sh: 1: cannot create /home/u/p/.env: Permission denied\n", "file-write-create /home/u/p/.env **/.env", "", ""},
		{"echo out > /dev/stdout; echo err > /dev/stderr; echo null > /dev/null", "out\nerr\n", "", "", ""},
		{"echo a > f; echo b >> f; : > g; cat f; rm f; ls", "a\nb\ng\n", "", "f", "g"},
		{"umask 027; echo x > a; mkdir b; stat -c %a a b; umask 077; echo x > c; stat -c %a c", "640\n750\n600\n", "", "", ""},
		{"ln -s a l; echo x > l; cat a; ln -s /w/b m; echo y > m; cat b; ln -s .env n; echo z > n", "x\ny\nsh: 1: cannot create n: Permission denied\n", "file-write-create /w/.env **/.env", ".env", "b"},
		{"ln -s /w /tmp/l; echo x > /tmp/l/a; cat a; ln -s /w/b /tmp/m; echo y > /tmp/m; cat b; echo z > /tmp/l/.env", "x\ny\nsh: 1: cannot create /tmp/l/.env: Permission denied\n", "file-write-create /w/.env **/.env", ".env", "b"},
		{"cd /proc/self/cwd && echo x > /proc/self/cwd/a && echo y > /proc/thread-self/root/w/b && cat a b; exec 5>c; echo z > /proc/self/fd/5; echo z >> /dev/fd/5; cat c", "x\ny\nz\nz\n", "", "", "c"},
		{"echo x > /proc/self/cwd/.env", "sh: 1: cannot create /proc/self/cwd/.env: Permission denied\n", "file-write-create /w/.env **/.env", ".env", ""},
		{"printf 12345 > a; truncate -s 2 a; cat a", "12", "", "", ""},
		{"printf '#!/bin/sh\necho ran\n' > a; chmod +x a; ./a; cp a b; ./b", "ran\nran\n", "", "", ""},
		{"rm -rf x; mkdir -p x/y/z; touch x/y/z/f; rm -rf x; ls -A", "", "", "x", ""},
	} {
		t.Run(tc.script, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			o := b.sh(tc.script)
			if o.err != nil {
				t.Fatalf("%v: %s", o.err, o.out)
			}
			if got := strings.ReplaceAll(o.out, "/bin/sh:", "sh:"); got != tc.want {
				t.Errorf("it says %q, want %q", got, tc.want)
			}
			if got := o.told(); got != tc.refused {
				t.Errorf("refused: %q, want %q", got, tc.refused)
			}
			if tc.absent != "" && b.has(tc.absent) {
				t.Errorf("%s is there", tc.absent)
			}
			if tc.present != "" && !b.has(tc.present) {
				t.Errorf("%s is not there", tc.present)
			}
		})
	}
}
