package ports

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"postern/launcher/sandbox"
)

func TestParsePublish(t *testing.T) {
	addr := netip.MustParseAddr
	for text, want := range map[string]Publish{
		"3000":                       {Host: 3000, Inside: 3000},
		"8080:80":                    {Host: 8080, Inside: 80},
		"65535:1":                    {Host: 65535, Inside: 1},
		"127.0.0.1:8080:80":          {Addr: addr("127.0.0.1"), Host: 8080, Inside: 80},
		"0.0.0.0:8080:80":            {Addr: addr("0.0.0.0"), Host: 8080, Inside: 80},
		"[::1]:8080:80":              {Addr: addr("::1"), Host: 8080, Inside: 80},
		"[fd00::5]:8080:80":          {Addr: addr("fd00::5"), Host: 8080, Inside: 80},
		"":                           {},
		"0":                          {},
		"0:80":                       {},
		"80:":                        {},
		":80":                        {},
		"::80":                       {},
		"65536":                      {},
		"-1":                         {},
		"+1":                         {},
		"080":                        {},
		"http":                       {},
		"3000/tcp":                   {},
		"3000\t":                     {},
		"localhost:8080:80":          {},
		"127.0.0.1:80":               {},
		"1:2:3":                      {},
		"::1:8080:80":                {},
		"[::1]80:80":                 {},
		"127.0.0.1:8080:80:90":       {},
		"8080:80\n":                  {},
		"127.0.0.1:" + "8080:00":     {},
		strings.Repeat("9", 4000):    {},
		strings.Repeat(":", 4000):    {},
		"[" + strings.Repeat(":", 9): {},
	} {
		got, err := ParsePublish(text)
		if want.Inside == 0 && (err == nil || !strings.HasPrefix(err.Error(), "publish ")) {
			t.Errorf("%q: got %+v, %v; want an error", text, got, err)
		}
		if got != want || want.Inside != 0 && err != nil {
			t.Errorf("%q: got %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestParseGrant(t *testing.T) {
	for text, want := range map[string]Grant{
		"5432":       {Inside: 5432, Host: 5432},
		"5432:15432": {Inside: 5432, Host: 15432},
		"":           {}, "0": {}, ":1": {}, "1:": {}, "1:2:3": {}, "db": {}, "127.0.0.1:5432": {}, "05432": {},
	} {
		got, err := ParseGrant(text)
		if got != want || (err == nil) != (want.Host != 0) {
			t.Errorf("%q: got %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// What stands in its own way is found before anything runs.
func TestParseSet(t *testing.T) {
	for _, tc := range []struct {
		name            string
		publish, grants []string
		reason          sandbox.Reason
		say             string
	}{
		{"nothing", nil, nil, "", ""},
		{"one each", []string{"3000"}, []string{"5432"}, "", ""},
		{"one port inside under two of the host", []string{"3000", "3001:3000"}, nil, "", ""},
		{"one port of the host at two addresses", []string{"127.0.0.2:80:80", "127.0.0.3:80:80"}, nil, "", ""},
		{"both families by name", []string{"127.0.0.1:80:80", "[::1]:80:80"}, nil, "", ""},
		{"one port of the host under two inside", nil, []string{"1:5432", "2:5432"}, "", ""},
		{"the HTTP proxy published", []string{"3128"}, nil, sandbox.ReasonPortReserved, "3128"},
		{"the SOCKS proxy published", []string{"9000:1080"}, nil, sandbox.ReasonPortReserved, "1080"},
		{"the HTTP proxy covered", nil, []string{"3128:5432"}, sandbox.ReasonPortReserved, "--host-port OTHER:5432"},
		{"a proxy's number on the host", []string{"3128:80"}, []string{"80:1080"}, "", "circles"},
		{"the host's own proxy of that number", nil, []string{"8888:3128"}, "", ""},
		{"both ways at once", []string{"3000"}, []string{"3000"}, "", "circles"},
		{"published twice", []string{"3000:1", "3000:2"}, nil, "", "twice"},
		{"published twice, once everywhere", []string{"3000:1", "0.0.0.0:3000:2"}, nil, "", "twice"},
		{"published twice, once at loopback", []string{"127.0.0.1:3000:1", "3000:2"}, nil, "", "twice"},
		{"opened twice", nil, []string{"1:2", "1:3"}, "", "twice"},
		{"nonsense of both kinds", []string{"x"}, []string{"y"}, "", `publish "x"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse(tc.publish, tc.grants)
			refused, _ := errors.AsType[*sandbox.Refusal](err)
			switch {
			case tc.reason == "" && tc.say == "":
				if err != nil {
					t.Error(err)
				}
			case err == nil || !strings.Contains(err.Error(), tc.say):
				t.Errorf("got %v, want %q", err, tc.say)
			case tc.reason != "" && (refused == nil || refused.Reason != tc.reason):
				t.Errorf("got %v, want %s", err, tc.reason)
			}
		})
	}
}

func TestHostPorts(t *testing.T) {
	s, err := Parse([]string{"3000"}, []string{"1:5432", "2:80", "3:5432"})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.HostPorts(); !reflect.DeepEqual(got, []uint16{80, 5432}) {
		t.Errorf("got %v", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"3000", "8080:80", "[::1]:8080:80", "127.0.0.1:1:1", "[fe80::1%eth0]:1:1", "[]:1:1", "[:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ParsePublish(text); err == nil && (p.Host == 0 || p.Inside == 0) {
			t.Errorf("%q: %+v", text, p)
		}
		if g, err := ParseGrant(text); err == nil && (g.Host == 0 || g.Inside == 0) {
			t.Errorf("%q: %+v", text, g)
		}
	})
}
