package seatbelt

import (
	"slices"
	"strings"
	"testing"

	"postern/launcher/sandbox/sbpl"
)

func terminalPolicy() *Policy {
	return Terminal("/Users/me", "/Volumes/Work/src", []string{".ssh", ".aws", ".gnupg", ".config/gh", "Library/Keychains"}, []string{"/Users/me/.run/postern"}, mac().Resolve)
}

// terminalDecisions are what SPEC 52 says of a terminal.
func terminalDecisions() []decision {
	ds := []decision{
		// The home, the folder and scratch are written, and nothing else.
		write("/Users/me/x", true), write("/Users/me/.bashrc", true), write("/Volumes/Work/src/x", true), write("/tmp/x", true), write("/private/var/folders/x", true),
		write("/var/folders/x", true), write("/private/tmp/x", true),
		write("/Volumes/Work/x", false), write("/etc/hosts", false), write("/Users/you/x", false), write("/opt/x", false), write("/usr/local/bin/x", false),
		write("/dev/disk0", false), write("/dev/tty", true), write("/dev/null", true),
		// The host is read, and of the home all but five.
		read("/etc/hosts", true), read("/Users/me/.kube/config", true), read("/Users/me/.docker/config.json", true), read("/Users/me/.netrc", true), read("/Users/me/.config/x", true),
		read("/Users/me/.run/postern/control.sock", false), read("/Users/me/.sshx", true),
		rename("/Users/me/.config", "/Users/me/c", false), rename("/Users/me/Library", "/Users/me/l", false), rename("/Users/me/vault", "/Users/me/v", false),
		rename("/Users/me", "/Users/me2", false), rename("/Volumes/Work/src", "/tmp/s", false), rename("/private/tmp", "/tmp/t", false), rename("/Users/me/a", "/Users/me/b", true),
		// What is written is executed.
		exec("/Users/me/bin/x", true), exec("/Volumes/Work/src/a.out", true), exec("/tmp/x", true), exec("/bin/ls", true),
		// The network is open, and with it no Unix socket but the resolver's.
		tcp("192.0.2.1", 443, true), tcp("localhost", 5432, true), tcp("localhost", 2019, true),
		op(sbpl.Request{Op: "network-outbound", Remote: &sbpl.Endpoint{Proto: "udp", Host: "192.0.2.1", Port: 53}}, true),
		op(sbpl.Request{Op: "network-bind", Local: &sbpl.Endpoint{Proto: "tcp", Host: "localhost", Port: 8080}}, true),
		op(sbpl.Request{Op: "network-inbound", Local: &sbpl.Endpoint{Proto: "tcp", Host: "localhost", Port: 8080}}, true),
		op(sbpl.Request{Op: "network-outbound", Path: "/private/var/run/docker.sock"}, false), op(sbpl.Request{Op: "network-bind", Path: "/private/tmp/s"}, false),
		op(sbpl.Request{Op: "network-outbound", Path: "/private/tmp/com.apple.launchd.x/Listeners"}, false),
		op(sbpl.Request{Op: "network-outbound", Path: "/private/var/run/mDNSResponder"}, true), op(sbpl.Request{Op: "mach-lookup", Name: "com.apple.dnssd.service"}, true),
		// Nobody acts outside for it.
		op(sbpl.Request{Op: "appleevent-send"}, false), op(sbpl.Request{Op: "lsopen"}, false), op(sbpl.Request{Op: "job-creation"}, false),
		op(sbpl.Request{Op: "mach-priv-task-port"}, false), op(sbpl.Request{Op: "signal", Target: "others"}, false),
		op(sbpl.Request{Op: "process-info-pidinfo", Target: "others"}, false), op(sbpl.Request{Op: "mach-lookup", Name: "com.apple.pasteboard.1"}, true),
		op(sbpl.Request{Op: "mach-lookup", Name: "com.apple.SecurityServer"}, false),
		op(sbpl.Request{Op: "mach-lookup", Name: "com.apple.coreservices.appleevents"}, false),
		op(sbpl.Request{Op: "mach-lookup", Name: "com.apple.coreservices.launchservicesd"}, false),
	}
	for _, name := range []string{".ssh", ".aws", ".gnupg", ".config/gh", "Library/Keychains"} {
		path := "/Users/me/" + name
		ds = append(
			ds, read(path, false), read(path+"/key", false), write(path+"/key", false), rename(path, "/Users/me/x", false), link(path+"/key", "/Users/me/x", false),
			op(sbpl.Request{Op: "file-clone", Path: path + "/key"}, false),
		)
	}
	// Where the documents are wrong about aliases, and other spellings are asked for.
	for _, p := range []string{"/Users/me/x", "/private/tmp/x", "/private/var/folders/x"} {
		ds = append(ds, op(sbpl.Request{Op: "file-write-create", Path: dataVolume + p}, true))
	}
	ds = append(ds, op(sbpl.Request{Op: "file-write-create", Path: "/tmp/x"}, true), op(sbpl.Request{Op: "file-write-create", Path: "/var/folders/x"}, true))
	for _, target := range []string{"self", "same-sandbox", "children"} {
		ds = append(ds, op(sbpl.Request{Op: "signal", Target: target}, true), op(sbpl.Request{Op: "process-info-pidinfo", Target: target}, true))
	}
	return ds
}

// SPEC 52 on macOS, under every reading of the language.
func TestSPEC52TerminalPolicy(t *testing.T) {
	p := load(t, terminalPolicy())
	for _, d := range terminalDecisions() {
		for _, how := range sbpl.Readings() {
			if got := d.ask(p, how); got != d.want {
				t.Errorf("%s: %t, want %t, read %s", d.name, got, d.want, how)
			}
		}
	}
}

// The loss of any rule is noticed.
func TestEachRuleOfATerminalIsNeeded(t *testing.T) {
	p := load(t, terminalPolicy())
	ds := terminalDecisions()
	text, err := terminalPolicy().Profile()
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range p.Rules {
		less := p.Without(i)
		if !slices.ContainsFunc(ds, func(d decision) bool {
			return slices.ContainsFunc(sbpl.Readings(), func(how sbpl.Reading) bool { return d.ask(less, how) != d.want })
		}) {
			t.Errorf("nothing notices the loss of line %d: %s", r.Line, strings.Split(text, "\n")[r.Line-1])
		}
	}
}

func TestTerminalPolicyFailsClosed(t *testing.T) {
	for _, home := range []string{"", "/", "Users/me", "/Users/../etc"} {
		if text, err := Terminal(home, "/w", nil, nil, nil).Profile(); err == nil {
			t.Errorf("home %q gives a profile:\n%s", home, text)
		}
	}
}
