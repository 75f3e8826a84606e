package mint_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"postern/gitgw"
	"postern/gitgw/mint"
)

// An API that says the credential it was given, in whatever answer, is not quoted.
func TestAPIThatTells(t *testing.T) {
	for _, status := range []int{301, 400, 401, 403, 404, 409, 422, 429, 500, 503} {
		for _, at := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			t.Run(fmt.Sprint(at, " ", status), func(t *testing.T) {
				var mu sync.Mutex
				given := map[string]bool{}
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					header := r.Header.Get("Authorization")
					credential := strings.TrimPrefix(header, "Bearer ")
					mu.Lock()
					given[credential] = true
					mu.Unlock()
					switch r.Method {
					case at:
						w.Header().Set("Content-Type", "application/json")
						w.Header().Set("Location", "http://"+r.Host+"/"+credential)
						w.WriteHeader(status)
						_ = json.NewEncoder(w).Encode(map[string]any{"message": "no " + credential + " in " + header, "errors": []map[string]string{{"resource": credential, "message": header}}})
					case http.MethodPost:
						w.WriteHeader(http.StatusCreated)
						// It opens what was not asked for, so it is revoked at once.
						_, _ = w.Write([]byte(`{"token":"an-opaque-token-of-no-shape","repositories":[{"id":8,"full_name":"acme/an-opaque-token-of-no-shape"}],"permissions":{"contents":"write"}}`))
					default:
						_ = json.NewEncoder(w).Encode(map[string]int{"id": 1})
					}
				}))
				defer server.Close()
				_, err := strangeApp(t, server.URL).Mint(t.Context(), repo(t, "github.com/acme/app"), gitgw.Write)
				var told *gitgw.MintError
				if !errors.As(err, &told) {
					t.Fatalf("%v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				given["an-opaque-token-of-no-shape"] = true
				for credential := range given {
					if all := fmt.Sprintf("%s|%s|%v|%+v|%#v", told.Reason, err, err, err, told.Err); strings.Contains(all, credential) || strings.Contains(all, credential[10:]) {
						t.Errorf("%s", all)
					}
				}
			})
		}
	}
}

// A program that says the token as it fails is not quoted.
func TestCommandThatTells(t *testing.T) {
	c := &mint.Command{Argv: []string{"/bin/sh", "-c", "tee /dev/stderr >/dev/null; exit 1"}}
	for _, value := range []string{"an-opaque/token+of.no-shape==", "glpat-0123456789abcdefghij"} {
		err := c.Revoke(t.Context(), gitgw.NewToken(value, time.Time{}))
		if err == nil || !strings.Contains(err.Error(), "[redacted]") || strings.Contains(err.Error(), value[6:]) {
			t.Errorf("%v", err)
		}
	}
}
