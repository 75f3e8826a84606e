package gitgw

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseRepo(t *testing.T) {
	for text, want := range map[string]string{
		"github.com/acme/app":              "github.com/acme/app",
		"GitHub.com/ACME/App.git":          "github.com/acme/app",
		"ghe.example.org/a_b/c.d":          "ghe.example.org/a_b/c.d",
		"localhost/x/y":                    "localhost/x/y",
		"github.com/acme/app.js":           "github.com/acme/app.js",
		"github.com/acme":                  "",
		"github.com/acme/app/":             "",
		"github.com//app":                  "",
		"/acme/app":                        "",
		"https://github.com/acme/app":      "",
		"github.com/acme/..":               "",
		"github.com/../app":                "",
		"github.com/acme/.git":             "",
		"github.com/acme/.github":          "",
		"github.com/acme/app.git.git":      "",
		"github.com/acme/app.GIT":          "",
		"github.com/acme.git/app":          "",
		"github.com/-acme/app":             "",
		"github.com/acme/a%70p":            "",
		"github.com/acme/a pp":             "",
		"github.com/acme/a\x00pp":          "",
		"github.com/\u212Aacme/app":        "", // the Kelvin sign folds to k elsewhere
		"github.com./acme/app":             "",
		"github.com:443/acme/app":          "",
		"x@github.com/acme/app":            "",
		"github..com/acme/app":             "",
		"git-.hub/acme/app":                "",
		"github.com/acme/" + long(101):     "",
		"github.com/acme/" + long(100):     "github.com/acme/" + long(100),
		strings.Repeat("a.", 130) + "/a/b": "",
		"github.com/acme/app*":             "",
	} {
		got, err := ParseRepo(text)
		if (err == nil) != (want != "") || got.String() != want {
			t.Errorf("ParseRepo(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
}

func long(n int) string { return strings.Repeat("x", n) }

func TestRepoParts(t *testing.T) {
	r, err := ParseRepo("github.com/Acme/App")
	if err != nil {
		t.Fatal(err)
	}
	if r.Host() != "github.com" || r.Owner() != "acme" || r.Name() != "app" || r.FullName() != "acme/app" || r.IsZero() {
		t.Errorf("%+v", r)
	}
	out, err := json.Marshal(map[string]Repo{"r": r, "none": {}})
	if err != nil || string(out) != `{"none":"","r":"github.com/acme/app"}` {
		t.Errorf("%s %v", out, err)
	}
	var back map[string]Repo
	if err := json.Unmarshal(out, &back); err != nil || back["r"] != r || !back["none"].IsZero() {
		t.Errorf("%v %v", back, err)
	}
	if json.Unmarshal([]byte(`"acme"`), &r) == nil {
		t.Error("half a name was read")
	}
}

// FuzzRepoPath holds that whatever path is accepted names a repository that is
// written back as itself: no two spellings lead to two repositories, and no
// byte outside the plain names survives.
func FuzzRepoPath(f *testing.F) {
	for _, seed := range []string{
		"/github.com/acme/app.git/info/refs", "/github.com/acme/%61pp/git-receive-pack", "//acme/app/info/refs",
		"/github.com/acme/../app.git/info/refs", "/github.com/acme/app%2f/info/refs", "/github.com/acme/app.git.git/info/refs",
		"/github.com/acme/app%00.git/git-receive-pack", "/GITHUB.com/A/B/info/lfs/objects/batch", "/github.com/acme/app/info/lfs/locks/verify",
		"/github.com/acme/%2e%2e/info/refs", "/github.com/acme/app\\x/info/refs", "/github.com/%E2%84%AA/app/info/refs",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		r := request(t, "POST", path)
		if r == nil {
			return
		}
		got, err := parseRoute(r)
		if err != nil {
			return
		}
		again, err := ParseRepo(got.repo.String())
		if err != nil || again != got.repo {
			t.Fatalf("%q gave %q, which gives %q, %v", path, got.repo, again, err)
		}
		if strings.ContainsAny(got.repo.FullName(), "%\\ \x00*?#") || strings.Count(got.repo.String(), "/") != 2 {
			t.Fatalf("%q gave %q", path, got.repo)
		}
		if u := GitHub().repoURL(got.repo, "info", "refs"); u.Host != "github.com" || u.Path != "/"+got.repo.FullName()+".git/info/refs" {
			t.Fatalf("%q leads to %s", path, u)
		}
	})
}
