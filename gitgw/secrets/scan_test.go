package secrets

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
)

func mustSet(tb testing.TB) *Set {
	tb.Helper()
	set, err := Default()
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

// word makes letters and digits that nobody has seen before: no credential stands in
// this repository.
func word(r *rand.Rand, alphabet string, n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte(alphabet[r.IntN(len(alphabet))])
	}
	return b.String()
}

const (
	alnum = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	hexes = "0123456789abcdef"
)

// planted are credentials of several kinds, in what stands around them.
func planted(r *rand.Rand) map[string]string {
	return map[string]string{
		"github-pat":             "token: ghp_" + word(r, alnum, 36) + "\n",
		"github-app-token":       "x = \"ghs_" + word(r, alnum, 36) + "\"",
		"aws-access-token":       " AKIA" + word(r, upper, 16) + " ",
		"gcp-api-key":            "key=AIza" + word(r, alnum, 35) + "\n",
		"slack-bot-token":        "xoxb-" + word(r, "0123456789", 11) + "-" + word(r, "0123456789", 11) + word(r, alnum, 24),
		"twilio-api-key":         "SK" + word(r, hexes, 32),
		"private-key":            "-----BEGIN RSA PRIVATE KEY-----\n" + word(r, alnum, 1600) + "\n-----END RSA PRIVATE KEY-----\n",
		"npm-access-token":       "//registry/:_authToken=npm_" + word(r, "abcdefghijklmnopqrstuvwxyz0123456789", 36) + "\n",
		"azure-ad-client-secret": "'" + word(r, alnum, 3) + "8Q~" + word(r, alnum, 34) + "'",
		"jwt":                    "Bearer eyJ" + word(r, alnum, 40) + ".eyJ" + word(r, alnum, 60) + "." + word(r, alnum, 43) + "\n",
		"dropbox-api-token":      "dropbox_key = \"" + word(r, "abcdefghijklmnopqrstuvwxyz0123456789", 15) + "\"\n",
		"heroku-api-key":         "HEROKU_API_KEY=" + fmt.Sprintf("%s-%s-%s-%s-%s", word(r, hexes, 8), word(r, hexes, 4), word(r, hexes, 4), word(r, hexes, 4), word(r, hexes, 12)) + "\n",
	}
}

func scan(tb testing.TB, from io.Reader) map[string]int {
	tb.Helper()
	found := map[string]int{}
	if err := mustSet(tb).NewScanner().Scan(from, func(f Finding) { found[f.Rule]++ }); err != nil {
		tb.Fatal(err)
	}
	return found
}

// However many there are of one kind, the first of another is told.
func TestFindsBehindMany(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	var b strings.Builder
	for range 5 * maxFindings {
		b.WriteString("token: ghp_" + word(r, alnum, 36) + "\n")
	}
	b.WriteString(" AKIA" + word(r, upper, 16) + " \n")
	found := scan(t, strings.NewReader(b.String()))
	if n := found["github-pat"]; n < maxFindings-1 || n > maxFindings || found["aws-access-token"] != 1 {
		t.Errorf("%v", found)
	}
}

// Each is found wherever it stands: at the beginning, at the end, over the edges of
// what is read at a time, and however slowly that comes.
func TestFinds(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for rule, text := range planted(r) {
		for _, before := range []int{0, 1, 300, step - len(text) - 1, step - len(text)/2, step - 3, step, step + 5, 2*step - 7, 3 * step} {
			for _, after := range []int{0, 1, 40_000} {
				data := strings.Repeat("the quick brown fox\n", before/20+1)[:before] + text + strings.Repeat("jumps over a dog\n", after/17+1)[:after]
				if before > 0 {
					data = data[:before-1] + "\n" + data[before:]
				}
				if found := scan(t, strings.NewReader(data)); found[rule] == 0 {
					t.Fatalf("%s is not found after %d bytes and before %d: %v", rule, before, after, found)
				}
			}
		}
		if found := scan(t, iotest.OneByteReader(strings.NewReader("a\n"+text))); found[rule] == 0 {
			t.Errorf("%s is not found byte by byte: %v", rule, found)
		}
	}
}

// What is no credential is none: prose, code, examples.
func TestPasses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"the key is a secret token for the password of the api",
		"AKIAIOSFODNN7EXAMPLE", "ghp_" + strings.Repeat("a", 36), "SKIP THE TASK",
		strings.Repeat("live_test_ linear twitter facebook ", 2000),
	} {
		if found := scan(t, strings.NewReader(text)); len(found) > 0 {
			t.Errorf("%.40q: %v", text, found)
		}
	}
}

// corpus is source code of every sort that Go brings along.
func corpus(tb testing.TB, most int) []byte {
	tb.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		tb.Fatal(err)
	}
	var buf bytes.Buffer
	for _, dir := range []string{"net/http", "crypto/tls", "crypto/x509", "go/types", "cmd/go/internal/modload", "encoding/json", "os"} {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(root)), "src", dir, "*.go"))
		if err != nil {
			tb.Fatal(err)
		}
		for _, f := range files {
			if data, err := os.ReadFile(f); err == nil && buf.Len() < most {
				buf.Write(data)
			}
		}
	}
	if buf.Len() < 200_000 {
		tb.Fatalf("only %d bytes of source", buf.Len())
	}
	return buf.Bytes()[:min(buf.Len(), most)]
}

// The windows lose nothing: over real code with credentials in it, each rule finds as
// much as its expression does over the whole.
func TestAgainstExpressions(t *testing.T) {
	t.Parallel()
	set := mustSet(t)
	r := rand.New(rand.NewPCG(3, 4))
	text := corpus(t, 400_000)
	for i := range 6 {
		for _, p := range planted(r) {
			at := (i*len(text)/6 + r.IntN(len(text)/8)) % len(text)
			text = bytes.Join([][]byte{text[:at], []byte("\n" + p + "\n"), text[at:]}, nil)
		}
	}
	found := scan(t, bytes.NewReader(text))
	all := set.NewScanner()
	for _, rule := range set.rules {
		want := 0
		folded := bytes.ToLower(text)
		if !seen(set, rule, folded) {
			continue
		}
		re := regexp.MustCompile(rule.source)
		for off := 0; off < len(text); {
			m := re.FindSubmatchIndex(text[off:])
			if m == nil {
				break
			}
			if all.counts(rule, text, off, m) {
				want++
			}
			off += max(m[1], m[0]+1)
		}
		if found[rule.id] < want {
			t.Errorf("%s: %d found of %d", rule.id, found[rule.id], want)
		}
	}
	if len(found) < len(planted(r)) {
		t.Errorf("only %d kinds found: %v", len(found), found)
	}
}

// seen reports whether one of a rule's words is in the text.
func seen(set *Set, want *rule, folded []byte) bool {
	state := uint16(0)
	for _, c := range folded {
		state = set.words.next[int(state)*set.words.classes+int(set.words.class[c])]
		for _, h := range set.words.found[state] {
			if set.rules[h.rule] == want {
				return true
			}
		}
	}
	return false
}

// Some kinds do not count in some files.
func TestPaths(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	var f Finding
	err := mustSet(t).NewScanner().Scan(strings.NewReader(planted(r)["github-pat"]), func(found Finding) { f = found })
	if err != nil || f.Rule != "github-pat" {
		t.Fatalf("%+v %v", f, err)
	}
	for path, want := range map[string]bool{"config/app.env": true, "": true, "package-lock.json": false, "go.sum": false, "web/node_modules/x/y.js": false} {
		if f.In(path) != want {
			t.Errorf("in %q it counts: %v", path, !want)
		}
	}
}

func TestReadFails(t *testing.T) {
	t.Parallel()
	err := mustSet(t).NewScanner().Scan(iotest.ErrReader(io.ErrClosedPipe), func(Finding) {})
	if err == nil {
		t.Error("a broken stream was scanned")
	}
}

// FuzzScan holds the windows to memory, and to no panic, whatever comes.
func FuzzScan(f *testing.F) {
	for _, text := range planted(rand.New(rand.NewPCG(7, 8))) {
		f.Add([]byte(text), uint8(3))
	}
	set := mustSet(f)
	scanner := set.NewScanner()
	room := cap(scanner.buf)
	f.Fuzz(func(t *testing.T, data []byte, times uint8) {
		if err := scanner.Scan(bytes.NewReader(bytes.Repeat(data, int(times)+1)), func(Finding) {}); err != nil {
			t.Fatal(err)
		}
		if cap(scanner.buf) != room {
			t.Fatalf("the buffer grew to %d", cap(scanner.buf))
		}
	})
}

func BenchmarkScan(b *testing.B) {
	noise := make([]byte, 4<<20)
	r := rand.New(rand.NewPCG(9, 10))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	for name, data := range map[string][]byte{"code": corpus(b, 4<<20), "noise": noise} {
		b.Run(name, func(b *testing.B) {
			scanner := mustSet(b).NewScanner()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				_ = scanner.Scan(bytes.NewReader(data), func(Finding) {})
			}
		})
	}
}
