package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"postern/launcher/sandbox"
)

// person is who commits in the run.
type person struct{ name, email string }

// gitDirs are where git is looked for; the caller's PATH is not asked.
var gitDirs = []string{"/usr/bin", "/usr/local/bin", "/bin", "/run/current-system/sw/bin"}

// identity finds out who commits, while the sandbox starts: the user's own git
// configuration is out of the run's sight, and a commit without a name fails.
func (l *launch) identity(facts *sandbox.Facts) <-chan person {
	out := make(chan person, 1)
	who := person{l.GitName, l.GitEmail}
	if who.name != "" && who.email != "" || !hasRepository(facts) {
		out <- who.orDefault()
		return out
	}
	go func() {
		asked, err := readIdentity()
		if err != nil {
			asked = askGit()
		}
		if who.name == "" {
			who.name = asked.name
		}
		if who.email == "" {
			who.email = asked.email
		}
		out <- who.orDefault()
	}()
	return out
}

func hasRepository(facts *sandbox.Facts) bool {
	for _, r := range facts.Roots {
		if _, err := os.Lstat(filepath.Join(r.Path, ".git")); err == nil {
			return true
		}
	}
	return false
}

// readIdentity reads what git would commit by. (Asked for --global, some versions of it
// do not look at the first file where there is the second.)
func readIdentity() (person, error) {
	home := os.Getenv("HOME")
	if !filepath.IsAbs(home) {
		return person{}, errors.New("no home")
	}
	config := os.Getenv("XDG_CONFIG_HOME")
	if config == "" {
		config = filepath.Join(home, ".config")
	}
	name, email, err := sandbox.GitIdentity(filepath.Join(config, "git", "config"), filepath.Join(home, ".gitconfig"))
	return person{name, email}, err
}

// askGit reads user.name and user.email of the user's global configuration. Global:
// what the repository says it says inside as well, and it is not to be trusted.
func askGit() person {
	var who person
	for _, dir := range gitDirs {
		exe := filepath.Join(dir, "git")
		if _, err := os.Stat(exe); err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, exe, "config", "--global", "-z", "--get-regexp", `^user\.(name|email)$`)
		cmd.Dir = "/"
		for _, name := range []string{"HOME", "XDG_CONFIG_HOME"} {
			if v, ok := os.LookupEnv(name); ok {
				cmd.Env = append(cmd.Env, name+"="+v)
			}
		}
		out, err := cmd.Output()
		if err != nil {
			return who // none is set
		}
		for entry := range strings.SplitSeq(string(out), "\x00") {
			key, value, _ := strings.Cut(entry, "\n")
			switch key {
			case "user.name":
				who.name = value
			case "user.email":
				who.email = value
			}
		}
		return who
	}
	return who
}

// orDefault fills in what nobody said, so that it is plain whose commit it is not.
func (p person) orDefault() person {
	login := "user"
	if u, err := user.Current(); err == nil && u.Username != "" {
		login = u.Username
	}
	if p.name == "" {
		p.name = login + " (agent)"
	}
	if p.email == "" {
		p.email = login + "@agents.postern.invalid"
	}
	return p
}
