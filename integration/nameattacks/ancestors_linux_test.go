package nameattacks

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"postern/launcher/nameguard"
)

// evil makes a git directory with a hook, under a name that is free.
func evil(at string) error {
	for _, dir := range []string{at, at + "/hooks", at + "/objects", at + "/refs"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n", "config": "[core]\n\tfsmonitor = evil\n", "hooks/pre-commit": "#!/bin/sh\nevil\n"} {
		if err := os.WriteFile(at+"/"+name, []byte(text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// first does one thing after the other, until one fails.
func first(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func move(from, to string) func() error { return func() error { return unix.Rename(from, to) } }

func makeEvil(at string) func() error { return func() error { return evil(at) } }

// pinned forbids one file by its path.
func pinned(_ *testing.T, b *bed) {
	b.rules.Paths = append(b.rules.Paths, nameguard.Rule{Text: inside + "/conf/app/settings", Source: "test"})
	b.forbid = func(rel string) bool {
		return rel == "conf/app/settings" || strings.HasPrefix(rel, "conf/app/settings/")
	}
}

func withSettings(t *testing.T, b *bed) {
	t.Helper()
	pinned(t, b)
	b.write(t, "ws/conf/app/settings", "good\n")
	b.write(t, "ws/conf/app/other", "other\n")
}

// Folders on the way to a forbidden name.
var ancestors = []attack{
	{group: "ancestors", name: "repository moved away, another moved there", run: func() error {
		return first(makeEvil("evil"), move(".git", "x"), move("evil", ".git"))
	}},
	{group: "ancestors", name: "repository removed, another moved there", run: func() error {
		return first(makeEvil("evil"), func() error { return os.RemoveAll(".git") }, move("evil", ".git"))
	}},
	{group: "ancestors", name: "repository exchanged", run: func() error {
		return first(makeEvil("evil"), func() error { return unix.Renameat2(here, "evil", here, ".git", unix.RENAME_EXCHANGE) })
	}},
	{group: "ancestors", name: "repository that is a link", run: func() error {
		return first(makeEvil("evil"), func() error { _ = os.RemoveAll(".git"); return os.Symlink("evil", ".git") })
	}},
	{group: "ancestors", name: "repository that is a link, deeper", run: func() error {
		return first(makeEvil("evil"), func() error { return os.Symlink("../../evil", "deep/er/.git") })
	}},
	{group: "ancestors", name: "repository that is a file", run: func() error {
		return first(makeEvil("evil"), func() error { return os.WriteFile("folder/.git", []byte("gitdir: ../evil\n"), 0o644) })
	}},
	{group: "ancestors", name: "repository that was another file", run: func() error {
		return first(makeEvil("evil"), func() error { return os.WriteFile("folder/git", []byte("gitdir: ../evil\n"), 0o644) }, move("folder/git", "folder/.git"))
	}},
	{group: "ancestors", name: "repository that is a file with two names", run: func() error {
		return first(makeEvil("evil"), func() error { return os.WriteFile("g", []byte("gitdir: evil\n"), 0o644) }, func() error { return os.Link("g", "folder/.git") })
	}},
	{group: "ancestors", name: "new repository with hooks", run: func() error { return evil("folder/.git") }},
	{group: "ancestors", name: "new repository by git", skip: withoutGit, run: func() error {
		return sh("mkdir t; echo x > t/description; mkdir t/hooks; echo evil > t/hooks/pre-commit; git init --template=t new; git init old; echo x > old/.git/hooks/pre-commit")
	}},
	{group: "ancestors", name: "hooks moved in", run: func() error {
		return first(makeEvil("evil"), move("evil/hooks", ".git/hooks2"), move(".git/hooks2", ".git/hooks"))
	}, prepare: func(t *testing.T, b *bed) {
		t.Helper()
		if err := os.RemoveAll(b.ws + "/.git/hooks"); err != nil {
			t.Fatal(err)
		}
	}},
	{group: "ancestors", name: "hooks that are a link", run: func() error {
		return first(makeEvil("evil"), func() error { _ = os.RemoveAll(".git/hooks"); return os.Symlink("../evil/hooks", ".git/hooks") })
	}},
	{group: "ancestors", name: "submodule's directory moved in", run: func() error {
		return first(makeEvil("evil"), func() error { return os.MkdirAll(".git/modules", 0o755) }, move("evil", ".git/modules/sub"))
	}},
	{group: "ancestors", name: "submodule's directory that is a link", run: func() error {
		return first(makeEvil("evil"), func() error { return os.MkdirAll(".git/modules", 0o755) }, func() error { return os.Symlink("../../evil", ".git/modules/sub") })
	}, prepare: func(_ *testing.T, b *bed) { b.forbid = func(rel string) bool { return rel == ".git/modules/sub" } }},
	{group: "ancestors", name: "modules moved in", run: func() error {
		return first(makeEvil("evil/sub"), move("evil", ".git/modules"))
	}},
	{group: "ancestors", name: "file by its path", prepare: pinned, run: func() error {
		return first(func() error { return os.MkdirAll("conf/app", 0o755) }, func() error { return os.WriteFile("conf/app/settings", nil, 0o600) })
	}},
	{group: "ancestors", name: "file by its path, through folders moved there", prepare: pinned, run: func() error {
		return first(func() error { return os.MkdirAll("c/app", 0o755) }, func() error { return os.WriteFile("c/app/settings", nil, 0o600) }, move("c", "conf"))
	}},
	{group: "ancestors", name: "file by its path, through folders moved away", prepare: withSettings, run: func() error {
		return first(move("conf", "c"), func() error { return os.WriteFile("c/app/settings", []byte("evil\n"), 0o600) }, move("c", "conf"))
	}},
	{group: "ancestors", name: "file by its path, through a nearer folder", prepare: withSettings, run: func() error {
		return first(move("conf/app", "conf/a"), func() error { return os.WriteFile("conf/a/settings", []byte("evil\n"), 0o600) }, move("conf/a", "conf/app"))
	}},
	{group: "ancestors", name: "file by its path, through links", prepare: func(t *testing.T, b *bed) {
		t.Helper()
		withSettings(t, b)
		b.forbid = func(rel string) bool { return rel == "conf" }
	}, run: func() error {
		return first(func() error { return os.RemoveAll("conf") }, func() error { return os.MkdirAll("c/app", 0o755) },
			func() error { return os.WriteFile("c/app/settings", []byte("evil\n"), 0o600) }, func() error { return os.Symlink("c", "conf") })
	}},
	{group: "ancestors", name: "file by its path, through the second mount", prepare: withSettings, run: func() error {
		return os.WriteFile(again+"/conf/app/settings", []byte("evil\n"), 0o600)
	}},
	{group: "ancestors", name: "file by its path, below a file", prepare: withSettings, run: func() error {
		return first(func() error { return os.Remove("conf/app/settings") }, func() error { return os.Mkdir("conf/app/settings", 0o755) })
	}},
	{group: "ancestors", name: "out of packages", run: func() error {
		return first(func() error { return evil("node_modules/m/.git") }, move("node_modules/m", "folder/m"))
	}},
	{group: "ancestors", name: "packages that are moved", run: func() error {
		return first(func() error { return evil("node_modules/m/.git") }, move("node_modules", "folder/m"))
	}},
	{group: "ancestors", name: "out of packages by exchange", run: func() error {
		return first(func() error { return evil("node_modules/m/.git") }, func() error { return unix.Renameat2(here, "folder", here, "node_modules/m", unix.RENAME_EXCHANGE) })
	}},
	{group: "ancestors", name: "submodule that is called like packages", run: func() error {
		return evil(".git/modules/node_modules/m")
	}, prepare: func(_ *testing.T, b *bed) {
		b.forbid = func(rel string) bool {
			return strings.HasPrefix(rel, ".git/modules/node_modules/m/hooks") || strings.HasPrefix(rel, ".git/modules/node_modules/m/config")
		}
	}},
	{group: "ancestors", name: "common directory of a submodule", run: func() error {
		return first(makeEvil("evil"), func() error { return os.WriteFile(".git/modules/sub/commondir", []byte(inside+"/evil\n"), 0o644) })
	}, prepare: func(t *testing.T, b *bed) {
		t.Helper()
		b.write(t, "ws/.git/modules/sub/HEAD", "ref: refs/heads/main\n")
		b.forbid = func(rel string) bool { return rel == ".git/modules/sub/commondir" }
	}},
	{group: "ancestors", name: "common directory of a worktree", run: func() error {
		return first(makeEvil("evil"), func() error { return os.WriteFile(".git/worktrees/w/commondir", []byte(inside+"/evil\n"), 0o644) })
	}, prepare: func(t *testing.T, b *bed) {
		t.Helper()
		b.write(t, "ws/.git/worktrees/w/HEAD", "ref: refs/heads/main\n")
		b.write(t, "ws/.git/worktrees/w/commondir", "../..\n")
		b.forbid = func(rel string) bool { return rel == ".git/worktrees/w/commondir" }
	}},
}
