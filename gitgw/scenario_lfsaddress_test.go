package gitgw_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"postern/gitgw"
)

// lyingForge answers batches with what a test wants, and is the forge otherwise.
type lyingForge struct {
	http.RoundTripper
	answer func(token string) string
}

func (f *lyingForge) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/objects/batch") {
		return f.RoundTripper.RoundTrip(r)
	}
	_, token, _ := r.BasicAuth()
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/vnd.git-lfs+json"}},
		Body: io.NopCloser(strings.NewReader(f.answer(token))), Request: r,
	}, nil
}

// Where a forge, or who stands in its place, sends an object to: nothing private, nothing
// in the clear, and never with our token.
func TestLFSHostileAddresses(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	victim := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer victim.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer secure.Close()
	lying := &lyingForge{RoundTripper: &http.Transport{}}
	defer lying.RoundTripper.(*http.Transport).CloseIdleConnections()
	w := newWorld(t, allowAll, func(w *world) { w.gateway.Transport, w.gateway.Limits.Mints = lying, 1000 })
	oid := oidOf("x")
	batch := fmt.Sprintf(`{"operation":"upload","ref":{"name":"refs/heads/feat"},"objects":[{"oid":%q,"size":1}]}`, oid)
	at := w.url + "github.com/acme/app.git/info/lfs/objects/"
	const cure = "; have whoever keeps the forge see to where its Git LFS storage is"
	for _, c := range []struct{ name, href, header, want string }{
		{"another port of loopback", victim.URL + "/x", ``, "its address is not https"},
		{"the same with TLS", secure.URL + "/x", ``, "its address 127.0.0.1 is refused"},
		{"IPv6 loopback", "https://[::1]:8443/x", ``, "its address ::1 is refused"},
		{"mapped", "https://[::ffff:127.0.0.1]/x", ``, "is refused"},
		{"a zone", "https://[fe80::1%25lo]/x", ``, "is refused"},
		{"metadata", "https://169.254.169.254/latest/", ``, "its address 169.254.169.254 is refused"},
		{"private", "https://10.0.0.1/x", ``, "is refused"},
		{"unique local", "https://[fd00:ec2::254]/x", ``, "is refused"},
		{"6to4", "https://[2002:7f00:1::]/x", ``, "is refused"},
		{"NAT64", "https://[64:ff9b::7f00:1]/x", ``, "is refused"},
		{"nowhere", "https://0.0.0.0/x", ``, "is refused"},
		{"in the clear", "http://storage.example/x", ``, "its address is not https"},
		{"another scheme", "file:///etc/passwd", ``, "has no address"},
		{"no scheme", "//storage.example/x", ``, "has no address"},
		{"no host", "https:///x", ``, "has no address"},
		{"a user", "https://a:b@storage.example/x", ``, "has no address"},
		{"our token in a header", "https://storage.example/x", `"Authorization":"Bearer TOKEN"`, "tells the gateway's token"},
		{"our token as git writes it", "https://storage.example/x", `"Authorization":"Basic BASIC"`, "tells the gateway's token"},
		{"our token in the address", "https://storage.example/x?t=TOKEN", ``, "tells the gateway's token"},
		{"a host of its choice", "https://storage.example/x", `"host":"git.internal"`, "sets Host"},
		{"a length of its choice", "https://storage.example/x", `"content-length":"0"`, "sets Content-Length"},
	} {
		for _, action := range []string{"upload", "verify"} {
			w.change(func() {
				lying.answer = func(token string) string {
					basic := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + token))
					r := strings.NewReplacer("TOKEN", token, "BASIC", basic)
					actions := fmt.Sprintf(`%q:{"href":%q,"header":{%s}}`, action, r.Replace(c.href), r.Replace(c.header))
					if action == "verify" {
						actions += fmt.Sprintf(`,"upload":{"href":%q}`, strings.TrimSuffix(w.hub.URL(), "/")+"/acme/app.git/info/lfs/upload/"+oid)
					}
					return fmt.Sprintf(`{"objects":[{"oid":%q,"size":1,"actions":{%s}}]}`, oid, actions)
				}
			})
			status, said := w.lfsCall("POST", at+"batch", batch, int64(len(batch)))
			if status != 502 || !strings.Contains(said, c.want) || !strings.Contains(said, cure) {
				t.Errorf("%s, %s: %d %s", c.name, action, status, said)
			}
		}
	}
	// A name is looked up when it is gone to, and may be anything.
	w.change(func() {
		lying.answer = func(string) string {
			return fmt.Sprintf(`{"objects":[{"oid":%q,"size":1,"actions":{"upload":{"href":%q}}}]}`, oid, strings.Replace(secure.URL, "127.0.0.1", "localhost", 1))
		}
	})
	up, _ := w.lfsOpen("x")
	if status, said := w.lfsCall("PUT", up[0], "x", 1); status != 502 || !strings.Contains(said, "is refused") || !strings.Contains(said, cure) {
		t.Errorf("a name: %d %s", status, said)
	}
	// A redirect is not followed, the forge's own neither.
	moved := httptest.NewServer(http.RedirectHandler(victim.URL, http.StatusTemporaryRedirect))
	defer moved.Close()
	w.change(func() {
		lying.answer = func(string) string {
			return fmt.Sprintf(`{"objects":[{"oid":%q,"size":1,"actions":{"upload":{"href":%q}}}]}`, oid, moved.URL)
		}
		forge, err := gitgw.NewForge("github.com", w.hub.APIURL(), moved.URL)
		if err != nil {
			t.Fatal(err)
		}
		w.gateway.Forges = []gitgw.Forge{forge}
	})
	up, _ = w.lfsOpen("x")
	if status, said := w.lfsCall("PUT", up[0], "x", 1); status != 502 || !strings.Contains(said, "a redirect that is not followed") {
		t.Errorf("a redirect: %d %s", status, said)
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("the victims were asked %d times", n)
	}
	_ = w.gateway.Close()
	for _, tok := range w.writeTokens() {
		if !tok.Revoked() {
			t.Error("a token outlived its batch")
		}
	}
}

// A gateway that nobody told which addresses are public takes no other than the forge's.
func TestLFSAddressesWithoutVet(t *testing.T) {
	t.Parallel()
	store := roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
	lying := &lyingForge{RoundTripper: &http.Transport{}}
	defer lying.RoundTripper.(*http.Transport).CloseIdleConnections()
	w := newWorld(t, allowAll, func(w *world) { w.gateway.Transport, w.gateway.Storage, w.gateway.Vet = lying, store, nil })
	oid := oidOf("x")
	batch := fmt.Sprintf(`{"operation":"upload","ref":{"name":"refs/heads/feat"},"objects":[{"oid":%q,"size":1}]}`, oid)
	for href, want := range map[string]string{
		"https://140.82.121.4/x":       "its address 140.82.121.4 is refused: nothing here tells which addresses are public",
		"https://[2606:50c0:8000::1]/": "its address 2606:50c0:8000::1 is refused: nothing here tells",
		"https://10.0.0.1/x":           "its address 10.0.0.1 is refused",
		"https://storage.example/x":    "its host storage.example is refused: nothing here tells which addresses are public",
	} {
		w.change(func() {
			lying.answer = func(string) string {
				return fmt.Sprintf(`{"objects":[{"oid":%q,"size":1,"actions":{"upload":{"href":%q}}}]}`, oid, href)
			}
		})
		status, said := w.lfsCall("POST", w.url+"github.com/acme/app.git/info/lfs/objects/batch", batch, int64(len(batch)))
		if status != 502 || !strings.Contains(said, want) {
			t.Errorf("%s: %d %s", href, status, said)
		}
	}
	_ = w.gateway.Close()
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Batches that come at once are counted before any of them has a token, and so are
// objects and bytes; what is over is given back.
func TestLFSRoomIsCountedFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll, func(w *world) {
		w.gateway.Limits.Mints, w.gateway.Limits.LFSRunObjects, w.gateway.Limits.LFSRunBytes = 1000, 20, 100
	})
	at := w.url + "github.com/acme/app.git/info/lfs/objects/batch"
	body := func(size, count int, name string) string {
		var objects bytes.Buffer
		for i := range count {
			if i > 0 {
				objects.WriteByte(',')
			}
			_, _ = fmt.Fprintf(&objects, `{"oid":%q,"size":%d}`, oidOf(fmt.Sprint(name, i)), size)
		}
		return `{"operation":"upload","ref":{"name":"refs/heads/feat"},"objects":[` + objects.String() + `]}`
	}
	for want, text := range map[string]string{
		"more than 20 Git LFS objects of this run would be under way; push again when they have ended": body(1, 21, "a"),
		"the Git LFS objects of one push have more than 100 bytes; push again":                         body(101, 1, "a"),
	} {
		if status, said := w.lfsCall("POST", at, text, int64(len(text))); status != 429 || !strings.Contains(said, want) {
			t.Errorf("%d %q, want %q", status, said, want)
		}
	}
	w.untouched()
	// While a token is being made others may not slip in.
	var all sync.WaitGroup
	var opened, refused atomic.Int32
	for i := range 40 {
		all.Go(func() {
			text := body(1, 1, fmt.Sprint("o", i, "-"))
			switch status, said := w.lfsCall("POST", at, text, int64(len(text))); {
			case status == 200:
				opened.Add(1)
			case status == 429 && strings.Contains(said, "too many Git LFS uploads of this run are under way already; push again when they have ended"):
				refused.Add(1)
			default:
				t.Errorf("%d %s", status, said)
			}
		})
	}
	all.Wait()
	if opened.Load() != 16 || refused.Load() != 24 || len(w.writeTokens()) != 16 {
		t.Errorf("%d opened, %d refused, %d tokens", opened.Load(), refused.Load(), len(w.writeTokens()))
	}
	w.change(func() { w.caller.Session = "s2" })
	if up, _ := w.lfsOpen("mine"); len(up) != 1 {
		t.Error("another run has no room")
	}
	_ = w.gateway.Close()
}
