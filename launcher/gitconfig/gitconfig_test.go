package gitconfig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func example() Config {
	return Config{
		Gateway: "http://git.internal/", Forges: []string{"github.com", "git.example.com:8443"}, Proxy: "http://127.0.0.1:3128",
		UserName: "A B (agent)", UserEmail: "a@example.com", Safe: []string{"/src/tree"}, Empty: "/run/postern/empty",
	}
}

// runner runs real git with nothing but the given configuration.
type runner struct {
	t         testing.TB
	dir, file string
	env       []string
}

func newRunner(tb testing.TB, c Config) *runner {
	tb.Helper()
	text, err := c.Text()
	if err != nil {
		tb.Fatal(err)
	}
	r := &runner{t: tb, dir: tb.TempDir(), file: filepath.Join(tb.TempDir(), "gitconfig")}
	if err := os.WriteFile(r.file, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
	r.git("init", "-q")
	return r
}

func (r *runner) try(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = r.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "GIT_CONFIG_SYSTEM=" + r.file, "LC_ALL=C", "GIT_TERMINAL_PROMPT=0"}, r.env...)
	out, err := cmd.CombinedOutput()
	return strings.TrimSuffix(string(out), "\n"), err
}

func (r *runner) git(args ...string) string {
	r.t.Helper()
	out, err := r.try(args...)
	if err != nil {
		r.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// urls asks git where it would fetch from and push to for a remote of that URL.
func (r *runner) urls(url string) (fetch, push string) {
	r.t.Helper()
	_, _ = r.try("remote", "remove", "origin")
	r.git("remote", "add", "origin", url)
	return r.git("remote", "get-url", "origin"), r.git("remote", "get-url", "--push", "origin")
}

// Every form of the gateway's design note, and where a push of it goes.
func TestEveryFormIsPushedToTheGateway(t *testing.T) {
	r := newRunner(t, example())
	for _, prefix := range []string{
		// The three of the specification.
		"https://github.com/", "git@github.com:", "ssh://git@github.com/",
		// Worth adding, as measured.
		"http://github.com/", "https://www.github.com/", "https://git@github.com/", "https://x-access-token@github.com/",
		"ssh://github.com/", "ssh://git@github.com:22/", "git+ssh://git@github.com/", "ssh+git://git@github.com/",
		"git@ssh.github.com:", "ssh://git@ssh.github.com:443/", "github.com:", "https://github.com:443/", "git://github.com/",
		"https://GitHub.com/", "git@GitHub.com:", "https://github.com./",
	} {
		t.Run(prefix, func(t *testing.T) {
			r.t = t
			_, push := r.urls(prefix + "acme/app.git")
			if want := "http://git.internal/github.com/acme/app.git"; push != want {
				t.Errorf("push goes to %s, want %s", push, want)
			}
		})
	}
}

func TestOtherForges(t *testing.T) {
	r := newRunner(t, example())
	for _, tc := range []struct{ name, url, fetch, push string }{
		{"enterprise with a port", "https://git.example.com:8443/a/b", "https://git.example.com:8443/a/b", "http://git.internal/git.example.com:8443/a/b"},
		{"enterprise over ssh", "git@git.example.com:a/b.git", "https://git.example.com:8443/a/b.git", "http://git.internal/git.example.com:8443/a/b.git"},
		{"a host that only begins alike", "https://github.com.evil.example/a/b", "https://github.com.evil.example/a/b", "https://github.com.evil.example/a/b"},
		{"a host that only ends alike", "https://notgithub.com/a/b", "https://notgithub.com/a/b", "https://notgithub.com/a/b"},
		{"no forge of ours", "https://gitlab.example/a/b", "https://gitlab.example/a/b", "https://gitlab.example/a/b"},
		{"a folder", "/srv/git/a.git", "/srv/git/a.git", "/srv/git/a.git"},
		{"fetch over https stays", "https://github.com/acme/app", "https://github.com/acme/app", "http://git.internal/github.com/acme/app"},
		{"fetch over ssh goes over https", "git@github.com:acme/app", "https://github.com/acme/app", "http://git.internal/github.com/acme/app"},
		{"gists are not pushed to the gateway", "https://gist.github.com/x", "https://gist.github.com/x", "https://gist.github.com/x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r.t = t
			fetch, push := r.urls(tc.url)
			if fetch != tc.fetch || push != tc.push {
				t.Errorf("fetch %s, push %s\nwant  %s, push %s", fetch, push, tc.fetch, tc.push)
			}
		})
	}
}

// The repository's own configuration says the opposite; the system level is read
// first, and wins at equal length.
func TestARepositoryCannotTakeThePushBack(t *testing.T) {
	r := newRunner(t, example())
	r.git("config", "url.https://evil.example/.pushInsteadOf", "https://github.com/")
	if _, push := r.urls("https://github.com/acme/app"); push != "http://git.internal/github.com/acme/app" {
		t.Errorf("push goes to %s", push)
	}
}

func TestSettings(t *testing.T) {
	r := newRunner(t, example())
	for _, tc := range []struct{ name, want string }{
		{"user.name", "A B (agent)"},
		{"user.email", "a@example.com"},
		{"push.negotiate", "false"},
		{"core.hooksPath", "/run/postern/empty"},
		{"init.templateDir", "/run/postern/empty"},
		{"safe.directory", "/src/tree"},
	} {
		if got := r.git("config", "--get", tc.name); got != tc.want {
			t.Errorf("%s = %q, want %q", tc.name, got, tc.want)
		}
	}
	for _, tc := range []struct{ key, url, want string }{
		{"http.proxy", "http://git.internal/github.com/a/b", "http://127.0.0.1:3128"},
		{"http.proxy", "https://github.com/a/b", "http://127.0.0.1:3128"},
	} {
		if got := r.git("config", "--get-urlmatch", tc.key, tc.url); got != tc.want {
			t.Errorf("%s for %s = %q, want %q", tc.key, tc.url, got, tc.want)
		}
	}
}

func TestHooksCanBeLetRun(t *testing.T) {
	c := example()
	c.Hooks = true
	if out, err := newRunner(t, c).try("config", "--get", "core.hooksPath"); err == nil {
		t.Errorf("core.hooksPath = %q", out)
	}
}

// git asks the helper, which reads the environment.
func TestReadToken(t *testing.T) {
	for _, tc := range []struct {
		name, host, token string
		want              []string
	}{
		{"a forge gets the token", "github.com", "ghs_x.y-z", []string{"username=x-access-token", "password=ghs_x.y-z"}},
		{"with a port", "git.example.com:8443", "ghs_1", []string{"password=ghs_1"}},
		{"another host does not", "evil.example", "ghs_1", nil},
		{"no token, no answer", "github.com", "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRunner(t, example())
			// A helper of the repository's own choice must not be asked for a forge.
			r.git("config", "--global", "credential.helper", "!echo username=stored; echo password=stored; :")
			r.env = []string{"GH_TOKEN=" + tc.token, "GIT_ASKPASS=/bin/false"}
			cmd := exec.Command("git", "credential", "fill")
			cmd.Dir, cmd.Env = r.dir, append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_SYSTEM=" + r.file, "GIT_TERMINAL_PROMPT=0"}, r.env...)
			cmd.Stdin = strings.NewReader("protocol=https\nhost=" + tc.host + "\n\n")
			out, err := cmd.Output()
			for _, line := range tc.want {
				if !slices.Contains(strings.Split(string(out), "\n"), line) {
					t.Errorf("no line %q in %q", line, out)
				}
			}
			if tc.want == nil && (err == nil || strings.Contains(string(out), "password=ghs")) {
				t.Errorf("answered %q", out)
			}
		})
	}
}

func TestTokenIsNotInTheText(t *testing.T) {
	t.Setenv("GH_TOKEN", "ghs_secret")
	c := example()
	text, err := c.Text()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "ghs_secret") {
		t.Error("the token stands in the configuration")
	}
}

func TestNothingSaid(t *testing.T) {
	r := newRunner(t, Config{Proxy: "http://127.0.0.1:3128", Empty: "/e"})
	fetch, push := r.urls("https://github.com/acme/app")
	if fetch != push || push != "https://github.com/acme/app" {
		t.Errorf("without a gateway: fetch %s, push %s", fetch, push)
	}
	if out, err := r.try("config", "--get", "user.name"); err == nil {
		t.Errorf("user.name = %q", out)
	}
}

func TestRefused(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
	}{
		{"gateway without scheme", func(c *Config) { c.Gateway = "git.internal/" }},
		{"gateway without slash", func(c *Config) { c.Gateway = "http://git.internal" }},
		{"gateway with user", func(c *Config) { c.Gateway = "http://u:p@git.internal/" }},
		{"gateway with a line break", func(c *Config) { c.Gateway = "http://git.internal/\"]\n[core]\nfsmonitor=evil/" }},
		{"no proxy", func(c *Config) { c.Proxy = "" }},
		{"socks proxy", func(c *Config) { c.Proxy = "socks5h://127.0.0.1:1080" }},
		{"forge in upper case", func(c *Config) { c.Forges = []string{"GitHub.com"} }},
		{"forge with a slash", func(c *Config) { c.Forges = []string{"github.com/x"} }},
		{"forge with a quote", func(c *Config) { c.Forges = []string{"a\"b"} }},
		{"empty forge", func(c *Config) { c.Forges = []string{""} }},
		{"forge with an empty port", func(c *Config) { c.Forges = []string{"a:"} }},
		{"zero byte in a name", func(c *Config) { c.UserName = "a\x00b" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := example()
			tc.change(&c)
			if text, err := c.Text(); err == nil {
				t.Errorf("taken:\n%s", text)
			}
		})
	}
}

// git reads back any text we write, and it opens no section of its own.
func TestQuoting(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringMatching(`[ -~\n\t"\\\[\]#;=]{1,20}`).Draw(rt, "text")
		c := example()
		c.UserName, c.Safe = text, []string{"/" + text}
		out, err := c.Text()
		if err != nil {
			rt.Fatal(err)
		}
		file := filepath.Join(dir, "c")
		if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
			rt.Fatal(err)
		}
		cmd := exec.Command("git", "config", "-z", "-f", file, "--list")
		got, err := cmd.Output()
		if err != nil {
			rt.Fatalf("%v\n%s", err, out)
		}
		entries := strings.Split(string(got), "\x00")
		for _, want := range []string{"user.name\n" + text, "safe.directory\n/" + text} {
			if !slices.Contains(entries, want) {
				rt.Fatalf("no entry %q in %q", want, entries)
			}
		}
		if want := countValues(c); len(entries)-1 != want {
			rt.Fatalf("%d entries, want %d: %q", len(entries)-1, want, entries)
		}
	})
}

// countValues is how many values the example has, whatever its texts are.
func countValues(c Config) int {
	plain := example()
	text, err := plain.Text()
	if err != nil {
		panic(fmt.Sprintf("example: %v", err))
	}
	return strings.Count(text, "\n\t") + len(c.Safe) - len(plain.Safe)
}
