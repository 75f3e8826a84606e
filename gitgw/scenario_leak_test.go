package gitgw_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/gitgw"
	"postern/gitgw/mint"
	"postern/integration/fakegithub"
)

// tellTale is a forge that says the token it was given in every answer, in as many
// ways as there are.
type tellTale struct {
	next http.RoundTripper
	how  string
	real string // a token that the forge behind takes for any other, if set

	mu   sync.Mutex
	seen map[string]bool // tokens
}

func (f *tellTale) RoundTrip(req *http.Request) (*http.Response, error) {
	_, token, _ := req.BasicAuth()
	f.mu.Lock()
	f.seen[token] = true
	behind := f.real
	f.mu.Unlock()
	basic := strings.TrimPrefix(req.Header.Get("Authorization"), "Basic ")
	story := fmt.Sprintf("no %s or https://x-access-token:%s@github.com/ or https://u:%s@x/ or Authorization: Basic %s or %s or Bearer %s or %s",
		token, token, token, basic, base64.StdEncoding.EncodeToString([]byte("oauth2:"+token)), token, url.QueryEscape(token))
	answer := func(status int, kind, body string, header ...string) *http.Response {
		if req.Body != nil {
			_, _ = io.Copy(io.Discard, req.Body)
			_ = req.Body.Close()
		}
		resp := &http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Request: req, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1}
		for i := 0; i < len(header); i += 2 {
			resp.Header.Set(header[i], header[i+1])
		}
		return resp
	}
	report := func(progress, report string) *http.Response {
		body := ""
		for _, part := range []string{progress[:len(progress)/2], progress[len(progress)/2:]} {
			body += pkt("\x02" + part)
		}
		return answer(200, "application/x-git-receive-pack-result", body+report+"0000")
	}
	inner := func(lines ...string) string {
		var b strings.Builder
		for _, line := range lines {
			b.WriteString(pkt(line + "\n"))
		}
		return pkt("\x01" + b.String() + "0000")
	}
	listing := strings.Contains(req.URL.RawQuery, "upload-pack")
	advert := strings.Contains(req.URL.RawQuery, "receive-pack")
	push := req.Method == http.MethodPost
	switch {
	case f.how == "listing" && listing:
		return answer(403, "text/plain", story), nil
	case f.how == "advertisement" && advert:
		return answer(400, "text/plain", story), nil
	case f.how == "redirect" && advert:
		return answer(302, "text/plain", story, "Location", "https://u:"+token+"@evil.example/"+token+"/x?t="+token), nil
	case f.how == "garbage" && advert:
		return answer(200, "application/x-git-receive-pack-advertisement", story), nil
	case f.how == "connection" && advert:
		return nil, errors.New(story)
	case f.how == "status" && push:
		return answer(500, "text/plain", story), nil
	case f.how == "progress" && push:
		return report("see "+token+"\n", inner("unpack ok", "ok refs/heads/feat")), nil
	case f.how == "words" && push:
		return report("Bearer "+token+" "+story+"\n", inner("unpack ok", "ok refs/heads/feat")), nil
	case f.how == "long word" && push:
		return report(strings.Repeat("x", 8100)+token+strings.Repeat("y", 9000)+token+"\n", inner("unpack ok", "ok refs/heads/feat")), nil
	case f.how == "reason" && push:
		return report("hello\n", inner("unpack ok", "ng refs/heads/feat "+story)), nil
	case f.how == "option" && push:
		return report("hello\n", inner("unpack ok", "ok refs/heads/feat", "option refname "+token)), nil
	case f.how == "unpack" && push:
		return report("hello\n", inner("unpack "+story, "ng refs/heads/feat "+story)), nil
	case f.how == "fatal" && push:
		return answer(200, "application/x-git-receive-pack-result", pkt("\x03"+story)), nil
	case f.how == "no report" && push:
		return report(story, pkt("\x01"+pkt("unpack ok\n")+pkt("hello "+story+"\n"))), nil
	}
	if behind != "" && token != "" {
		req = req.Clone(req.Context())
		req.SetBasicAuth("x-access-token", behind)
	}
	return f.next.RoundTrip(req)
}

// Whatever a forge says, and in whatever way, no token that it was given is told to
// the client, the log, the audit or the approver.
func TestForgeThatTells(t *testing.T) {
	t.Parallel()
	formats := map[string]func(*world){
		"short": func(*world) {},
		"long":  func(w *world) { w.hub.SetTokenFormat(fakegithub.LongTokens) },
		"of no shape": func(w *world) {
			w.gateway.Minter = mint.NewStatic("hunter2+of/a.static~forge==", "")
		},
	}
	for _, how := range []string{
		"listing", "advertisement", "redirect", "garbage", "connection", "status", "progress", "words", "long word", "reason", "option", "unpack", "fatal", "no report",
	} {
		for format, prepare := range formats {
			t.Run(how+"/"+format, func(t *testing.T) {
				t.Parallel()
				approver := &listening{}
				transport := &http.Transport{}
				t.Cleanup(transport.CloseIdleConnections)
				forge := &tellTale{how: how, next: transport, seen: map[string]bool{}}
				w := newWorld(t, rules("ask refs/** create update delete"), func(w *world) {
					prepare(w)
					w.gateway.Transport = forge
					w.gateway.Approver = approver
					w.gateway.Limits.Retry = []time.Duration{time.Millisecond}
				})
				if format == "of no shape" {
					behind, err := w.hub.IssueToken(map[string]string{"contents": "write"}, "acme/app")
					if err != nil {
						t.Fatal(err)
					}
					forge.mu.Lock()
					forge.real = behind
					forge.mu.Unlock()
					w.staticToken = behind
				}
				read, _ := w.caller.ReadToken(t.Context(), w.caller.Own)
				r := w.gitIn(w.clone, []string{"GIT_TRACE_CURL=1", "GIT_TRACE_PACKET=1"}, "push", "origin", "main:feat")
				if how != "progress" && how != "words" && how != "long word" && how != "option" && r.code == 0 {
					t.Errorf("exit %d\n%s", r.code, r.out)
				}
				forge.mu.Lock()
				seen := maps.Clone(forge.seen)
				forge.mu.Unlock()
				delete(seen, "")
				if how != "listing" && len(seen) < 2 {
					t.Fatalf("the forge has seen %d tokens", len(seen))
				}
				w.mu.Lock()
				audit, err := json.Marshal(w.records)
				w.mu.Unlock()
				if err != nil || len(audit) < 10 {
					t.Fatalf("%s %v", audit, err)
				}
				for what, text := range map[string]string{"git's output": r.out, "the log": w.log.String(), "the audit": string(audit), "the question": approver.String()} {
					for token := range seen {
						if what == "git's output" && token == read.Value() {
							continue // its own, in its own configuration
						}
						for _, form := range forms(token) {
							if strings.Contains(text, form) {
								t.Errorf("%s in %s:\n%s", form, what, text)
							}
						}
					}
				}
			})
		}
	}
}

// forms are the ways in which a token may be told, the largest part that a careless
// hand leaves among them.
func forms(token string) []string {
	return []string{
		token, token[4:], token[:len(token)-4], url.QueryEscape(token),
		base64.StdEncoding.EncodeToString([]byte("x-access-token:" + token)),
		base64.StdEncoding.EncodeToString([]byte("oauth2:" + token))[12:32],
	}
}

// listening is an approver that says yes and keeps what it was asked.
type listening struct {
	mu    sync.Mutex
	asked strings.Builder
}

func (l *listening) Connected() bool { return true }

func (l *listening) Ask(_ context.Context, q gitgw.Question) (gitgw.Answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := json.NewEncoder(&l.asked).Encode(q); err != nil {
		return gitgw.Answer{}, err
	}
	return gitgw.Answer{Allowed: true, By: "ann"}, nil
}

func (l *listening) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked.String()
}

// What the client says of itself is not believed to hold no secret: its own token in
// a push option, in a ref's name and in its program's goes no further than the forge.
func TestClientThatTells(t *testing.T) {
	t.Parallel()
	approver := &listening{}
	w := newWorld(t, rules("ask refs/** create update delete"), func(w *world) { w.gateway.Approver = approver })
	read, _ := w.caller.ReadToken(t.Context(), w.caller.Own)
	w.gitIn(w.clone, []string{"GIT_USER_AGENT=git/" + read.Value()}, "push", "-o", "token="+read.Value(), "origin", "main:"+read.Value())
	r := w.record()
	audit, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Options) != 1 || r.Options[0] != "token=[redacted]" {
		t.Errorf("options %q", r.Options)
	}
	for what, text := range map[string]string{"the log": w.log.String(), "the audit": string(audit)} {
		if strings.Contains(text, read.Value()) {
			t.Errorf("the read token stands in %s:\n%s", what, text)
		}
	}
}

// leftNothing looks for the tokens that write in all that a scenario leaves: what git
// printed, the log, the audit, and every file of the client's, its clone with
// the objects' store and its configuration among them.
func (w *world) leftNothing(tokens []fakegithub.Token) {
	w.mu.Lock()
	audit, err := json.Marshal(w.records)
	w.mu.Unlock()
	if err != nil {
		w.t.Error(err)
	}
	places := map[string]string{"git's output": w.outputs.String(), "the log": w.log.String(), "the audit": string(audit)}
	err = filepath.WalkDir(w.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		const most = 8 << 20 // what the client made itself to be large
		if info, err := d.Info(); err != nil || info.Size() > most {
			return err
		}
		content, err := os.ReadFile(path)
		places[path] = string(content)
		return err
	})
	if err != nil {
		w.t.Error(err)
	}
	for _, tok := range tokens {
		for _, form := range []string{tok.Value, base64.StdEncoding.EncodeToString([]byte("x-access-token:" + tok.Value))} {
			for place, text := range places {
				if strings.Contains(text, form) {
					w.t.Errorf("a write token stands in %s", place)
				}
			}
		}
	}
}
