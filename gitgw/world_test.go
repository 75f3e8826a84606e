package gitgw_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/caddy-modules/policy"
	"postern/gitgw"
	"postern/gitgw/mint"
	"postern/integration/fakegithub"
)

// world is a forge, a gateway before it and a clone that pushes through it:
// real git, real HTTP over loopback, real repositories.
type world struct {
	t         *testing.T
	hub       *fakegithub.Server
	installed int64 // the app's installation on acme
	gateway   *gitgw.Gateway
	caller    gitgw.Caller
	url       string // the gateway's, with a slash at the end
	dir       string // everything of the client's
	clone     string // the clone of acme/app
	log       *syncBuffer
	conns     *connLog
	strip     []string // capabilities left out of the offer

	repos []string // besides acme/app

	staticToken string // one that outlives its push on purpose

	serving sync.RWMutex // held while the gateway serves; see change

	mu      sync.Mutex
	records []gitgw.Push
	outputs strings.Builder // everything git printed
}

// vetPublic is what the appliance gives a gateway.
func vetPublic(addr netip.Addr) error {
	if class, _ := policy.Classify(addr); class != policy.Public {
		return errors.New("it is " + class.Sentence())
	}
	return nil
}

// option changes a world before it starts.
type option func(*world)

// rules replaces the rule set. Each line is `VERDICT WORDS…`, and `REASON` at
// the end after ` # `; a line `repo PATTERN` begins a block.
func rules(lines ...string) option {
	return func(w *world) { w.gateway.Rules = mustRules(w.t, lines...) }
}

func mustRules(t *testing.T, lines ...string) *gitgw.Rules {
	t.Helper()
	set, err := gitgw.NewRules(parseBlocks(t, lines...)...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func parseBlocks(t *testing.T, lines ...string) []gitgw.RepoRules {
	t.Helper()
	block := gitgw.RepoRules{Source: "Caddyfile:1"}
	block.Pattern, _ = gitgw.ParseRepoPattern("github.com/acme/*")
	var blocks []gitgw.RepoRules
	for i, line := range lines {
		text, reason, _ := strings.Cut(line, " # ")
		words := strings.Fields(text)
		source := fmt.Sprintf("Caddyfile:%d", i+2)
		if words[0] == "repo" {
			pattern, err := gitgw.ParseRepoPattern(words[1])
			if err != nil {
				t.Fatal(err)
			}
			if len(block.Rules) > 0 {
				blocks = append(blocks, block)
			}
			block = gitgw.RepoRules{Pattern: pattern, Source: source}
			continue
		}
		rule, err := gitgw.ParseRefRule(words[0], words[1:], source)
		if err != nil {
			t.Fatal(err)
		}
		rule.Reason = reason
		block.Rules = append(block.Rules, rule)
	}
	return append(blocks, block)
}

// The two rule sets most cases have.
var (
	denyMain = rules("push refs/** create update delete force", "deny main # push to main is denied (rule 3)")
	allowAll = rules("push refs/** create update delete force")
)

// with adds an empty repository to the forge.
func with(name string) option { return func(w *world) { w.repos = append(w.repos, name) } }

// newWorld starts a forge with acme/app (three commits on main), a gateway, and
// a clone with one more commit on main.
func newWorld(t *testing.T, options ...option) *world {
	t.Helper()
	appKey, err := forgeKey()
	if err != nil {
		t.Fatal(err)
	}
	hub, err := fakegithub.New(fakegithub.Options{Key: appKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Close() })
	if err := hub.AddRepo("acme/app"); err != nil {
		t.Fatal(err)
	}
	installed := hub.Install(fakegithub.Installation{Account: "acme"})

	forge, err := gitgw.NewForge("github.com", hub.APIURL(), hub.URL())
	if err != nil {
		t.Fatal(err)
	}
	key, err := mint.ParseKey(hub.KeyPEM())
	if err != nil {
		t.Fatal(err)
	}
	app := &mint.GitHubApp{AppID: hub.ClientID(), Key: key, Forge: forge}
	t.Cleanup(func() { _ = app.Close() })
	w := &world{t: t, hub: hub, installed: installed, dir: t.TempDir(), log: &syncBuffer{}, conns: &connLog{}}
	w.gateway = &gitgw.Gateway{
		Forges: []gitgw.Forge{forge}, Minter: app,
		Vet: vetPublic,
		Log: slog.New(slog.NewTextHandler(w.log, nil)),
		Record: func(p gitgw.Push) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.records = append(w.records, p)
			if told := p.Code != ""; told == (p.Outcome == gitgw.Accepted) && p.Outcome != gitgw.Aborted && p.Outcome != gitgw.Failed && p.Outcome != gitgw.Unknown {
				t.Errorf("a push that is %s has the code %q: %s", p.Outcome, p.Code, p.Reason)
			}
		},
	}
	own, _ := gitgw.ParseRepo("github.com/acme/app")
	linked := []gitgw.Repo{}
	for _, name := range []string{"empty", "lib", "sha256", "gone"} {
		repo, _ := gitgw.ParseRepo("github.com/acme/" + name)
		linked = append(linked, repo)
	}
	w.caller = gitgw.Caller{Session: "s1", Agent: "agent-7", Workspace: "w", Own: own, Linked: linked}
	for _, o := range options {
		o(w)
	}
	for _, name := range w.repos {
		if err := hub.AddRepo(name); err != nil {
			t.Fatal(err)
		}
	}
	read, err := hub.IssueToken(map[string]string{"contents": "read"}, append(w.repos, "acme/app")...)
	if err != nil {
		t.Fatal(err)
	}
	if w.caller.ReadToken == nil {
		// For its own repository only; for the others the gateway must find one.
		w.caller.ReadToken = func(_ context.Context, r gitgw.Repo) (gitgw.Token, bool) {
			return gitgw.NewToken(read, time.Time{}), r == own
		}
	}
	w.serve()
	w.configure(read)
	w.clone = filepath.Join(w.dir, "app")
	w.begin("plain", func() {
		for i := range 3 {
			if _, err := hub.Commit("acme/app", "main", fmt.Sprint("commit ", i), map[string]string{"a.txt": fmt.Sprint("line ", i, "\n")}); err != nil {
				t.Fatal(err)
			}
		}
		w.mustGit(w.dir, "clone", "-q", "https://github.com/acme/app.git", w.clone)
		w.commit(w.clone, "b.txt", "new\n")
	})
	w.hub.ForgetRequests()
	t.Cleanup(w.checkEnd)
	return w
}

// serve puts the gateway on a loopback port.
func (w *world) serve() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          slog.NewLogLogger(slog.NewTextHandler(w.log, nil), slog.LevelError),
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			w.serving.RLock()
			defer w.serving.RUnlock()
			w.conns.note(r)
			r = r.WithContext(gitgw.WithCaller(r.Context(), w.caller))
			if len(w.strip) > 0 && r.Method == http.MethodGet {
				w.serveStripped(rw, r)
				return
			}
			w.gateway.ServeHTTP(rw, r)
		}),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(chopped(listener))
	}()
	w.t.Cleanup(func() {
		_ = server.Close()
		<-done
		_ = w.gateway.Close()
	})
	w.url = "http://" + listener.Addr().String() + "/"
}

// change alters the gateway between two pushes, when it serves none.
func (w *world) change(f func()) {
	w.serving.Lock()
	defer w.serving.Unlock()
	f()
}

// serveStripped leaves capabilities out of the advertisement, which is how real
// git is made to push without them.
func (w *world) serveStripped(rw http.ResponseWriter, r *http.Request) {
	rec := httptest.NewRecorder()
	w.gateway.ServeHTTP(rec, r)
	body := rec.Body.String()
	for line := range strings.Lines(body) {
		before, caps, ok := strings.Cut(line, "\x00")
		if !ok {
			continue
		}
		for _, word := range w.strip {
			caps = strings.Replace(caps, word, "", 1)
		}
		// The packet begins before this line: its length is the 4 digits that the
		// flush of the service line precedes.
		payload := strings.TrimPrefix(before, "0000")[4:] + "\x00" + caps
		body = strings.Replace(body, line, "0000"+pkt(payload), 1)
		break
	}
	maps.Copy(rw.Header(), rec.Header())
	rw.WriteHeader(rec.Code)
	_, _ = rw.Write([]byte(body))
}

// configure writes what a run's git configuration holds: pushes to the gateway,
// fetches straight to the forge with the read token.
func (w *world) configure(read string) {
	forge := strings.Replace(w.hub.URL(), "http://", "http://x-access-token:"+read+"@", 1)
	config := `[user]
	name = t
	email = t@example.org
[init]
	defaultBranch = main
[core]
	fsync = none
[push]
	default = current
[http "` + w.url + `"]
	proxy =
[url "` + w.url + `github.com/"]
	pushInsteadOf = https://github.com/
	pushInsteadOf = git@github.com:
	pushInsteadOf = ssh://git@github.com/
[url "` + strings.TrimSuffix(forge, "/") + `/"]
	insteadOf = https://github.com/
	insteadOf = git@github.com:
	insteadOf = ssh://git@github.com/
[protocol "file"]
	allow = always
`
	if err := os.WriteFile(filepath.Join(w.dir, "gitconfig"), []byte(config), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// result is what a command left.
type result struct {
	out  string
	code int
}

// gitIn runs git with the run's configuration. A command that takes longer than
// a minute is taken for a hang and killed.
func (w *world) gitIn(dir string, env []string, args ...string) result {
	w.t.Helper()
	return w.run(dir, env, nil, args...)
}

func (w *world) run(dir string, env []string, input []byte, args ...string) result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Stdin = bytes.NewReader(input)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=" + filepath.Join(w.dir, "gitconfig"), "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=/bin/false",
	}, env...)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		w.t.Fatalf("git %s hangs:\n%s", strings.Join(args, " "), out.String())
	}
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outputs.Write(out.Bytes())
	return result{out.String(), code}
}

// git runs git in the clone.
func (w *world) git(args ...string) result { return w.gitIn(w.clone, nil, args...) }

func (w *world) mustGit(dir string, args ...string) string {
	w.t.Helper()
	r := w.gitIn(dir, nil, args...)
	if r.code != 0 {
		w.t.Fatalf("git %s: exit %d\n%s", strings.Join(args, " "), r.code, r.out)
	}
	return strings.TrimSpace(r.out)
}

func (w *world) commit(dir, file, content string) {
	w.t.Helper()
	path := filepath.Join(dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.mustGit(dir, "add", "-A")
	w.mustGit(dir, "commit", "-q", "-m", "change "+file)
}

// want checks exit status and lines of git's output.
func (r result) want(t *testing.T, code int, parts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit %d, want %d", r.code, code)
	}
	for _, part := range parts {
		if !strings.Contains(r.out, part) {
			t.Errorf("output lacks %q", part)
		}
	}
	if t.Failed() {
		t.Log(r.out)
	}
}

func (r result) lacks(t *testing.T, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(r.out, part) {
			t.Errorf("output holds %q:\n%s", part, r.out)
		}
	}
}

// refs are the forge's, of a repository.
func (w *world) refs(repo string) map[string]string {
	w.t.Helper()
	refs, err := w.hub.Refs(repo)
	if err != nil {
		w.t.Fatal(err)
	}
	return refs
}

// wantRef checks one of acme/app's refs; id "" means that it is not there.
func (w *world) wantRef(ref, id string) {
	w.t.Helper()
	if got := w.refs("acme/app")[ref]; got != id {
		w.t.Errorf("%s is %q at the forge, want %q", ref, got, id)
	}
}

func (w *world) head(rev string) string {
	w.t.Helper()
	return w.mustGit(w.clone, "rev-parse", rev)
}

// untouched checks that the forge saw no push and made no write token.
func (w *world) untouched() {
	w.t.Helper()
	for _, r := range w.hub.Requests() {
		if r.Service == "git-receive-pack" {
			w.t.Errorf("forge saw %s %s?%s", r.Method, r.Path, r.Query)
		}
	}
	for _, tok := range w.writeTokens() {
		w.t.Errorf("a write token for %v was made", tok.Repositories)
	}
}

func (w *world) writeTokens() []fakegithub.Token {
	var write []fakegithub.Token
	for _, tok := range w.hub.Tokens() {
		if tok.CanWrite() {
			write = append(write, tok)
		}
	}
	return write
}

// record returns the only audit record so far.
func (w *world) record() gitgw.Push {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.records) != 1 {
		w.t.Fatalf("%d audit records, want 1: %+v", len(w.records), w.records)
	}
	return w.records[0]
}

// waitRecord waits for the only record, for pushes that outlive their client.
func (w *world) waitRecord() gitgw.Push {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		w.mu.Lock()
		n := len(w.records)
		w.mu.Unlock()
		if n > 0 || time.Now().After(deadline) {
			return w.record()
		}
	}
}

// checkEnd holds after every scenario: no write token lives, and none of them
// is in anything that it leaves.
func (w *world) checkEnd() {
	for _, tok := range w.writeTokens() {
		if !tok.Revoked() && tok.Value != w.staticToken && w.hub.Now().Before(tok.Expires) && !w.keepsToken() {
			w.t.Errorf("a write token for %v outlived its push", tok.Repositories)
		}
	}
	w.leftNothing(w.writeTokens())
}

// keepsToken reports whether the scenario forbade the forge to revoke.
func (w *world) keepsToken() bool {
	return strings.Contains(w.log.String(), "push token was not revoked")
}
