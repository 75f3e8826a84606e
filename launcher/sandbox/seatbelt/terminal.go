package seatbelt

import "path"

// Terminal is the fixed policy of a person's terminal (SPEC 52): the home and the folder
// it starts in are written, the network is open, secrets of the home are not read. hidden
// are paths that are not shown beside these, such as the appliance's sockets.
//
// A person executes what a person has built, so nothing is locked. What acts for others
// outside of the sandbox stays denied, but for what a person has in hand anyway: the
// pasteboard, and transfers where the network is open.
func Terminal(home, dir string, secrets, hidden []string, resolve func(string) (string, error)) *Policy {
	p := &Policy{
		Writable: []string{home, dir, "/tmp", "/private/tmp", "/var/folders", "/private/var/folders"},
		Devices:  []string{"/dev/null", "/dev/dtracehelper", "/dev/tty", "/dev/ptmx", "/dev/stdout", "/dev/stderr"},
		OpenExec: true,
		Network:  true, OpenNetwork: true, DNS: DNSSystem,
		Open:    []string{"pasteboard", "transfers"},
		Resolve: resolve,
	}
	for _, name := range secrets {
		p.Hidden = append(p.Hidden, path.Join(home, name))
	}
	p.Hidden = append(p.Hidden, hidden...)
	return p
}
