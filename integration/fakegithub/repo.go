package fakegithub

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// repo is a bare repository and what GitHub knows about it.
type repo struct {
	id          int64
	owner, name string // as created; compared without case
	dir         string
	public      bool
	protected   []string // full ref names
}

func (r *repo) full() string { return r.owner + "/" + r.name }

// ErrNoRepo says that there is no repository of that name.
var ErrNoRepo = errors.New("no such repository")

// AddRepo makes an empty private repository OWNER/NAME with default branch
// main. No installation covers it until Install says so.
func (s *Server) AddRepo(name string) error {
	owner, base, ok := strings.Cut(name, "/")
	if !ok || !validSegment(owner) || !validSegment(base) || strings.HasSuffix(base, ".git") {
		return fmt.Errorf("add repository %q: want OWNER/NAME", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.ToLower(name)
	if s.repos[key] != nil {
		return fmt.Errorf("add repository %q: it exists", name)
	}
	dir := filepath.Join(s.dir, "repos", key+".git")
	if err := s.initRepo(dir); err != nil {
		return fmt.Errorf("add repository %q: %w", name, err)
	}
	delete(s.moved, key)
	s.repos[key] = &repo{id: s.id(), owner: owner, name: base, dir: dir}
	return nil
}

func (s *Server) initRepo(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if _, err := runGit("", nil, nil, "init", "-q", "--bare", "-b", "main", dir); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "config"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, repoConfig, filepath.Join(s.dir, "hooks"))
	return errors.Join(err, f.Close())
}

// repoConfig is appended to a new repository's configuration; %q is the folder
// of hooks. The fake must not be the slow part of a measurement: no fsync, and
// no gc that starts in the middle of one.
const repoConfig = `[core]
	hooksPath = %q
	fsync = none
[receive]
	advertiseAtomic = true
	advertisePushOptions = true
	autogc = false
[uploadpack]
	allowFilter = true
	allowAnySHA1InWant = true
[gc]
	auto = 0
`

// SetPublic lets anybody fetch the repository without a token.
func (s *Server) SetPublic(name string, public bool) error {
	return s.withRepo(name, func(r *repo) { r.public = public })
}

// Protect refuses every push to a branch (a short name such as "main") with
// the words of GitHub's branch protection.
func (s *Server) Protect(name, branch string) error {
	return s.withRepo(name, func(r *repo) { r.protected = append(r.protected, "refs/heads/"+branch) })
}

// Rename gives a repository a new OWNER/NAME. The old name answers 301, on
// git and on the API, until a repository of that name is added.
func (s *Server) Rename(from, to string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.repos[strings.ToLower(from)]
	owner, base, ok := strings.Cut(to, "/")
	if r == nil || !ok || !validSegment(owner) || !validSegment(base) || s.repos[strings.ToLower(to)] != nil {
		return fmt.Errorf("rename repository %q to %q: %w or bad new name", from, to, ErrNoRepo)
	}
	delete(s.repos, strings.ToLower(from))
	r.owner, r.name = owner, base
	s.repos[strings.ToLower(to)] = r
	s.moved[strings.ToLower(from)] = strings.ToLower(to)
	return nil
}

// Dir is the bare repository on disk, for a test that wants to look closer.
func (s *Server) Dir(name string) (string, error) {
	var dir string
	err := s.withRepo(name, func(r *repo) { dir = r.dir })
	return dir, err
}

func (s *Server) withRepo(name string, f func(*repo)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.repos[strings.ToLower(name)]
	if r == nil {
		return fmt.Errorf("%s: %w", name, ErrNoRepo)
	}
	f(r)
	return nil
}

// lookup finds a repository by name, and the new name of a renamed one.
func (s *Server) lookup(name string) (r repo, movedTo string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.ToLower(name)
	if to, moved := s.moved[key]; moved {
		if target := s.repos[to]; target != nil {
			return *target, target.full(), true
		}
	}
	if found := s.repos[key]; found != nil {
		c := *found
		c.protected = slices.Clone(found.protected)
		return c, "", true
	}
	return repo{}, "", false
}

// Refs are all refs of a repository with their object ids.
func (s *Server) Refs(name string) (map[string]string, error) {
	dir, err := s.Dir(name)
	if err != nil {
		return nil, err
	}
	out, err := runGit(dir, nil, nil, "for-each-ref", "--format=%(refname) %(objectname)")
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for line := range strings.Lines(out) {
		ref, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		refs[ref] = id
	}
	return refs, nil
}

// Commit puts a commit with these files (path to content, the whole tree) on
// a branch, as its next commit or its first, and gives the commit's id. It is
// how a test prepares the far side; no hook runs.
func (s *Server) Commit(name, branch, message string, files map[string]string) (string, error) {
	dir, err := s.Dir(name)
	if err != nil {
		return "", err
	}
	index, err := os.CreateTemp(s.dir, "index-")
	if err != nil {
		return "", fmt.Errorf("make index: %w", err)
	}
	_ = index.Close()
	_ = os.Remove(index.Name()) // git wants to make it; only the name was needed
	defer os.Remove(index.Name())
	env := []string{"GIT_INDEX_FILE=" + index.Name()}
	for path, content := range files {
		blob, err := runGit(dir, nil, strings.NewReader(content), "hash-object", "-w", "--stdin")
		if err != nil {
			return "", err
		}
		if _, err := runGit(dir, env, nil, "update-index", "--add", "--cacheinfo", "100644,"+strings.TrimSpace(blob)+","+path); err != nil {
			return "", err
		}
	}
	tree, err := runGit(dir, env, nil, "write-tree")
	if err != nil {
		return "", err
	}
	args := []string{"commit-tree", strings.TrimSpace(tree), "-m", message}
	if parent, err := runGit(dir, nil, nil, "rev-parse", "--verify", "-q", "refs/heads/"+branch); err == nil {
		args = append(args, "-p", strings.TrimSpace(parent))
	}
	commit, err := runGit(dir, nil, nil, args...)
	if err != nil {
		return "", err
	}
	commit = strings.TrimSpace(commit)
	_, err = runGit(dir, nil, nil, "update-ref", "refs/heads/"+branch, commit)
	return commit, err
}

// gitEnv is the whole environment of the fake's own git processes. Nothing of
// the caller's configuration may change how the fake behaves.
func gitEnv() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_AUTHOR_NAME=Octo Cat", "GIT_AUTHOR_EMAIL=octocat@github.example",
		"GIT_COMMITTER_NAME=Octo Cat", "GIT_COMMITTER_EMAIL=octocat@github.example",
	}
}

// runGit runs one git command to its end and gives its output.
func runGit(dir string, env []string, stdin *strings.Reader, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(gitEnv(), env...)
	if stdin != nil {
		cmd.Stdin = stdin
	}
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(errb.Bytes()))
	}
	return out.String(), nil
}

// validSegment is GitHub's rule for owners and names, near enough.
func validSegment(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > 100 {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}
