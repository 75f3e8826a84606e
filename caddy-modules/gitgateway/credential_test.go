package gitgateway_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// ask asks the gateway's site as a run does: through a session's proxy.
func ask(t *testing.T, proxy, method, query string, header ...string) (*http.Response, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: proxy}),
	}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://git.internal"+lease.ReadTokenPath+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// A run is given its own read token, renewed before it expires, and no other.
func TestReadTokenForTheRun(t *testing.T) {
	g := newGatewayTest(t, `"repos": [{"name": "github.com/acme/*", "rules": [{"verdict": "push", "refs": ["**"]}]}]`)
	proxy := g.session.Session.HTTP
	resp, body := ask(t, proxy, http.MethodGet, "?host=github.com")
	got, err := lease.DecodeReadToken(strings.NewReader(body))
	if err != nil || resp.StatusCode != http.StatusOK || got.Token != g.session.ReadToken || time.Until(got.Expires) < 50*time.Minute {
		t.Fatalf("%d, is it the session's: %v, until %s: %v", resp.StatusCode, got.Token == g.session.ReadToken, got.Expires, err)
	}
	if resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("header %v", resp.Header)
	}
	for _, c := range []struct {
		method, query string
		header        []string
		want          int
	}{
		{http.MethodPost, "?host=github.com", nil, http.StatusMethodNotAllowed},
		{http.MethodGet, "", nil, http.StatusBadRequest},
		{http.MethodGet, "?host=github.com&host=evil.example", nil, http.StatusBadRequest},
		{http.MethodGet, "?host=github.com&session=other", nil, http.StatusBadRequest},
		{http.MethodGet, "?host=evil.example", nil, http.StatusNotFound},
		{http.MethodGet, "?host=github.com:443", nil, http.StatusNotFound},
		{http.MethodGet, "/?host=github.com", nil, http.StatusNotFound},
		{http.MethodGet, "?host=github.com", []string{"Origin", "http://evil.example"}, http.StatusForbidden},
		{http.MethodGet, "?host=github.com", []string{"Sec-Fetch-Mode", "no-cors"}, http.StatusForbidden},
	} {
		resp, body := ask(t, proxy, c.method, c.query, c.header...)
		if resp.StatusCode != c.want || strings.Contains(body, "ghs_") || body == "" {
			t.Errorf("%s %s %v: %d %s, want %d", c.method, c.query, c.header, resp.StatusCode, body, c.want)
		}
	}

	// A session whose token lives for four seconds, and one without a repository.
	g.forge.Advance(-time.Hour + 4*time.Second)
	short := g.open(t, `{"id": "short", "repository": "github.com/acme/linked", "listen": {"network": "tcp"}}`)
	g.forge.Advance(time.Hour - 4*time.Second)
	none := g.open(t, `{"id": "none", "listen": {"network": "tcp"}}`)
	if resp, _ := ask(t, none.Session.HTTP, http.MethodGet, "?host=github.com"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a session without a repository: %d", resp.StatusCode)
	}
	got = lease.ReadToken{Token: short.ReadToken}
	for end := time.Now().Add(20 * time.Second); got.Token == short.ReadToken && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		_, body = ask(t, short.Session.HTTP, http.MethodGet, "?host=github.com")
		got, err = lease.DecodeReadToken(strings.NewReader(body))
	}
	if err != nil || got.Token == short.ReadToken || time.Until(got.Expires) < 50*time.Minute {
		t.Fatalf("not renewed: until %s, %v", got.Expires, err)
	}
	made, _ := g.forge.Token(got.Token)
	if made.CanWrite() || len(made.Repositories) != 1 || made.Repositories[0] != "acme/linked" {
		t.Errorf("the new token opens %v with %v", made.Repositories, made.Permissions)
	}
	if _, again := ask(t, short.Session.HTTP, http.MethodGet, "?host=github.com"); again != body {
		t.Error("renewed twice")
	}

	g.control(t, http.MethodDelete, "/v1/sessions/short", "")
	for _, id := range []string{"push", "none"} {
		g.control(t, http.MethodDelete, "/v1/sessions/"+id, "")
	}
	for _, token := range g.forge.Tokens() {
		if !token.Revoked() && time.Now().Before(token.Expires) {
			t.Errorf("a token for %v with %v outlives its session", token.Repositories, token.Permissions)
		}
	}
}

func (g *gatewayTest) open(t *testing.T, spec string) lease.Answer {
	t.Helper()
	id := strings.Split(spec, `"`)[3]
	status, body := g.control(t, http.MethodPut, "/v1/sessions/"+id, spec)
	if status != http.StatusCreated {
		t.Fatalf("open a session: %d %s", status, body)
	}
	var answer lease.Answer
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}
