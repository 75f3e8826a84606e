package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A rule is one that no session may bring where the appliance says so of the rule, and
// not where anything else goes wrong.
func TestBrings(t *testing.T) {
	for _, c := range []struct {
		name           string
		status         int
		body           string
		brings, failed bool
	}{
		{"taken", 201, "{}", true, false},
		{"a bad rule", 422, `{"code": "bad_rule", "message": "egressAllowlist[0]: no"}`, false, false},
		{"an unknown policy", 422, `{"code": "unknown_policy", "message": "base"}`, false, true},
		{"an id in use", 409, `{"code": "in_use", "message": "trial"}`, false, true},
		{"closing", 503, `{"code": "closing", "message": "bad_rule"}`, false, true},
		{"no word", 422, "bad_rule", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPut {
					w.WriteHeader(c.status)
					_, _ = w.Write([]byte(c.body))
					return
				}
				_, _ = w.Write([]byte("{}"))
			}))
			defer server.Close()
			a := &appliance{control: toServer(server)}
			brings, err := a.brings("a.example")
			if brings != c.brings || (err != nil) != c.failed {
				t.Errorf("%t, %v", brings, err)
			}
			server.Close()
			if brings, err := a.brings("a.example"); brings || err == nil {
				t.Errorf("without an appliance: %t, %v", brings, err)
			}
		})
	}
}

// toServer is a client all of whose requests go to the server.
func toServer(server *httptest.Server) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}}}
}
