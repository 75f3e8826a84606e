package lookup_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"postern/gitgw"
	"postern/gitgw/lookup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	zero = "0000000000000000000000000000000000000000"
	one  = "1111111111111111111111111111111111111111"
	two  = "2222222222222222222222222222222222222222"
)

func push() gitgw.Lookup {
	repo, _ := gitgw.ParseRepo("github.com/acme/app")
	return gitgw.Lookup{
		Session: "s1", Agent: "ada", Workspace: "w", Repository: repo, Options: []string{"ci.skip"},
		Updates: []gitgw.Update{
			{Ref: "refs/heads/main", Old: one, New: two, Action: gitgw.ActionUpdate, Forced: gitgw.ForcedYes},
			{Ref: "refs/heads/x", Old: zero, New: two, Action: gitgw.ActionCreate},
			{Ref: "refs/heads/y", Old: one, New: two, Action: gitgw.ActionUpdate},
			{Ref: "refs/heads/z", Old: one, New: two, Action: gitgw.ActionForce},
		},
	}
}

// serve answers lookups by a handler, on a Unix socket and on loopback.
func serve(t *testing.T, h http.HandlerFunc) (unix, loopback string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "lookup") //nolint:usetesting // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "r.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	over := &httptest.Server{Listener: listener, Config: &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}}
	over.Start()
	t.Cleanup(over.Close)
	tcp := httptest.NewServer(h)
	t.Cleanup(tcp.Close)
	return "unix/" + path, tcp.URL + "/rules"
}

func newHTTP(t *testing.T, address string, timeout time.Duration) *lookup.HTTP {
	t.Helper()
	h, err := lookup.NewHTTP(address, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// TestRulings asks once for a whole push. The wire form is a promise to hosts.
func TestRulings(t *testing.T) {
	want := `{"version":1,"session":"s1","agent":"ada","workspace":"w","repository":"github.com/acme/app","options":["ci.skip"],"updates":[` +
		`{"ref":"refs/heads/main","action":"update","old":"` + one + `","new":"` + two + `","forced":true},` +
		`{"ref":"refs/heads/x","action":"create","old":"` + zero + `","new":"` + two + `","forced":false},` +
		`{"ref":"refs/heads/y","action":"update","old":"` + one + `","new":"` + two + `","forced":null},` +
		`{"ref":"refs/heads/z","action":"update","old":"` + one + `","new":"` + two + `","forced":true}]}`
	unix, loopback := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) != want || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s\n%s\nwant\n%s", r.Method, body, want)
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		// In any order.
		_, _ = io.WriteString(w, `{"version":1,"updates":[{"ref":"refs/heads/y","verdict":"deny","reason":"frozen"},
			{"ref":"refs/heads/x","verdict":"allow"},{"ref":"refs/heads/main","verdict":"ask","reason":""},{"ref":"refs/heads/z","verdict":"allow"}]}`+"\n")
	})
	for _, address := range []string{unix, loopback} {
		got, err := newHTTP(t, address, 0).Rulings(t.Context(), push())
		if err != nil || !reflect.DeepEqual(got, []gitgw.Ruling{{Kind: gitgw.Ask}, {Kind: gitgw.Allow}, {Kind: gitgw.Deny, Reason: "frozen"}, {Kind: gitgw.Allow}}) {
			t.Errorf("%s: %+v, %v", address, got, err)
		}
	}
}

// answer is a full one, of which tests change a part.
func answer(verdict string) string {
	return `{"version":1,"updates":[{"ref":"refs/heads/main","verdict":"allow"},{"ref":"refs/heads/x","verdict":"allow"},{"ref":"refs/heads/z","verdict":"allow"},{"ref":"refs/heads/y","verdict":"` + verdict + `"}]}`
}

// Whatever is not a clear verdict on each ref is none.
func TestUnusable(t *testing.T) {
	good := answer("allow")
	for name, c := range map[string]struct {
		status     int
		kind, body string
		want       string // error
	}{
		"usable":          {200, "application/json", good, ""},
		"error status":    {500, "application/json", good, "the rule source answered 500"},
		"no content":      {204, "application/json", "", "the rule source answered 204"},
		"redirect":        {307, "application/json", good, "the rule source answered 307"},
		"other type":      {200, "text/plain", good, "no usable answer"},
		"nothing":         {200, "application/json", "", "no usable answer"},
		"null":            {200, "application/json", "null", "no usable answer"},
		"no version":      {200, "application/json", strings.Replace(good, `"version":1,`, "", 1), "no usable answer"},
		"other version":   {200, "application/json", strings.Replace(good, `"version":1,`, `"version":2,`, 1), "no usable answer"},
		"unknown field":   {200, "application/json", strings.Replace(good, `"version":1,`, `"version":1,"until":"noon",`, 1), "no usable answer"},
		"condition":       {200, "application/json", strings.Replace(good, `"verdict":"allow"`, `"verdict":"allow","maxpack":1`, 1), "no usable answer"},
		"verdict twice":   {200, "application/json", strings.Replace(good, `"verdict":"allow"`, `"verdict":"deny","verdict":"allow"`, 1), "no usable answer"},
		"other case":      {200, "application/json", strings.Replace(good, `"verdict":"allow"`, `"verdict":"deny","Verdict":"allow"`, 1), "no usable answer"},
		"verdict missing": {200, "application/json", strings.Replace(good, `,"verdict":"allow"`, "", 1), "no usable answer"},
		"our own word":    {200, "application/json", answer("push"), "no usable answer"},
		"ALLOW":           {200, "application/json", answer("ALLOW"), "no usable answer"},
		"number":          {200, "application/json", strings.Replace(good, `"verdict":"allow"`, `"verdict":2`, 1), "no usable answer"},
		"ref missing":     {200, "application/json", `{"version":1,"updates":[{"ref":"refs/heads/main","verdict":"allow"}]}`, "no usable answer"},
		"ref too many":    {200, "application/json", strings.Replace(good, `[`, `[{"ref":"refs/heads/z2","verdict":"allow"},`, 1), "no usable answer"},
		"ref twice":       {200, "application/json", strings.Replace(good, `[`, `[{"ref":"refs/heads/y","verdict":"deny"},`, 1), "no usable answer"},
		"short ref":       {200, "application/json", strings.ReplaceAll(good, "refs/heads/", ""), "no usable answer"},
		"two values":      {200, "application/json", good + good, "no usable answer"},
		"too long":        {200, "application/json", strings.Replace(good, `"allow"`, `"allow","reason":"`+strings.Repeat("x", 5<<20)+`"`, 1), "no usable answer"},
	} {
		t.Run(name, func(t *testing.T) {
			unix, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			got, err := newHTTP(t, unix, time.Minute).Rulings(t.Context(), push())
			if (err != nil) != (c.want != "") || err != nil && (!strings.Contains(err.Error(), c.want) || got != nil) {
				t.Errorf("%+v, %v, want %q", got, err, c.want)
			}
		})
	}
}

// Not there, too slow, gone in the middle: no verdict, and no address in the text.
func TestNoAnswer(t *testing.T) {
	slow, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	stuck, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer("allow")[:20])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	dies, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", fmt.Sprint(len(answer("allow"))))
		_, _ = io.WriteString(w, answer("allow")[:20])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	for address, want := range map[string]string{
		"unix//nonexistent/r.sock": "the rule source cannot be reached",
		"http://127.0.0.1:1/":      "the rule source cannot be reached",
		slow:                       "the rule source did not answer in time",
		stuck:                      "the rule source did not answer in time",
		dies:                       "the rule source gave no usable answer",
	} {
		timeout := 300 * time.Millisecond
		if address == dies {
			timeout = time.Minute
		}
		if got, err := newHTTP(t, address, timeout).Rulings(t.Context(), push()); err == nil || err.Error() != want || got != nil {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	// A client that goes away ends the question.
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := newHTTP(t, slow, time.Hour).Rulings(ctx, push()); err == nil {
		t.Error("cancelled, yet answered")
	}
}

func TestNewHTTP(t *testing.T) {
	for address, ok := range map[string]bool{
		"unix//run/r.sock": true, "http://127.0.0.1:8080/x": true, "http://[::1]:8080": true, "http://localhost:1": true,
		"https://127.0.0.1:1": false, "http://example.org": false, "http://10.0.0.1/": false, "unix/r.sock": false, "": false,
	} {
		h, err := lookup.NewHTTP(address, 0)
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "rule source") {
			t.Errorf("%q: %v", address, err)
		}
		if h != nil {
			_ = h.Close()
		}
	}
	if _, err := lookup.NewHTTP("unix//r", -1); err == nil {
		t.Error("a negative timeout was taken")
	}
}

// A push of as many refs as the gateway takes fits into one question and answer.
func TestManyRefs(t *testing.T) {
	unix, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Updates []struct{ Ref string }
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		var b strings.Builder
		for i, u := range q.Updates {
			fmt.Fprintf(&b, `%s{"ref":%q,"verdict":"deny","reason":%q}`, map[bool]string{true: ","}[i > 0], u.Ref, strings.Repeat("r", 200))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"version":1,"updates":[`+b.String()+`]}`)
	})
	l := push()
	l.Updates = nil
	for i := range 5000 {
		l.Updates = append(l.Updates, gitgw.Update{Ref: fmt.Sprintf("refs/heads/agent/some/longer/name/of/a/branch-%d", i), Old: zero, New: one, Action: gitgw.ActionCreate})
	}
	got, err := newHTTP(t, unix, time.Minute).Rulings(t.Context(), l)
	if err != nil || len(got) != 5000 || got[4999].Kind != gitgw.Deny {
		t.Errorf("%d rulings, %v", len(got), err)
	}
}
