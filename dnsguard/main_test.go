package dnsguard

import (
	"net/netip"
	"testing"

	"go.uber.org/goleak"
)

// testNets count as public in tests: documentation addresses stand for the
// internet's.
var testNets = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32")}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
