package seatbelt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"postern/launcher/nameguard"
)

// Exe is the only tool that applies a profile (SPEC 28).
const Exe = "/usr/bin/sandbox-exec"

// DNS says what a run may ask of the host's resolver (decision 4).
type DNS uint8

// The modes of DNS. With the network off it is always DNSOff.
const (
	DNSOff    DNS = iota // names travel inside CONNECT and SOCKS only
	DNSGuard             // and to the guard on its loopback port
	DNSSystem            // and to mDNSResponder: any name reaches any server
)

// Policy is what a run may do. Paths are absolute. The zero value allows reading
// the host, and nothing else.
type Policy struct {
	Writable  []string // roots that may be written: worktree, scratch, and the home where it is
	ReadOnly  []string // roots inside a writable one that may not
	Devices   []string // single writable files, such as /dev/null
	Protected []string // never writable, whatever holds them (SPEC 78)
	Hidden    []string // never readable (SPEC 30)
	// Secrets are patterns of nameguard's that are never writable, such as **/.env.
	Secrets []string
	// Names are patterns of the same kind that are never writable at any depth
	// outside NamesFree.
	Names []string
	// NamesFree are directory names, to the letter, below which Names do not hold:
	// packages unpacked there bring such files as a matter of course.
	NamesFree []string
	// Free are directories in which neither holds. A directory that was filled there and
	// is moved out cannot be told from any other.
	Free []string

	OpenExec   bool     // what can be written can be executed, too (SPEC 36 is for runs)
	ExecGrants []string // roots inside writable ones where execution is allowed again (SPEC 37)
	Tools      []string // single programs that may be executed wherever they are
	Dangerous  []string // programs that may never be executed (SPEC 35)

	Network bool  // false: no port and no resolver at all
	Ports   []int // the run's own loopback ports: HTTP and SOCKS proxy, gateway
	// Serve are loopback ports at which the run may listen.
	Serve []int
	DNS   DNS
	// OpenNetwork opens every host and port, both ways, and no Unix socket.
	OpenNetwork bool
	// GuardPort is the loopback port of the DNS guard, for DNSGuard.
	GuardPort int

	// Open lifts single hardening denies, by name: see Hardenings.
	Open []string
	// Tag ends each kernel log line of a denial: it says whose it was.
	Tag string

	// Resolve follows symlinks, as filepath.EvalSymlinks; a path it cannot
	// resolve is kept as written (SPEC 83). Nil resolves nothing.
	Resolve func(string) (string, error)
}

// Validate says what makes p unfit to be written as a profile.
func (p *Policy) Validate() error {
	var errs []error
	for field, paths := range map[string][]string{
		"writable": p.Writable, "read-only": p.ReadOnly, "device": p.Devices, "protected": p.Protected, "hidden": p.Hidden, "free": p.Free,
		"exec grant": p.ExecGrants, "tool": p.Tools, "dangerous": p.Dangerous,
	} {
		for _, path := range paths {
			if err := checkPath(path); err != nil {
				errs = append(errs, fmt.Errorf("%s path %q: %w", field, path, err))
			}
		}
	}
	for _, text := range slices.Concat(p.Secrets, p.Names) {
		if _, err := nameguard.Parse(text); err != nil {
			errs = append(errs, err)
		} else if strings.Contains(text, `"`) {
			errs = append(errs, fmt.Errorf("pattern %q: a quote cannot be written in a profile; write ? for it", text))
		}
	}
	for _, text := range p.Names {
		if strings.HasPrefix(text, "/") {
			errs = append(errs, fmt.Errorf("name %q: want one without leading slash", text))
		}
	}
	for _, name := range p.NamesFree {
		if name == "" || strings.ContainsAny(name, "/\x00\n\"") {
			errs = append(errs, fmt.Errorf("name %q: want the name of a directory", name))
		}
	}
	for _, port := range slices.Concat(p.Ports, p.Serve, []int{p.GuardPort}) {
		if port < 0 || port > 65535 {
			errs = append(errs, fmt.Errorf("port %d: want 1 to 65535", port))
		}
	}
	if p.DNS == DNSGuard && p.Network && p.GuardPort == 0 {
		errs = append(errs, errors.New("dns guard: no port"))
	}
	for _, name := range p.Open {
		if _, ok := hardenings[name]; !ok {
			errs = append(errs, fmt.Errorf("open %q: want one of %s", name, strings.Join(Hardenings(), ", ")))
		}
	}
	return errors.Join(errs...)
}

// checkPath refuses what the kernel would match differently than it reads: it
// resolves ".." physically, and a subpath that ends in a slash never matches.
func checkPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return errors.New("not absolute")
	case strings.ContainsAny(path, "\x00\n"):
		return errors.New("control character")
	case strings.Contains(path+"/", "/../"):
		return errors.New("climbs out by dots")
	case path == "/":
		return errors.New("the root itself")
	}
	return nil
}
