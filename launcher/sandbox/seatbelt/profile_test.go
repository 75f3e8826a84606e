package seatbelt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"postern/launcher/sandbox/sbpl"
)

// mac is a home as a developer has it: a dispatch with its worktree, a checkout
// that must not change, a managed state directory.
func mac() *Policy {
	links := map[string]string{
		"/tmp": "/private/tmp", "/var/folders": "/private/var/folders", "/Users/me/.gnupg": "/Users/me/vault/gnupg",
	}
	exists := map[string]bool{"/Users/me": true, "/": true, "/Users/me/jobs": true, "/usr/bin": true, "/usr/bin/sudo": true}
	return &Policy{
		Writable:   []string{"/Users/me", "/tmp", "/var/folders", "/Users/me/jobs/tree", "/Volumes/Space"},
		ReadOnly:   []string{"/Users/me/jobs"},
		Devices:    []string{"/dev/null"},
		Protected:  []string{"/Users/me/src/checkout", "/Users/me/.claude/settings.json", "/Volumes/Space/original"},
		Hidden:     []string{"/Users/me/.ssh", "/Users/me/.gnupg"},
		Names:      []string{".git/hooks", ".git/modules/**/config", ".npmrc", "é.pem"},
		Secrets:    []string{"**/.env", "**/.env.*", "**/*.key"},
		NamesFree:  []string{"node_modules"},
		ExecGrants: []string{"/Users/me/jobs/tree/bin"},
		Tools:      []string{"/Users/me/.nvm/node"},
		Dangerous:  []string{"/usr/bin/sudo", "/Users/me/jobs/tree/bin/dd"},
		Network:    true,
		Ports:      []int{3128, 1080},
		Serve:      []int{3000},
		Tag:        "postern-s1",
		Resolve: func(p string) (string, error) {
			for from, to := range links {
				if rest, ok := strings.CutPrefix(p, from); ok && rest == "" {
					return to, nil
				}
			}
			if exists[p] || strings.HasPrefix(p, "/private/") {
				return p, nil
			}
			return "", errors.New("no such file")
		},
	}
}

var world = sbpl.World{
	Symlinks:  map[string]string{"/tmp": "/private/tmp", "/var": "/private/var", "/Users/me/.gnupg": "/Users/me/vault/gnupg", "/Users/me/jobs/tree/l": "/Users/me/.ssh"},
	Firmlinks: map[string]string{"/System/Volumes/Data/Users": "/Users", "/System/Volumes/Data/private": "/private"},
	Exists:    map[string]string{"/Users/me/.zshrc": "REGULAR-FILE"},
}

type (
	decision struct {
		name string
		ask  func(p *sbpl.Profile, how sbpl.Reading) bool
		want bool
	}
)

func write(path string, want bool) decision {
	return decision{"write " + path, func(p *sbpl.Profile, how sbpl.Reading) bool { return world.Write(p, how, path) }, want}
}

func read(path string, want bool) decision {
	return decision{"read " + path, func(p *sbpl.Profile, how sbpl.Reading) bool { return world.Read(p, how, path) }, want}
}

func rename(from, to string, want bool) decision {
	return decision{"rename " + from + " " + to, func(p *sbpl.Profile, how sbpl.Reading) bool { return world.Rename(p, how, from, to) }, want}
}

func link(from, to string, want bool) decision {
	return decision{"link " + from + " " + to, func(p *sbpl.Profile, how sbpl.Reading) bool { return world.Link(p, how, from, to) }, want}
}

func exec(path string, want bool) decision {
	return decision{"exec " + path, func(p *sbpl.Profile, how sbpl.Reading) bool { return world.Exec(p, how, path, "") }, want}
}

func op(q sbpl.Request, want bool) decision {
	return decision{fmt.Sprintf("%s %s%s%s", q.Op, q.Path, q.Name, q.Target), func(p *sbpl.Profile, how sbpl.Reading) bool {
		ok, _ := p.Decide(q, how)
		return ok
	}, want}
}

func tcp(host string, port int, want bool) decision {
	return decision{fmt.Sprintf("connect %s:%d", host, port), func(p *sbpl.Profile, how sbpl.Reading) bool {
		return world.Connect(p, how, sbpl.Endpoint{Proto: "tcp", Host: host, Port: port})
	}, want}
}

// group is the decisions that hold one statement of the specification.
type group struct {
	name string
	all  []decision
}

// groups are all decisions, by statement.
func groups() []group {
	services := func(want bool, names ...string) (out []decision) {
		for _, s := range names {
			out = append(out, op(sbpl.Request{Op: "mach-lookup", Name: s}, want))
		}
		return out
	}
	gs := []group{
		{"SPEC_29_allow_default", []decision{
			op(sbpl.Request{Op: "mach-lookup", Name: "com.apple.unrelated"}, true), op(sbpl.Request{Op: "sysctl-read", Name: "kern.ostype"}, true),
			op(sbpl.Request{Op: "process-fork"}, true), op(sbpl.Request{Op: "file-read-metadata", Path: "/usr/lib/x"}, true),
		}},
		{"SPEC_30_secrets_unreadable", []decision{
			read("/Users/me/.ssh", false), read("/Users/me/.ssh/id_ed25519", false), read("/Users/me/.gnupg/k", false), read("/Users/me/vault/gnupg/k", false),
			read("/Users/me/jobs/tree/l/id", false), op(sbpl.Request{Op: "file-clone", Path: "/Users/me/.ssh/id"}, false),
		}},
		{"SPEC_31_host_readable", []decision{
			read("/Users/me/other/file", true), read("/etc/hosts", true), read("/Users/you/file", true), read("/opt/x", true),
		}},
		{"SPEC_32_writes_by_root", []decision{
			write("/opt/x", false), write("/etc/hosts", false), write("/Users/you/x", false), write("/dev/null", true), write("/dev/disk0", false),
			write("/Users/me/jobs/tree/a", true), write("/Users/me/jobs/other/a", false), write("/Users/me/jobs", false), write("/Volumes/Space/a", true),
		}},
		{"SPEC_33_mandatory_denies", []decision{
			write("/Users/me/jobs/tree/.git/hooks/pre-commit", false), write("/Users/me/jobs/tree/.GIT/Hooks/x", false), write("/Users/me/jobs/tree/.git/hooks2", true),
			write("/Users/me/.claude/settings.json", false), write("/Users/me/jobs/tree/.npmrc", false), write("/Users/me/jobs/tree/node_modules/p/.npmrc", true),
			write("/Users/me/jobs/tree/\u00c9.pem", false), write("/Users/me/jobs/tree/e\u0301.pem", false),
			write("/Users/me/jobs/tree/.env", false), write("/Users/me/jobs/tree/a/.ENV", false), write("/Users/me/jobs/tree/.env.local", false), // D11
			write("/Users/me/jobs/tree/x.env", true), write("/Users/me/jobs/tree/a.Key", false), write("/Users/me/jobs/tree/a.keys", true),
			write("/Users/me/jobs/tree/node_modules/p/.env", false), rename("/Users/me/jobs/tree/a", "/Users/me/jobs/tree/.env", false),
			link("/Users/me/jobs/tree/.env", "/Users/me/jobs/tree/b", false),
			write("/Users/me/jobs/tree/.git/hooks/node_modules/x", false), write("/Users/me/jobs/tree/Node_modules/.npmrc", false), // what frees is to the letter, and above
			write("/Users/me/jobs/tree/.git/modules/a/b/config", false), write("/Users/me/jobs/tree/.git/modules/a/HEAD", true),
		}},
		{"SPEC_34_ways_to_names_stay", []decision{
			rename("/Users/me/jobs/tree/.git", "/Users/me/jobs/tree/x", false), write("/Users/me/jobs/tree/.git", false),
			op(sbpl.Request{Op: "file-write-unlink", Path: "/Users/me/jobs/tree/.git", Vnode: "DIRECTORY"}, false),
			op(sbpl.Request{Op: "file-write-create", Path: "/Users/me/jobs/tree/.git", Vnode: "SYMLINK"}, false),
			op(sbpl.Request{Op: "file-write-create", Path: "/Users/me/jobs/tree/.git", Vnode: "DIRECTORY"}, true),
			op(sbpl.Request{Op: "file-write-create", Path: "/Users/me/jobs/tree/.git/modules/a", Vnode: "SYMLINK"}, false),
			op(sbpl.Request{Op: "file-write-create", Path: "/Users/me/jobs/tree/.git/modules/a", Vnode: "DIRECTORY"}, true),
			op(sbpl.Request{Op: "file-write-unlink", Path: "/Users/me/jobs/tree/.git/modules/a", Vnode: "DIRECTORY"}, false),
			rename("/Users/me/jobs/tree/.git/modules/a/HEAD.lock", "/Users/me/jobs/tree/.git/modules/a/HEAD", true),
			write("/Users/me/jobs/tree/node_modules/p/.git", true), rename("/Users/me/jobs/tree/node_modules/p/.git", "/Users/me/jobs/tree/node_modules/x", true),
		}},
		{"SPEC_34_ancestors_stay", []decision{
			rename("/Users/me/src", "/Users/me/src2", false), rename("/Users/me/src/checkout", "/Users/me/c", false), rename("/Users/me", "/Users/me2", false),
			rename("/Users/me/.claude", "/Users/me/c", false), rename("/Users/me/vault", "/Users/me/v", false), rename("/Users/me/.ssh", "/Users/me/jobs/tree/s", false), // D8
			rename("/Volumes/Space", "/tmp/s", false), rename("/Users/me/jobs/tree", "/tmp/t", false), rename("/private/tmp", "/tmp/t", false),
			link("/Users/me/.ssh/id", "/Users/me/jobs/tree/a", false), rename("/Users/me/jobs/tree/a", "/Users/me/jobs/tree/b", true), link("/Users/me/jobs/tree/a", "/Users/me/jobs/tree/b", true),
		}},
		{"SPEC_35_dangerous_programs", []decision{
			exec("/bin/ls", true), exec("/usr/bin/sudo", false), exec("/Users/me/jobs/tree/bin/dd", false),
		}},
		{"SPEC_36_exec_lock", []decision{ // D9
			exec("/Users/me/x", false), exec("/private/tmp/x", false), exec("/tmp/x", false), exec("/private/var/folders/x", false), exec("/var/folders/x", false),
			exec("/Users/me/jobs/tree/x", false), exec("/Volumes/Space/x", false), exec("/Users/me/.nvm/node", true),
		}},
		{"SPEC_37_exec_grants", []decision{
			exec("/Users/me/jobs/tree/bin/x", true), exec("/Users/me/jobs/tree/bin/dd", false), exec("/Users/me/jobs/tree/binx", false),
		}},
		{"SPEC_38_own_ports_only", []decision{
			tcp("localhost", 3128, true), tcp("localhost", 1080, true), tcp("localhost", 2019, false), tcp("localhost", 3129, false), tcp("localhost", 22, false),
			tcp("192.0.2.1", 3128, false), tcp("192.0.2.1", 443, false), tcp("192.168.1.1", 80, false), // D7
			op(sbpl.Request{Op: "network-outbound", Remote: &sbpl.Endpoint{Proto: "tcp", IPv6: true, Host: "localhost", Port: 3129}}, false),
			op(sbpl.Request{Op: "network-outbound", Remote: &sbpl.Endpoint{Proto: "udp", Host: "localhost", Port: 3128}}, false),
			op(sbpl.Request{Op: "network-bind", Local: &sbpl.Endpoint{Proto: "tcp", Host: "localhost", Port: 8080}}, false),
			op(sbpl.Request{Op: "network-bind", Local: &sbpl.Endpoint{Proto: "tcp", Host: "localhost", Port: 3000}}, true),
			op(sbpl.Request{Op: "network-inbound", Local: &sbpl.Endpoint{Proto: "tcp", Host: "localhost", Port: 3000}}, true),
			op(sbpl.Request{Op: "network-bind", Local: &sbpl.Endpoint{Proto: "tcp", Host: "192.0.2.1", Port: 3000}}, false),
			op(sbpl.Request{Op: "network-outbound", Local: &sbpl.Endpoint{Proto: "tcp", Host: "localhost", Port: 3000}, Remote: &sbpl.Endpoint{Proto: "tcp", Host: "192.0.2.1", Port: 443}}, false),
			op(sbpl.Request{Op: "network-inbound", Local: &sbpl.Endpoint{Proto: "tcp", Host: "localhost", Port: 8080}}, false),
		}},
		{"SPEC_39_no_unix_sockets", []decision{
			op(sbpl.Request{Op: "network-outbound", Path: "/private/var/run/docker.sock"}, false), op(sbpl.Request{Op: "network-outbound", Path: "/Users/me/.colima/docker.sock"}, false),
			op(sbpl.Request{Op: "network-outbound", Path: "/private/tmp/tmux-501/default"}, false), op(sbpl.Request{Op: "network-outbound", Path: "/private/tmp/com.apple.launchd.x/Listeners"}, false),
			op(sbpl.Request{Op: "network-bind", Path: "/private/tmp/s"}, false),
		}},
		{"SPEC_40_resolver_off", append(services(false, resolverServices...), op(sbpl.Request{Op: "network-outbound", Path: "/private/var/run/mDNSResponder"}, false))},
		{"SPEC_42_checkouts_read_only", []decision{
			read("/Users/me/src/checkout/a", true), write("/Users/me/src/checkout", false), write("/Users/me/src/checkout/a", false), write("/Volumes/Space/original/a", false),
			link("/Users/me/src/checkout/a", "/Users/me/jobs/tree/a", false), rename("/Users/me/src/checkout/a", "/Users/me/b", false),
		}},
		{"SPEC_43_home_writable", []decision{write("/Users/me/x", true), write("/Users/me/src/x", true)}},
		{"SPEC_84_aliases", []decision{
			write("/tmp/x", true), write("/private/tmp/x", true), write("/var/folders/x", true), write("/private/var/folders/x", true),
		}},
		{"hardening", []decision{
			op(sbpl.Request{Op: "appleevent-send"}, false), op(sbpl.Request{Op: "lsopen"}, false), op(sbpl.Request{Op: "job-creation"}, false),
			op(sbpl.Request{Op: "mach-priv-task-port"}, false), op(sbpl.Request{Op: "signal", Target: "others"}, false), op(sbpl.Request{Op: "process-info-pidinfo", Target: "others"}, false),
		}},
	}
	// The spellings the kernel does not use where the documents are right: they are
	// written all the same, because the documents may be wrong.
	alias, hard := &gs[len(gs)-2], &gs[len(gs)-1]
	for path, want := range map[string]bool{
		"/tmp/x": true, "/var/folders/x": true, dataVolume + "/Users/me/x": true, dataVolume + "/private/tmp/x": true,
		dataVolume + "/private/var/folders/x": true, dataVolume + "/Users/me/jobs/x": false, dataVolume + "/Users/me/jobs/tree/x": true,
	} {
		alias.all = append(alias.all, op(sbpl.Request{Op: "file-write-create", Path: path}, want))
	}
	for _, target := range []string{"self", "same-sandbox", "children"} {
		hard.all = append(hard.all, op(sbpl.Request{Op: "signal", Target: target}, true), op(sbpl.Request{Op: "process-info-pidinfo", Target: target}, true))
	}
	for _, name := range Hardenings() {
		hard.all = append(hard.all, services(false, hardenings[name].services...)...)
	}
	return gs
}

func decisions() []decision {
	var ds []decision
	for _, g := range groups() {
		ds = append(ds, g.all...)
	}
	return ds
}

func load(t interface {
	Helper()
	Fatalf(string, ...any)
}, p *Policy,
) *sbpl.Profile {
	t.Helper()
	text, err := p.Profile()
	if err != nil {
		t.Fatalf("%v", err)
	}
	profile, err := sbpl.Load(text, nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return profile
}

// TestSeatbelt holds each statement about the profile, under every reading of the
// language.
func TestSeatbelt(t *testing.T) {
	p := load(t, mac())
	t.Run("SPEC_28_absolute_tool", func(t *testing.T) {
		if Exe != "/usr/bin/sandbox-exec" {
			t.Errorf("the tool is %s", Exe)
		}
	})
	for _, g := range groups() {
		t.Run(g.name, func(t *testing.T) {
			for _, d := range g.all {
				for _, how := range sbpl.Readings() {
					if got := d.ask(p, how); got != d.want {
						t.Errorf("%s, read %s: got %v, want %v", d.name, how, got, d.want)
					}
				}
			}
		})
	}
	t.Run("SPEC_41_generated_for_each", func(t *testing.T) {
		other := mac()
		other.Ports, other.Tag = []int{4000, 4001}, "postern-s2"
		theirs := load(t, other)
		for _, how := range sbpl.Readings() {
			if tcp("localhost", 4000, true).ask(p, how) || tcp("localhost", 3128, true).ask(theirs, how) || !tcp("localhost", 4000, true).ask(theirs, how) {
				t.Errorf("read %s: one run has the other's ports", how)
			}
		}
	})
}

// TestEachRuleIsNeeded drops one rule at a time: a rule whose loss no decision
// notices is one that no test protects.
func TestEachRuleIsNeeded(t *testing.T) {
	p := load(t, mac())
	ds := decisions()
	for i, r := range p.Rules {
		less := p.Without(i)
		noticed := slices.ContainsFunc(ds, func(d decision) bool {
			return slices.ContainsFunc(sbpl.Readings(), func(how sbpl.Reading) bool { return d.ask(less, how) != d.want })
		})
		if !noticed {
			text, _ := mac().Profile()
			t.Errorf("nothing notices the loss of line %d: %s", r.Line, strings.Split(text, "\n")[r.Line-1])
		}
	}
}

// TestHolesAreFound puts the holes of an earlier generator in, by the names they have in
// the specification, and expects the statement that each breaks to say so.
func TestHolesAreFound(t *testing.T) {
	text, err := mac().Profile()
	if err != nil {
		t.Fatal(err)
	}
	for name, hole := range map[string]struct{ broken, by string }{
		"D7_local_filter":       {text + "(allow network* (local ip))\n", "SPEC_38"},
		"D7_local_port_filter":  {text + "(allow network* (local ip \"localhost:*\"))\n", "SPEC_38"},
		"D8_hidden_moved":       {strings.Replace(text, "(deny file-read* file-write* file-link file-clone", "(deny file-read*", 1), "SPEC_34"},
		"D8_hidden_linked":      {strings.Replace(text, "(deny file-read* file-write* file-link file-clone", "(deny file-read* file-write*", 1), "SPEC_34"},
		"D9_exec_lock_tmp":      {strings.Replace(text, "  (subpath \"/private/tmp\")\n", "", 1), "SPEC_36"},
		"D9_exec_lock_folders":  {strings.Replace(text, "  (subpath \"/private/var/folders\")\n", "", 1), "SPEC_36"},
		"D9_exec_lock_mounts":   {strings.Replace(text, "  (subpath \"/Volumes/Space\")\n", "", 1), "SPEC_36"},
		"D10_root_reopened":     {text + `(allow file-write* (subpath "/Users/me/jobs/tree"))` + "\n", "SPEC_33"},
		"D11_one_case":          {strings.ReplaceAll(text, "[eE][nN][vV]", "env"), "SPEC_33"},
		"dnssd_open":            {text + `(allow mach-lookup (global-name "com.apple.dnssd.service"))` + "\n", "SPEC_40"},
		"appleevents_open":      {strings.Replace(text, "(deny appleevent-send)", "(allow appleevent-send)", 1), "hardening"},
		"checkout_renamed_away": {strings.ReplaceAll(text, "  (literal \"/Users/me/src\")\n", ""), "SPEC_34"},
	} {
		t.Run(name, func(t *testing.T) {
			if hole.broken == text {
				t.Fatal("the hole was not put in")
			}
			p, err := sbpl.Load(hole.broken, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range groups() {
				wrong := func(d decision) bool {
					return slices.ContainsFunc(sbpl.Readings(), func(how sbpl.Reading) bool { return d.ask(p, how) != d.want })
				}
				if strings.HasPrefix(g.name, hole.by) && slices.ContainsFunc(g.all, wrong) {
					return
				}
			}
			t.Fatalf("%s did not find it", hole.by)
		})
	}
}

// TestNothingWritesBelowAProtectedPath is the property behind the table: for any
// protected or hidden path, no call and no pair of a rename and a write reaches it.
func TestNothingWritesBelowAProtectedPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringMatching(`[a-z.]{0,2}[a-z]{1,4}`)
		join := func(name string, n int) string {
			return "/Users/me/" + strings.Join(rapid.SliceOfN(part, 1, n).Draw(t, name), "/")
		}
		policy := mac()
		protected := join("protected", 4)
		if rapid.Bool().Draw(t, "hide") {
			policy.Hidden = append(policy.Hidden, protected)
		} else {
			policy.Protected = append(policy.Protected, protected)
		}
		p := load(t, policy)
		below := protected + rapid.SampledFrom([]string{"", "/x", "/x/y"}).Draw(t, "below")
		if rapid.Bool().Draw(t, "volume") {
			below = dataVolume + below
		}
		for _, how := range sbpl.Readings() {
			if world.Write(p, how, below) || world.Unlink(p, how, below) || world.Mkdir(p, how, below) ||
				world.Rename(p, how, "/Users/me/evil", below) || world.Link(p, how, below, "/Users/me/alias") {
				t.Fatalf("reached %s when read %s", below, how)
			}
			for at := protected; at != ""; at = at[:strings.LastIndexByte(at, '/')] {
				if world.Rename(p, how, at, "/Users/me/away") {
					t.Fatalf("%s was renamed away when read %s", at, how)
				}
			}
		}
	})
}

func TestDNSModes(t *testing.T) {
	udp := op(sbpl.Request{Op: "network-outbound", Remote: &sbpl.Endpoint{Proto: "udp", Host: "localhost", Port: 5353}}, true)
	socket := op(sbpl.Request{Op: "network-outbound", Path: "/private/var/run/mDNSResponder"}, true)
	service := op(sbpl.Request{Op: "mach-lookup", Name: "com.apple.dnssd.service"}, true)
	for name, test := range map[string]struct {
		mode                 DNS
		network              bool
		udp, socket, service bool
	}{
		"off": {DNSOff, true, false, false, false}, "guard": {DNSGuard, true, true, false, false}, "system": {DNSSystem, true, false, true, true},
		"system, network off": {DNSSystem, false, false, false, false}, "guard, network off": {DNSGuard, false, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			policy := mac()
			policy.DNS, policy.Network, policy.GuardPort = test.mode, test.network, 5353
			p := load(t, policy)
			for _, how := range sbpl.Readings() {
				if udp.ask(p, how) != test.udp || socket.ask(p, how) != test.socket || service.ask(p, how) != test.service {
					t.Errorf("read %s: udp %v, socket %v, service %v", how, udp.ask(p, how), socket.ask(p, how), service.ask(p, how))
				}
				if !tcp("localhost", 3128, true).ask(p, how) {
					t.Error("the proxy, which refuses by itself, is out of reach")
				}
			}
		})
	}
}

func TestOpenLiftsOneHardening(t *testing.T) {
	policy := mac()
	policy.Open = []string{"keychain"}
	p := load(t, policy)
	if ok, _ := p.Decide(sbpl.Request{Op: "mach-lookup", Name: "com.apple.SecurityServer"}, sbpl.Strictest); !ok {
		t.Error("not opened")
	}
	if ok, _ := p.Decide(sbpl.Request{Op: "lsopen"}, sbpl.Strictest); ok {
		t.Error("another one opened with it")
	}
}

func TestZeroPolicyOpensNothing(t *testing.T) {
	p := load(t, &Policy{})
	for _, d := range []decision{write("/tmp/a", false), write("/dev/null", false), tcp("localhost", 3128, false), exec("/bin/ls", true), read("/etc/hosts", true)} {
		for _, how := range sbpl.Readings() {
			if d.ask(p, how) != d.want {
				t.Errorf("%s, read %s", d.name, how)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	for name, p := range map[string]*Policy{
		"relative":         {Writable: []string{"work"}},
		"dot dot":          {Hidden: []string{"/Users/me/../you"}},
		"root":             {Writable: []string{"/"}},
		"line feed":        {Protected: []string{"/a\n(allow default)"}},
		"NUL":              {Tools: []string{"/a\x00b"}},
		"empty name":       {Names: []string{""}},
		"absolute name":    {Names: []string{"/etc"}},
		"quote in a name":  {Names: []string{`a"b`}},
		"port":             {Ports: []int{70000}},
		"guard, no port":   {Network: true, DNS: DNSGuard},
		"unknown switch":   {Open: []string{"everything"}},
		"grant that climb": {ExecGrants: []string{"/a/.."}},
	} {
		t.Run(name, func(t *testing.T) {
			if text, err := p.Profile(); err == nil {
				t.Fatalf("wrote\n%s", text)
			}
		})
	}
}

// TestHostilePathsStayPaths writes what could be read as syntax.
func TestHostilePathsStayPaths(t *testing.T) {
	for _, path := range []string{`/w/a"b`, `/w/a\b`, "/w/[x]*?", "/w/;c", "/w/(allow default)", "/w/ü", "/w/a b"} {
		p := load(t, &Policy{Writable: []string{"/w"}, Protected: []string{path}})
		for _, how := range sbpl.Readings() {
			if world.Write(p, how, path) || world.Write(p, how, path+"/x") {
				t.Errorf("%q was written when read %s", path, how)
			}
			if !world.Write(p, how, "/w/other") {
				t.Errorf("%q closed more than itself", path)
			}
		}
	}
}

func TestSamePolicySameBytes(t *testing.T) {
	first, err := mac().Profile()
	if err != nil {
		t.Fatal(err)
	}
	other := mac()
	slices.Reverse(other.Writable)
	slices.Reverse(other.Hidden)
	slices.Reverse(other.Ports)
	second, err := other.Profile()
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Errorf("order of the lists shows:\n%s\n---\n%s", first, second)
	}
}
