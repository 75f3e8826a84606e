package local_test

import (
	"strings"
	"testing"

	"postern/gitgw/local"
)

// An address that could not be asked, or that is not this host's, is refused before
// anybody asks; what it may hold of a password is not told.
func TestNew(t *testing.T) {
	for address, want := range map[string]string{
		"unix//run/h.sock":                     "",
		"unix//run/a b.sock":                   "",
		"http://127.0.0.1:1/x":                 "",
		"http://127.0.0.1:65535/x":             "",
		"http://127.0.0.1/x":                   "",
		"http://[::1]:7000/x":                  "",
		"http://127.0.0.1:99999/x":             `"99999" is no port`,
		"http://127.0.0.1:65536/x":             "1 to 65535",
		"http://127.0.0.1:0/x":                 "1 to 65535",
		"http://127.0.0.1:/x":                  "1 to 65535",
		"http://127.0.0.1:080/x":               "1 to 65535",
		"http://localhost:123456789012345/":    "1 to 65535",
		"http://[::1]:0/":                      "1 to 65535",
		"http://127.0.0.1:http/x":              "want unix//PATH or http://127.0.0.1:PORT/PATH",
		"http://127.0.0.1:-1/x":                "want unix//PATH",
		"http://user:pw@127.0.0.1:x/":          "want unix//PATH",
		"http://user:pw@127.0.0.1:1/":          "want unix//PATH",
		"http://[fe80::1%25lo]:80/":            "want unix//PATH",
		"http:127.0.0.1:80/x":                  "want unix//PATH",
		"http:///x":                            "want unix//PATH",
		"HTTPS://127.0.0.1:1/":                 "want unix//PATH",
		"http://0.0.0.0:80/":                   "want unix//PATH",
		"http://host.internal:80/":             "want unix//PATH",
		"127.0.0.1:80":                         "want unix//PATH",
		"/run/h.sock":                          "want unix//PATH",
		"unix:///run/h.sock":                   "want unix//PATH",
		"unix/run/h.sock":                      "an absolute path",
		"unix//":                               "an absolute path",
		"unix//run/":                           "names a folder",
		"unix//run/h.sock|0600":                "permissions",
		"unix//" + strings.Repeat("long/", 21): "folder",
		"unix//" + strings.Repeat("l", 104):    "at most 103",
	} {
		c, err := local.New("approver", address)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "approver") || strings.Contains(err.Error(), "pw")) {
			t.Errorf("%q: %v, want %q", address, err, want)
		}
		if c != nil {
			_ = c.Close()
		}
	}
}
