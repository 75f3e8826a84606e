package fakegithub

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v60/github"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func basic(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("x-access-token:"+token))
}

func TestJWT(t *testing.T) {
	s, _ := start(t, Options{})
	now := s.Now().Unix()
	other, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	tests := []struct {
		name   string
		jwt    string
		status int
		text   string
	}{
		{"good, app id as number", sign(t, s.key, "RS256", map[string]any{"iat": now - 60, "exp": now + 540, "iss": s.AppID()}), 200, `"slug":"postern"`},
		{"good, app id as text", sign(t, s.key, "RS256", map[string]any{"iat": now - 60, "exp": now + 540, "iss": itoa(s.AppID())}), 200, ""},
		{"good, client id", sign(t, s.key, "RS256", map[string]any{"iat": now - 60, "exp": now + 540, "iss": s.ClientID()}), 200, ""},
		{"none", "", 401, "could not be decoded"},
		{"garbage", "a.b.c", 401, "could not be decoded"},
		{"other key", sign(t, other.key, "RS256", map[string]any{"iat": now - 60, "exp": now + 540, "iss": s.AppID()}), 401, "could not be decoded"},
		{"alg none", sign(t, s.key, "none", map[string]any{"iat": now - 60, "exp": now + 540, "iss": s.AppID()}), 401, "could not be decoded"},
		{"iat in the future", sign(t, s.key, "RS256", map[string]any{"iat": now + 60, "exp": now + 540, "iss": s.AppID()}), 401, "('iat')"},
		{"no iat", sign(t, s.key, "RS256", map[string]any{"exp": now + 540, "iss": s.AppID()}), 401, "('iat')"},
		{"expired", sign(t, s.key, "RS256", map[string]any{"iat": now - 700, "exp": now - 100, "iss": s.AppID()}), 401, "('exp') must be a numeric value"},
		{"exp too far", sign(t, s.key, "RS256", map[string]any{"iat": now - 60, "exp": now + 660, "iss": s.AppID()}), 401, "too far in the future"},
		{"other app", sign(t, s.key, "RS256", map[string]any{"iat": now - 60, "exp": now + 540, "iss": 7}), 404, "Integration not found"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := call(t, "GET", s.URL()+"/app", tt.jwt, "")
			if r.status != tt.status || !strings.Contains(r.text, tt.text) {
				t.Errorf("got %d %s", r.status, r.text)
			}
		})
	}
}

// A minter whose clock is wrong must be able to learn GitHub's from the answer.
func TestClockIsInTheAnswer(t *testing.T) {
	s, _ := start(t, Options{})
	jwt := goodJWT(t, s)
	s.Advance(time.Hour)
	r := call(t, "GET", s.URL()+"/app", jwt, "")
	if r.status != 401 {
		t.Fatalf("status %d", r.status)
	}
	date, err := http.ParseTime(r.header.Get("Date"))
	if err != nil || date.Sub(s.Now()).Abs() > 5*time.Second {
		t.Errorf("Date %q, GitHub's time %v", r.header.Get("Date"), s.Now())
	}
	if r := call(t, "GET", s.URL()+"/app", goodJWT(t, s), ""); r.status != 200 {
		t.Errorf("with the right time: %d", r.status)
	}
}

func TestMintAnswers(t *testing.T) {
	s, id := start(t, Options{})
	if err := s.AddRepo("acme/secret"); err != nil {
		t.Fatal(err)
	}
	some := s.Install(Installation{Account: "acme", Repos: []string{"acme/app"}})
	sus := s.Install(Installation{Account: "acme", Suspended: true})
	tests := []struct {
		name, body string
		id         int64
		status     int
		repos      []string
	}{
		{"everything", ``, id, 201, []string{"acme/app", "acme/lib", "acme/secret"}},
		{"everything of a selection", `{}`, some, 201, []string{"acme/app"}},
		{"one by name", `{"repositories":["app"],"permissions":{"contents":"write"}}`, id, 201, []string{"acme/app"}},
		{"one outside the selection", `{"repositories":["lib"]}`, some, 422, nil},
		{"one that does not exist", `{"repositories":["none"]}`, id, 422, nil},
		{"none", `{"repositories":[]}`, id, 422, nil},
		{"permission not granted", `{"repositories":["app"],"permissions":{"workflows":"write"}}`, id, 422, nil},
		{"level not granted", `{"repositories":["app"],"permissions":{"contents":"admin"}}`, id, 422, nil},
		{"nonsense level", `{"repositories":["app"],"permissions":{"contents":"yes"}}`, id, 422, nil},
		{"suspended", `{"repositories":["app"]}`, sus, 403, nil},
		{"no such installation", `{}`, 99, 404, nil},
		{"bad JSON", `{`, id, 400, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := len(s.Tokens())
			r := call(t, "POST", s.URL()+"/app/installations/"+itoa(tt.id)+"/access_tokens", goodJWT(t, s), tt.body)
			if r.status != tt.status {
				t.Fatalf("got %d %s", r.status, r.text)
			}
			all := s.Tokens()
			if tt.status != 201 {
				if len(all) != before {
					t.Error("a token was made all the same")
				}
				return
			}
			if got := all[len(all)-1]; got.Value != r.body["token"] || !slices.Equal(got.Repositories, tt.repos) {
				t.Errorf("ledger: %+v, answer %s", got, r.text)
			}
		})
	}
}

func TestRepositoryIDs(t *testing.T) {
	s, id := start(t, Options{})
	token := mintToken(t, s, id, "app", readPerms)
	r := call(t, "GET", s.URL()+"/repos/acme/app", token, "")
	body := fmt.Sprintf(`{"repository_ids":[%v]}`, r.body["id"])
	if r := call(t, "POST", s.URL()+"/app/installations/"+itoa(id)+"/access_tokens", goodJWT(t, s), body); r.status != 201 || !strings.Contains(r.text, `"full_name":"acme/app"`) {
		t.Errorf("got %d %s", r.status, r.text)
	}
}

func TestTokenFormats(t *testing.T) {
	s, id := start(t, Options{})
	ask := func(header ...string) string {
		r := call(t, "POST", s.URL()+"/app/installations/"+itoa(id)+"/access_tokens", goodJWT(t, s), `{"repositories":["app"],"permissions":{"contents":"write"}}`, header...)
		return r.body["token"].(string)
	}
	if v := ask(); len(v) != 40 || !strings.HasPrefix(v, "ghs_") {
		t.Errorf("short: %q", v)
	}
	if v := ask("X-GitHub-Stateless-S2S-Token", "enabled"); len(v) != 520 {
		t.Errorf("long by header: %d", len(v))
	}
	s.SetTokenFormat(LongTokens)
	if v := ask("X-GitHub-Stateless-S2S-Token", "disabled"); len(v) != 40 {
		t.Errorf("short by header: %d", len(v))
	}
	v := ask()
	if len(v) != 520 || strings.Count(v, ".") != 2 || !strings.HasPrefix(v, "ghs_"+itoa(s.AppID())+"_") {
		t.Fatalf("long: %d %q", len(v), v)
	}
	// The long form works for git: no length limit in the way.
	w := clone(t, s, v, "acme/app")
	w.commit("f", "x")
	w.git("push", "-q", "origin", "main")
	if tok, _ := s.Token(v); !tok.Long() || tok.Uses == 0 {
		t.Errorf("ledger: long %v, uses %d", tok.Long(), tok.Uses)
	}
}

func TestEveryAppIDGivesALongTokenOfTheSameLength(t *testing.T) {
	for id := int64(1); id < 1e12; id = id*10 + 3 {
		if v := longToken(id, time.Now()); len(v) != longTokenLen {
			t.Errorf("app %d: %d characters", id, len(v))
		}
	}
}

func TestRevocation(t *testing.T) {
	s, id := start(t, Options{})
	token := mintToken(t, s, id, "app", writePerms)
	if r := call(t, "DELETE", s.APIURL()+"installation/token", token, ""); r.status != 204 {
		t.Fatalf("revoke: %d %s", r.status, r.text)
	}
	if tok, ok := s.Token(token); !ok || !tok.Revoked() {
		t.Errorf("ledger: %+v", tok)
	}
	if r := call(t, "GET", s.URL()+"/repos/acme/app", token, ""); r.status != 401 {
		t.Errorf("use after revocation: %d", r.status)
	}
	if r := call(t, "DELETE", s.APIURL()+"installation/token", token, ""); r.status != 401 || r.body["message"] != "Bad credentials" {
		t.Errorf("second revocation: %d %s", r.status, r.text)
	}
	if r := call(t, "DELETE", s.APIURL()+"installation/token", "", ""); r.status != 401 {
		t.Errorf("without a token: %d", r.status)
	}
}

func TestReadTokenCannotWriteOverTheAPI(t *testing.T) {
	s, id := start(t, Options{})
	token := mintToken(t, s, id, "app", readPerms)
	r := call(t, "PUT", s.APIURL()+"repos/acme/app/contents/README", token, "{}")
	if r.status != 403 || r.body["message"] != "Resource not accessible by integration" {
		t.Errorf("got %d %s", r.status, r.text)
	}
	if r := call(t, "GET", s.APIURL()+"repos/acme/lib", token, ""); r.status != 404 {
		t.Errorf("other repository: %d", r.status)
	}
	if r := call(t, "GET", s.APIURL()+"installation/repositories", token, ""); r.body["total_count"] != 1.0 {
		t.Errorf("repositories: %s", r.text)
	}
}

func TestCompare(t *testing.T) {
	s, id := start(t, Options{})
	token := mintToken(t, s, id, "app", readPerms)
	first := ref(t, s, "acme/app", "refs/heads/main")
	second, err := s.Commit("acme/app", "main", "second", map[string]string{"README": "more\n"})
	if err != nil {
		t.Fatal(err)
	}
	side, err := s.Commit("acme/app", "side", "side", map[string]string{"x": "y"})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := s.Dir("acme/app")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runGit(dir, nil, nil, "branch", "other", first); err != nil {
		t.Fatal(err)
	}
	other, err := s.Commit("acme/app", "other", "other", map[string]string{"z": "z"})
	if err != nil {
		t.Fatal(err)
	}
	for pair, want := range map[[2]string]string{{first, second}: "ahead", {second, first}: "behind", {first, first}: "identical", {second, other}: "diverged", {"main", "other"}: "diverged"} {
		if r := call(t, "GET", s.URL()+"/repos/acme/app/compare/"+pair[0]+"..."+pair[1], token, ""); r.body["status"] != want {
			t.Errorf("%v: %d %s", pair, r.status, r.text)
		}
	}
	for _, bad := range []string{"main", "main...none", "main..." + side, "--all...main", "main...--output=x"} {
		if r := call(t, "GET", s.URL()+"/repos/acme/app/compare/"+bad, token, ""); r.status != 404 {
			t.Errorf("%s: %d", bad, r.status)
		}
	}
}

// go-github is what the minter uses: it must take the fake for a GitHub.
func TestWithGoGitHub(t *testing.T) {
	s, id := start(t, Options{})
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	client := github.NewClient(hc).WithAuthToken(goodJWT(t, s))
	base, err := url.Parse(s.APIURL())
	if err != nil {
		t.Fatal(err)
	}
	client.BaseURL = base
	inst, _, err := client.Apps.FindRepositoryInstallation(t.Context(), "acme", "app")
	if err != nil || inst.GetID() != id {
		t.Fatalf("installation %v: %v", inst, err)
	}
	tok, _, err := client.Apps.CreateInstallationToken(t.Context(), id, &github.InstallationTokenOptions{
		Repositories: []string{"app"}, Permissions: &github.InstallationPermissions{Contents: new("write")},
	})
	if err != nil || len(tok.Repositories) != 1 || tok.GetExpiresAt().Sub(s.Now()) < 59*time.Minute {
		t.Fatalf("token %v: %v", tok, err)
	}
	own := github.NewClient(hc).WithAuthToken(tok.GetToken())
	own.BaseURL = base
	cmp, _, err := own.Repositories.CompareCommits(t.Context(), "acme", "app", "main", "main", nil)
	if err != nil || cmp.GetStatus() != "identical" {
		t.Errorf("compare %v: %v", cmp, err)
	}
	if _, err := own.Apps.RevokeInstallationToken(t.Context()); err != nil {
		t.Errorf("revoke: %v", err)
	}
	_, _, err = client.Apps.FindRepositoryInstallation(t.Context(), "acme", "none")
	if e := new(github.ErrorResponse); !errors.As(err, &e) || e.Response.StatusCode != 404 {
		t.Errorf("missing repository: %v", err)
	}
	s.SetFaults(Faults{RateLimit: PrimaryRateLimit})
	_, _, err = client.Apps.FindRepositoryInstallation(t.Context(), "acme", "app")
	if e := new(github.RateLimitError); !errors.As(err, &e) {
		t.Errorf("primary limit: %v", err)
	}
	s.SetFaults(Faults{RateLimit: SecondaryRateLimit})
	fresh := github.NewClient(hc).WithAuthToken(goodJWT(t, s))
	fresh.BaseURL = base
	_, _, err = fresh.Apps.FindRepositoryInstallation(t.Context(), "acme", "app")
	if e := new(github.AbuseRateLimitError); !errors.As(err, &e) || e.GetRetryAfter() != time.Minute {
		t.Errorf("secondary limit: %v", err)
	}
}
