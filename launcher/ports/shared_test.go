package ports

import (
	"fmt"
	"testing"
)

// TestSharedLoopback: what has one number on both sides is not led, what has two, or is
// for other addresses, is.
func TestSharedLoopback(t *testing.T) {
	set, err := Parse([]string{"3000", "8080:80", "127.0.0.1:4000:4000", "192.0.2.1:5000:5000"}, []string{"5432", "6000:6001"})
	if err != nil {
		t.Fatal(err)
	}
	apart := set.Apart()
	if got := fmt.Sprint(len(apart.Publish), apart.Publish[0].Host, apart.Publish[1].Host, len(apart.Grants), apart.Grants[0].Inside); got != "2 8080 5000 1 6000" {
		t.Errorf("led: %s", got)
	}
	reach, serve := set.Inside()
	if fmt.Sprint(reach, serve) != "[5432 6000] [80 3000 4000 5000]" {
		t.Errorf("reach %v, serve %v", reach, serve)
	}
}
