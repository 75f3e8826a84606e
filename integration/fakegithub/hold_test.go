package fakegithub

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A request that is held is not done, and ends with its client.
func TestHold(t *testing.T) {
	s, _ := start(t, Options{})
	value, err := s.IssueToken(map[string]string{"contents": "write"}, "acme/app")
	if err != nil {
		t.Fatal(err)
	}
	s.SetFaults(Faults{HoldAdvert: true, HoldPush: true, HoldRevoke: true})
	for _, c := range []struct{ method, url string }{
		{http.MethodGet, s.RepoURL("acme/app") + "/info/refs?service=git-receive-pack"},
		{http.MethodPost, s.RepoURL("acme/app") + "/git-receive-pack"},
		{http.MethodDelete, s.APIURL() + "installation/token"},
	} {
		s.ForgetRequests()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		req, err := http.NewRequestWithContext(ctx, c.method, c.url, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+value)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			t.Errorf("%s: answered %d", c.method, resp.StatusCode)
		}
		cancel()
		for end := time.Now().Add(20 * time.Second); !s.Requests()[0].Done; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: held after its client has gone", c.method)
			}
		}
	}
	if tok, _ := s.Token(value); tok.Revoked() {
		t.Error("a request that was held was done")
	}
}
