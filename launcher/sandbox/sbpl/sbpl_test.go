package sbpl

import (
	"errors"
	"strings"
	"testing"
)

func load(t *testing.T, rules string) *Profile {
	t.Helper()
	p, err := Load("(version 1)\n"+rules, map[string]string{"HOME": "/Users/me"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLoadIsAsStrictAsSandboxExec(t *testing.T) {
	for name, src := range map[string]string{
		"empty":                     "",
		"no version":                "(allow default)",
		"version 2":                 "(version 2)",
		"version later":             "(version 1) (version 1)",
		"unbalanced open":           "(version 1) (allow default",
		"unbalanced close":          "(version 1) (allow default))",
		"string without end":        `(version 1) (deny file-read* (literal "/a))`,
		"line feed in a string":     "(version 1) (deny file-read* (literal \"/a\nb\"))",
		"unknown escape":            `(version 1) (deny file-read* (literal "/a\n"))`,
		"unknown operation":         "(version 1) (allow file-reed*)",
		"operation missing":         "(version 1) (allow)",
		"unknown form":              "(version 1) (permit default)",
		"unknown filter":            `(version 1) (deny file-read* (glob "/a/*"))`,
		"unknown modifier":          "(version 1) (deny default (with colour))",
		"message without text":      "(version 1) (deny default (with message))",
		"relative path":             `(version 1) (deny file-read* (literal "etc/passwd"))`,
		"subpath with a slash":      `(version 1) (deny file-read* (subpath "/a/"))`,
		"regex with (?":             `(version 1) (deny file-read* (regex #"(?i)^/a"))`,
		"regex with (?:":            `(version 1) (deny file-read* (regex #"(?:a|b)"))`,
		"regex that does not parse": `(version 1) (deny file-read* (regex #"["))`,
		"regex without expression":  `(version 1) (deny file-read* (regex))`,
		"host by name":              `(version 1) (allow network-outbound (remote tcp "example.com:443"))`,
		"host by address":           `(version 1) (allow network-outbound (remote tcp "127.0.0.1:443"))`,
		"port 0":                    `(version 1) (allow network-outbound (remote tcp "localhost:0"))`,
		"port too large":            `(version 1) (allow network-outbound (remote tcp "localhost:65536"))`,
		"port with a zero":          `(version 1) (allow network-outbound (remote tcp "localhost:0443"))`,
		"unknown protocol":          `(version 1) (allow network-outbound (remote sctp "localhost:1"))`,
		"no port":                   `(version 1) (allow network-outbound (remote tcp "localhost"))`,
		"undefined parameter":       `(version 1) (deny file-read* (subpath (param "NOPE")))`,
		"require-not with two":      `(version 1) (deny file-read* (require-not (literal "/a") (literal "/b")))`,
		"require-all with none":     `(version 1) (deny file-read* (require-all))`,
		"unknown vnode type":        `(version 1) (deny file-read* (vnode-type FILE))`,
		"unknown target":            `(version 1) (allow signal (target everyone))`,
		"nesting bomb":              "(version 1) " + strings.Repeat("(", 10000),
		"control byte":              "(version 1) (allow\x01 default)",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(src, nil)
			if _, ok := errors.AsType[*ProfileError](err); !ok {
				t.Fatalf("got %v, want a *ProfileError", err)
			}
		})
	}
}

func TestDecide(t *testing.T) {
	const protect = `
(allow default)
(deny file-write*)
(allow file-write* (subpath "/w"))
(deny file-write* (subpath "/w/.git/hooks") (regex #"/\.[Ee][Nn][Vv]$"))
(deny file-write-unlink (literal "/w/.git") (literal "/w"))`
	for _, test := range []struct {
		name, rules string
		q           Request
		want        bool
	}{
		{"nothing says so", "", Request{Op: "file-read-data", Path: "/x"}, false},
		{"unrelated stays allowed", protect, Request{Op: "file-read-data", Path: "/x"}, true},
		{"writes reset to deny", protect, Request{Op: "file-write-data", Path: "/x"}, false},
		{"inside a root", protect, Request{Op: "file-write-create", Path: "/w/a"}, true},
		{"boundary of a subpath", protect, Request{Op: "file-write-create", Path: "/wx"}, false},
		{"mandatory deny", protect, Request{Op: "file-write-create", Path: "/w/.git/hooks/pre-commit"}, false},
		{"the directory itself", protect, Request{Op: "file-write-create", Path: "/w/.git/hooks"}, false},
		{"ancestor unlinked", protect, Request{Op: "file-write-unlink", Path: "/w/.git"}, false},
		{"ancestor written", protect, Request{Op: "file-write-mode", Path: "/w/.git"}, true},
		{"letter class", protect, Request{Op: "file-write-create", Path: "/w/a/.eNv"}, false},
		{"root subpath", `(allow file-read* (subpath "/"))`, Request{Op: "file-read-data", Path: "/x/y"}, true},
		{"prefix has no boundary", `(allow file-read* (prefix "/a"))`, Request{Op: "file-read-data", Path: "/ab"}, true},
		{"parameter", `(allow file-read* (subpath (string-append (param "HOME") "/x")))`, Request{Op: "file-read-data", Path: "/Users/me/x/y"}, true},
		{"require-not", `(allow file-read* (require-all (subpath "/a") (require-not (literal "/a/b"))))`, Request{Op: "file-read-data", Path: "/a/b"}, false},
		{"mach name", `(allow mach-lookup (global-name "com.apple.x"))`, Request{Op: "mach-lookup", Name: "com.apple.x"}, true},
		{"mach name is whole", `(allow mach-lookup (global-name "com.apple.x"))`, Request{Op: "mach-lookup", Name: "com.apple.xy"}, false},
		{"vnode type", `(allow file-read* (require-all (subpath "/") (vnode-type DIRECTORY)))`, Request{Op: "file-read-metadata", Path: "/d", Vnode: "DIRECTORY"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := load(t, test.rules).DecideAll(test.q)
			if err != nil || got != test.want {
				t.Fatalf("got %v, %v; want %v", got, err, test.want)
			}
		})
	}
}

// TestReadingsDiffer keeps the two disputed semantics apart: an unfiltered rule
// after a filtered one, and the case of a path filter.
func TestReadingsDiffer(t *testing.T) {
	for name, test := range map[string]struct {
		rules string
		q     Request
	}{
		"unfiltered after filtered": {`(deny file-write* (subpath "/w")) (allow file-write*)`, Request{Op: "file-write-data", Path: "/w/a"}},
		"case of a literal":         {`(allow default) (deny file-write* (literal "/w/.env"))`, Request{Op: "file-write-data", Path: "/w/.ENV"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := load(t, test.rules).DecideAll(test.q); err == nil {
				t.Fatalf("all readings agree on %v", got)
			}
		})
	}
}

func TestNearestFallback(t *testing.T) {
	p := load(t, "(allow default) (deny file-write*) (allow file*)")
	if ok, by := p.Decide(Request{Op: "file-write-data", Path: "/a"}, Strictest); ok || by.Line != 2 {
		t.Fatalf("got %v by line %d; the nearest unfiltered rule is the fallback", ok, by.Line)
	}
}

func TestNetwork(t *testing.T) {
	const ours = `(allow default) (deny network*) (allow network-outbound (remote tcp "localhost:3128"))`
	tcp := func(host string, port int) Endpoint { return Endpoint{Proto: "tcp", Host: host, Port: port} }
	udp := Endpoint{Proto: "udp", Host: "localhost", Port: 3128}
	v6 := Endpoint{Proto: "tcp", IPv6: true, Host: "localhost", Port: 3128}
	for _, test := range []struct {
		name, rules string
		to          Endpoint
		want        bool
	}{
		{"own proxy", ours, tcp("localhost", 3128), true},
		{"own proxy over v6", ours, v6, true},
		{"admin port", ours, tcp("localhost", 2019), false},
		{"another host", ours, tcp("192.0.2.1", 3128), false},
		{"udp", ours, udp, false},
		{"v4 only", `(deny network*) (allow network-outbound (remote tcp4 "localhost:3128"))`, v6, false},
		// The hole of a local filter: it matches every outbound socket.
		{"local ip opens all", `(deny network*) (allow network* (local ip))`, tcp("192.0.2.1", 443), true},
		{"local localhost opens all", `(deny network*) (allow network* (local ip "localhost:*"))`, tcp("192.0.2.1", 443), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := load(t, test.rules)
			for _, how := range Readings() {
				if got := (World{}).Connect(p, how, test.to); got != test.want {
					t.Errorf("read %s: got %v, want %v", how, got, test.want)
				}
			}
		})
	}
	p := load(t, ours)
	if (World{}).ConnectUnix(p, Strictest, "/var/run/docker.sock") {
		t.Error("an ip rule opened a Unix socket")
	}
	if (World{}).Listen(p, Strictest, tcp("localhost", 8080)) {
		t.Error("listen without network-inbound")
	}
	unix := load(t, `(deny network*) (allow network-outbound (remote unix-socket (path-literal "/s")))`)
	if !(World{}).ConnectUnix(unix, Strictest, "/s") || (World{}).ConnectUnix(unix, Strictest, "/t") {
		t.Error("path of a Unix socket is not told apart")
	}
	if (World{}).Connect(unix, Strictest, tcp("localhost", 1)) {
		t.Error("a Unix rule opened TCP")
	}
}

func TestWorld(t *testing.T) {
	w := World{
		Symlinks:  map[string]string{"/tmp": "/private/tmp", "/w/link": "../x", "/loop": "/loop"},
		Firmlinks: map[string]string{"/System/Volumes/Data/Users": "/Users"},
		Exists:    map[string]string{"/w/b": "REGULAR-FILE"},
	}
	for in, want := range map[string]string{
		"/tmp/a":                           "/private/tmp/a",
		"/tmp":                             "/private/tmp",
		"/tmp/../tmp/a":                    "/private/tmp/a",
		"/w/link/f":                        "/x/f",
		"//w///a/.":                        "/w/a",
		"/../..":                           "/",
		"/System/Volumes/Data/Users/me":    "/Users/me",
		"/System/Volumes/Data/UsersOfMine": "/System/Volumes/Data/UsersOfMine",
		"/loop":                            "/loop",
	} {
		if got := w.Resolve(in); got != want {
			t.Errorf("Resolve(%q) = %q, want %q", in, got, want)
		}
	}
	if got := w.ResolveParent("/w/link"); got != "/w/link" {
		t.Errorf("ResolveParent followed the last link: %q", got)
	}

	p := load(t, `(allow default) (deny file-write*) (allow file-write* (subpath "/w"))
		(deny file-write* (subpath "/w/deny")) (deny file-write-unlink (literal "/w")) (deny file-link (subpath "/w/deny"))
		(deny file-read* (subpath "/secret"))`)
	for _, test := range []struct {
		name string
		got  bool
		want bool
	}{
		{"rename inside", w.Rename(p, Strictest, "/w/a", "/w/c"), true},
		{"rename into a deny", w.Rename(p, Strictest, "/w/a", "/w/deny/c"), false},
		{"rename out of a deny", w.Rename(p, Strictest, "/w/deny", "/w/c"), false},
		{"rename of a root", w.Rename(p, Strictest, "/w", "/w2"), false},
		{"rename over", w.Rename(p, Strictest, "/w/a", "/w/b"), true},
		{"swap with a deny", w.Swap(p, Strictest, "/w/a", "/w/deny"), false},
		{"link of a deny", w.Link(p, Strictest, "/w/deny/a", "/w/a"), false},
		{"clone of a secret", w.Clone(p, Strictest, "/secret/k", "/w/k"), false},
		{"write through a link", w.Write(p, Strictest, "/w/link/f"), false},
		{"write new", w.Write(p, Strictest, "/w/new"), true},
		{"mkdir in a deny", w.Mkdir(p, Strictest, "/w/deny/d"), false},
		{"symlink", w.Symlink(p, Strictest, "/etc", "/w/l"), true},
		{"unlink", w.Unlink(p, Strictest, "/w/a"), true},
		{"chmod outside", w.Chmod(p, Strictest, "/x"), false},
		{"read a secret", w.Read(p, Strictest, "/secret"), false},
		{"exec", w.Exec(p, Strictest, "/w/tool", "/bin/sh"), true},
		{"mach", w.MachLookup(p, Strictest, "com.apple.dnssd.service"), true},
	} {
		if test.got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, test.got, test.want)
		}
	}
}

func TestWithout(t *testing.T) {
	p := load(t, `(allow default) (deny file-read* (literal "/a"))`)
	q := Request{Op: "file-read-data", Path: "/a"}
	if ok, _ := p.Decide(q, Strictest); ok {
		t.Fatal("not denied")
	}
	if ok, _ := p.Without(1).Decide(q, Strictest); !ok {
		t.Fatal("still denied without the rule")
	}
	if len(p.Rules) != 2 {
		t.Fatal("the profile itself was changed")
	}
}

func FuzzLoad(f *testing.F) {
	for _, s := range []string{
		"(version 1)\n(allow default)", `(version 1)(deny file-write* (regex #"^/a\"b$"))`,
		`(version 1)(allow network-outbound (remote tcp "localhost:1"))`, "(version 1)\n; c\n(deny signal (target self) (with no-report))",
		`(version 1)(allow file-read* (require-any (literal "/a") (subpath "/b")))`, "((((", `"`, `#"`, "(version 1)(allow default)\x00",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		p, err := Load(src, nil)
		if err != nil {
			if _, ok := errors.AsType[*ProfileError](err); !ok {
				t.Fatalf("error is %T: %v", err, err)
			}
			return
		}
		for op := range parents {
			if strings.HasSuffix(op, "*") {
				continue
			}
			p.Decide(Request{Op: op, Path: "/a/b", Name: "n"}, Strictest)
		}
	})
}
