package egress_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"postern/caddy-modules/session/lease"
)

// An end over the admin endpoint is as final as one over the control socket, for a
// launcher that is there and for one that is on its way back.
func TestAdminEndIsFinal(t *testing.T) {
	r := start(t, `{}`, "")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var pair lease.Pair
	for _, ln := range []**net.TCPListener{&pair.HTTP, &pair.SOCKS} {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		*ln = l
	}
	lend := func(h lease.Hello) (*lease.Lease, error) {
		return lease.Lend(ctx, filepath.Join(r.run, "lease.sock"), h, pair)
	}
	l, err := lend(lease.Hello{Spec: lease.Spec{ID: "there"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for id, want := range map[string]int{"there": http.StatusNoContent, "away": http.StatusNotFound} {
		if status, body := r.ask(t, "admin.sock", http.MethodDelete, "/egress/sessions/"+id, ""); status != want {
			t.Errorf("end %s: %d %s", id, status, body)
		}
		_, err := lend(lease.Hello{Spec: lease.Spec{ID: id}, Resume: &lease.Resume{Born: "before"}})
		if refused, ok := errors.AsType[*lease.RefusedError](err); !ok || refused.Code != lease.CodeEnded {
			t.Errorf("resume %s: %v", id, err)
		}
	}
	if end := l.End(); end != lease.EndRequested {
		t.Errorf("the launcher is told %q", end)
	}
}
