package egress

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/proxy"
	"postern/dnsguard"
)

// TestResolverTellsRefusalsFromFailures holds the difference between 403 and 502.
func TestResolverTellsRefusalsFromFailures(t *testing.T) {
	g, err := dnsguard.New(dnsguard.Config{Upstreams: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	r := resolver{g.Resolve}
	for _, name := range []string{"host.docker.internal", "localhost.localdomain", "nas.local", "dns.google"} {
		_, err := r.Resolve(t.Context(), name)
		var denied *proxy.Denied
		if !errors.As(err, &denied) || denied.Decision.Code != policy.NameRefused || denied.Decision.Reason() == "" {
			t.Errorf("%s: %v, want a refusal with the code %s", name, err, policy.NameRefused)
		}
	}
	_, err = r.Resolve(t.Context(), "a.example")
	var denied *proxy.Denied
	if err == nil || errors.As(err, &denied) {
		t.Errorf("nobody answers: %v, want a failure that is no refusal", err)
	}
}

func TestResolverGivesRefusedAddressesOn(t *testing.T) {
	private := netip.MustParseAddr("10.0.0.5")
	r := resolver{func(context.Context, string) ([]netip.Addr, error) {
		return nil, &dnsguard.RefusedError{Name: "a.example", Addrs: []netip.Addr{private}}
	}}
	got, err := r.Resolve(t.Context(), "a.example")
	if err != nil || len(got) != 1 || got[0] != private {
		t.Fatalf("got %v, %v; the gate must see what was refused", got, err)
	}
}
