package gitgateway

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"postern/gitgw"
	"postern/gitgw/approve"
)

// TestQuestions asks and answers over the handler. Who holds the stream open is
// the listener: with him the queue is connected, without him it is not.
func TestQuestions(t *testing.T) {
	for name, c := range map[string]struct{ path, accept string }{
		"events": {"/v1/approvals/events", ""},
		"accept": {"/v1/approvals", "application/x-ndjson"},
		"either": {"/v1/approvals", "application/json;q=0.1, application/x-ndjson; q=1"},
		"query":  {"/v1/approvals?stream", ""},
	} {
		t.Run(name, func(t *testing.T) { testQuestions(t, c.path, c.accept) })
	}
}

func testQuestions(t *testing.T, path, accept string) {
	t.Helper()
	q := approve.NewQueue(0, 0)
	srv := httptest.NewServer(questionsHandler(q))
	defer srv.Close()
	if q.Connected() {
		t.Error("connected before anybody came")
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	stream, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	eventually(t, "the listener counts", q.Connected)

	answered := make(chan gitgw.Answer, 1)
	go func() {
		a, err := q.Ask(t.Context(), gitgw.Question{ID: "q1", Session: "s"})
		if err != nil {
			a.Reason = err.Error()
		}
		answered <- a
	}()
	line, err := bufio.NewReader(stream.Body).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var e approve.Event
	if err := json.Unmarshal([]byte(line), &e); err != nil || e.Type != "asked" || e.ID != "q1" || e.Question.Session != "s" {
		t.Fatalf("%q, %v", line, err)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/approvals", "", 200, `"id":"q1"`},
		{"POST", "/v1/approvals/q1", `{"allowd": true}`, 400, "allowd"},
		{"POST", "/v1/approvals/q1", `{}`, 400, "allowed"},
		{"POST", "/v1/approvals/q1", `{"allowed": false, "allowed": true}`, 400, "twice"},
		{"POST", "/v1/approvals/q1", `{"allowed": false, "Allowed": true}`, 400, "Allowed"},
		{"POST", "/v1/approvals/q1", `{"allowed": true} {"allowed": false}`, 400, "more than one"},
		{"POST", "/v1/approvals/q1", `{"allowed": null}`, 400, "allowed"},
		{"POST", "/v1/approvals/q2", `{"allowed": true}`, 404, "q2"},
		{"PUT", "/v1/approvals/q1", `{"allowed": true}`, 405, ""},
		{"POST", "/v1/approvals/q1", `{"allowed": true, "scope": "always"}`, 400, "always"},
		{"POST", "/v1/approvals/q1", `{"allowed": true, "scope": "Once"}`, 400, "Once"},
		{"POST", "/v1/approvals/q1", `{"allowed": true, "by": "bo", "reason": "fine", "scope": "once"}`, 204, ""},
		{"POST", "/v1/approvals/q1", `{"allowed": false}`, 404, "q1"},
		{"GET", "/v1/approvals", "", 200, `{"approvals":[]}`},
	} {
		if status, body := do(t, srv, c.method, c.path, c.body); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, status, body)
		}
	}
	if a := <-answered; !a.Allowed || a.By != "bo" {
		t.Errorf("answer: %+v", a)
	}
	leave()
	eventually(t, "the listener is gone", func() bool { return !q.Connected() })
}

func do(t *testing.T, srv *httptest.Server, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after 10 s: %s", what)
		}
	}
}
