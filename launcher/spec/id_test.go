package spec_test

import (
	"strings"
	"testing"

	"postern/caddy-modules/session/lease"
	"postern/launcher/spec"
)

// One rule for ids, written twice: the package imports nothing of ours.
func TestIDsAreTheLeases(t *testing.T) {
	for _, id := range []string{"", "a", "A-z_0", "a.b", "a/b", "..", "é", "a b", "a\x00", strings.Repeat("a", 64), strings.Repeat("a", 65)} {
		if ours, theirs := spec.ValidateID(id), lease.ValidateID(id); (ours == nil) != (theirs == nil) {
			t.Errorf("%q: %v here, %v there", id, ours, theirs)
		}
	}
}
