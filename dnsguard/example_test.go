package dnsguard_test

import (
	"context"
	"errors"
	"fmt"

	"postern/caddy-modules/policy"
	"postern/dnsguard"
)

// A session's guard refuses a name before anything is sent.
func ExampleGuard_Session() {
	rule, err := policy.ParseRule("api.example.com", policy.Origin{File: "example.list", Line: 1})
	if err != nil {
		panic(err)
	}
	set, err := policy.Compile(policy.Lists{Allow: []policy.Rule{rule}}, nil)
	if err != nil {
		panic(err)
	}
	guard, err := dnsguard.New(dnsguard.Config{Upstreams: []string{"tls://9.9.9.9#dns.quad9.net"}})
	if err != nil {
		panic(err)
	}
	defer guard.Close()
	session := guard.Session("run-1", func() *policy.Set { return set })
	defer session.Close()

	_, err = session.Resolve(context.Background(), "c2VjcmV0.evil.example")
	if refused, ok := errors.AsType[*dnsguard.RefusedError](err); ok {
		fmt.Println(refused.Name, refused.Reason)
	}
	// Output: c2vjcmv0.evil.example not_allowed
}
