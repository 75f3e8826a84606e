package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"postern/caddy-modules/session/lease"
)

// Inside a run git asks the appliance for the token, and takes the one of the
// environment only where that says nothing. The token is in no argument.
func TestCredentialInside(t *testing.T) {
	w := newWorld(t)
	a := newAppliance(t, w.runs)
	const renewed = "ghs_a-renewed-token-that-nobody-may-see"
	var status atomic.Int64
	a.will(nil, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.String() != "http://git.internal"+lease.ReadTokenPath+"?host=github.com" {
			rw.WriteHeader(http.StatusTeapot)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(int(status.Load()))
		fmt.Fprintf(rw, `{"token":%q,"expires":"2040-01-01T00:00:00Z"}`, renewed)
	})
	const fill = "printf 'protocol=https\\nhost=github.com\\n\\n' | git credential fill 2>&1 | grep -v protocol"
	for _, tc := range []struct {
		name, script string
		status       int64
		want         string
	}{
		{"renewed", fill, 200, "host=github.com\nusername=x-access-token\npassword=" + renewed},
		{"the environment keeps the first", "echo $GH_TOKEN $GITHUB_TOKEN", 200, readToken + " " + readToken + "\n"},
		{"the appliance says nothing", fill, 404, "host=github.com\nusername=x-access-token\npassword=" + readToken + "\n"},
		{"the appliance fails", fill, 500, "postern: ask for the read token: the appliance answered 500: {"},
		{"in no argument", "git config --show-origin --get-all credential.https://github.com.helper | cut -f2", 200, "\n/run/postern/postern credential http://git.internal/\n!f() { test"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status.Store(tc.status)
			if got := w.script(tc.script); !strings.HasPrefix(got.stdout, tc.want) {
				t.Errorf("got %+v, want %q", got, tc.want)
			}
		})
	}
}
