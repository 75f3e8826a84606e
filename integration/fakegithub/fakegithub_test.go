package fakegithub

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testKey is shared: making one takes a good part of a second.
var testKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// start runs a fake with acme/app (one commit on main) and acme/lib, both
// covered by an installation, whose id it gives.
func start(t *testing.T, o Options) (*Server, int64) {
	t.Helper()
	if o.Key == nil {
		o.Key = testKey()
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	for _, name := range []string{"acme/app", "acme/lib"} {
		if err := s.AddRepo(name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit("acme/app", "main", "first", map[string]string{"README": "hello\n"}); err != nil {
		t.Fatal(err)
	}
	return s, s.Install(Installation{Account: "acme"})
}

// sign makes an App JWT from claims.
func sign(t *testing.T, key *rsa.PrivateKey, alg string, claims map[string]any) string {
	t.Helper()
	b64 := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	text := b64(map[string]string{"alg": alg, "typ": "JWT"}) + "." + b64(claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// goodJWT is what a well-behaved minter sends.
func goodJWT(t *testing.T, s *Server) string {
	t.Helper()
	now := s.Now()
	return sign(t, s.key, "RS256", map[string]any{"iat": now.Unix() - 60, "exp": now.Unix() + 540, "iss": s.AppID()})
}

type reply struct {
	status int
	header http.Header
	body   map[string]any
	text   string
}

// call makes one API request.
func call(t *testing.T, method, url, auth, body string, header ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if auth != "" {
		req.Header.Set("Authorization", "Bearer "+auth)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req) // no redirects
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := reply{status: resp.StatusCode, header: resp.Header, text: string(raw)}
	_ = json.Unmarshal(raw, &out.body) // not every answer is JSON
	return out
}

// mintToken asks for a token the way the gateway does.
func mintToken(t *testing.T, s *Server, installation int64, repo, permissions string) string {
	t.Helper()
	r := call(t, "POST", fmt.Sprintf("%sapp/installations/%d/access_tokens", s.APIURL(), installation), goodJWT(t, s),
		fmt.Sprintf(`{"repositories":[%q],"permissions":%s}`, repo, permissions))
	if r.status != http.StatusCreated {
		t.Fatalf("mint: %d %s", r.status, r.text)
	}
	return r.body["token"].(string)
}

const (
	readPerms  = `{"contents":"read","pull_requests":"write","metadata":"read"}`
	writePerms = `{"contents":"write"}`
)

// work is a clone with real git, and its environment.
type work struct {
	t   *testing.T
	dir string
}

// clone fetches a repository with a token into a fresh directory.
func clone(t *testing.T, s *Server, token, name string, args ...string) work {
	t.Helper()
	w := work{t, filepath.Join(t.TempDir(), "w")}
	out, err := w.run("", append(append([]string{"clone", "-q"}, args...), withToken(s, token, name), w.dir)...)
	if err != nil {
		t.Fatalf("clone: %v\n%s", err, out)
	}
	return w
}

func withToken(s *Server, token, name string) string {
	return strings.Replace(s.RepoURL(name), "://", "://x-access-token:"+token+"@", 1)
}

// run is one git command; the output is both streams together.
func (w work) run(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(gitEnv(), "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=/bin/false")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (w work) git(args ...string) string {
	w.t.Helper()
	out, err := w.run(w.dir, args...)
	if err != nil {
		w.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// fails runs git, expects it to fail, and wants these texts in its output.
func (w work) fails(want []string, args ...string) string {
	w.t.Helper()
	out, err := w.run(w.dir, args...)
	if err == nil {
		w.t.Fatalf("git %s: no error\n%s", strings.Join(args, " "), out)
	}
	for _, text := range want {
		if !strings.Contains(out, text) {
			w.t.Errorf("git %s: output lacks %q:\n%s", strings.Join(args, " "), text, out)
		}
	}
	return out
}

// commit adds a file and commits it.
func (w work) commit(path, content string) {
	w.t.Helper()
	full := filepath.Join(w.dir, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
	w.git("add", "-A")
	w.git("commit", "-q", "-m", "add "+path)
}

func (w work) head() string { return strings.TrimSpace(w.git("rev-parse", "HEAD")) }

// ref is what the far side has.
func ref(t *testing.T, s *Server, name, ref string) string {
	t.Helper()
	refs, err := s.Refs(name)
	if err != nil {
		t.Fatal(err)
	}
	return refs[ref]
}

func TestCloseRemovesOwnDirectory(t *testing.T) {
	s, err := New(Options{Key: testKey()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("directory is still there: %v", err)
	}
}

func TestAddRepoRefusesBadNames(t *testing.T) {
	s, _ := start(t, Options{})
	for _, name := range []string{"", "acme", "acme/", "/app", "acme/../x", "acme/app.git", "acme/a b", "acme/app", "ACME/App", "acme/a/b"} {
		if err := s.AddRepo(name); err == nil {
			t.Errorf("AddRepo(%q): no error", name)
		}
	}
}

func TestTLS(t *testing.T) {
	s, id := start(t, Options{TLS: true})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, s.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	token, err := s.IssueToken(map[string]string{"contents": "write"}, "acme/app")
	if err != nil {
		t.Fatal(err)
	}
	w := clone(t, s, token, "acme/app", "-c", "http.sslCAInfo="+ca)
	w.commit("f", "x")
	w.git("push", "-q", "origin", "main:feat")
	if got := ref(t, s, "acme/app", "refs/heads/feat"); got != w.head() {
		t.Errorf("feat is %q, want %q", got, w.head())
	}
	if id == 0 || !strings.HasPrefix(s.URL(), "https://") {
		t.Errorf("URL %q", s.URL())
	}
}

func TestAdvanceAgesTokens(t *testing.T) {
	s, id := start(t, Options{})
	token := mintToken(t, s, id, "app", readPerms)
	if got := call(t, "GET", s.URL()+"/repos/acme/app", token, ""); got.status != 200 {
		t.Fatalf("fresh token: %d %s", got.status, got.text)
	}
	s.Advance(TokenLifetime + time.Second)
	if got := call(t, "GET", s.URL()+"/repos/acme/app", token, ""); got.status != 401 || got.body["message"] != "Bad credentials" {
		t.Errorf("old token: %d %s", got.status, got.text)
	}
	if live := s.Live(); len(live) != 0 {
		t.Errorf("live tokens: %d", len(live))
	}
}
