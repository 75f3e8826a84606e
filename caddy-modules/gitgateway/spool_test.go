package gitgateway

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

func TestSpoolOption(t *testing.T) {
	read := func(lines string) (*Handler, error) {
		h := new(Handler)
		return h, h.UnmarshalCaddyfile(caddyfile.NewTestDispenser("git_gateway {\n" + lines + "\n}\n"))
	}
	h, err := read("spool /srv/spool {\ntotal 4GiB\nrun 500MB\n}")
	if err != nil || *h.Spool != (Spool{Dir: "/srv/spool", Total: 4 << 30, Run: 500e6}) {
		t.Errorf("%+v %v", h.Spool, err)
	}
	if h, err = read("spool /srv/spool"); err != nil || *h.Spool != (Spool{Dir: "/srv/spool"}) {
		t.Errorf("%+v %v", h.Spool, err)
	}
	for lines, want := range map[string]string{
		"spool":                             "want spool DIR",
		"spool /a /b":                       "want spool DIR",
		"spool a":                           "name an absolute path",
		"spool /a\nspool /b":                "given twice",
		"spool /a {\ntotal much\n}":         "want a size",
		"spool /a {\ntotal 0KB\n}":          "want a size",
		"spool /a {\ntotal 5\n}":            "with its unit",
		"spool /a {\ntotal 1GB 2GB\n}":      "want total SIZE",
		"spool /a {\ntotal 1GB\ntotal 1\n}": "given twice",
		"spool /a {\nroom 1GB\n}":           "want run or total",
	} {
		if _, err := read(lines); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", lines, err, want)
		}
	}
	dir := t.TempDir()
	private := filepath.Join(dir, "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]Spool{
		"":                      {Dir: private, Total: 2, Run: 1},
		"mkdir -m 700 ":         {Dir: filepath.Join(dir, "none")},
		"smaller than total":    {Dir: private, Total: 1, Run: 2},
		"is negative":           {Total: -1},
		"name an absolute path": {Dir: "private"},
	} {
		if err := s.check(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
}

// Objects of Git LFS go where the policy lets a name go without a rule.
func TestVet(t *testing.T) {
	for text, public := range map[string]bool{
		"140.82.121.4": true, "2606:50c0:8000::1": true,
		"127.0.0.1": false, "::1": false, "10.0.0.1": false, "169.254.169.254": false, "100.64.0.1": false, "0.0.0.0": false,
		"::ffff:10.0.0.1": false, "64:ff9b::a00:1": false, "2002:7f00:1::": false, "fd00:ec2::254": false, "fe80::1": false,
	} {
		if err := vet(netip.MustParseAddr(text)); (err == nil) != public {
			t.Errorf("%s: %v", text, err)
		}
	}
}
