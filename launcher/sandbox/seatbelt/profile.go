package seatbelt

import (
	"fmt"
	"slices"
	"strings"
)

// Profile writes the profile. The same policy gives the same bytes. The error is
// that of Validate.
func (p *Policy) Profile() (string, error) {
	if err := p.Validate(); err != nil {
		return "", fmt.Errorf("write profile: %w", err)
	}
	w := &writer{policy: p}
	w.line("(version 1)")
	w.line("(allow default)")
	w.unfiltered()
	w.harden()
	w.roots()
	w.writeDenies()
	w.readDenies()
	w.ancestors()
	w.exec()
	w.network()
	return w.text.String(), nil
}

type writer struct {
	policy *Policy
	text   strings.Builder
}

func (w *writer) section(title string) { fmt.Fprintf(&w.text, "\n; %s\n", title) }
func (w *writer) line(s string)        { w.text.WriteString(s + "\n") }

// deny writes a denial, tagged so that the log tells whose it was. Filters that
// are longer than one get a line each: they are OR-ed.
func (w *writer) deny(ops string, filters ...string) { w.rule("deny", ops, filters) }

func (w *writer) allow(ops string, filters ...string) {
	if len(filters) > 0 { // an allow without a filter would open all of it
		w.rule("allow", ops, filters)
	}
}

func (w *writer) rule(verdict, ops string, filters []string) {
	with := ""
	if verdict == "deny" && w.policy.Tag != "" {
		with = " (with message " + quote(w.policy.Tag) + ")"
	}
	if len(filters) == 1 {
		w.line("(" + verdict + " " + ops + " " + filters[0] + with + ")")
		return
	}
	w.line("(" + verdict + " " + ops)
	for _, f := range filters {
		w.line("  " + f)
	}
	w.line(" " + with + ")")
}

// unfiltered rules come before any filtered one: some sources read them as mere
// fallbacks, others in the order of the text, and here both come to the same.
func (w *writer) unfiltered() {
	w.section("nothing is written, nothing connects, nobody acts for us")
	w.line("(deny file-write*)")
	w.line("(deny network*)")
	for _, name := range Hardenings() {
		if !slices.Contains(w.policy.Open, name) {
			for _, op := range hardenings[name].unfiltered {
				w.line("(deny " + op + ") ; " + hardenings[name].why)
			}
		}
	}
}

func (w *writer) harden() {
	w.section("doors to processes outside")
	for _, name := range Hardenings() {
		if slices.Contains(w.policy.Open, name) {
			continue
		}
		for _, r := range hardenings[name].rules {
			w.line(r)
		}
		if s := hardenings[name].services; len(s) > 0 {
			w.deny("mach-lookup", services(s)...)
		}
	}
	if !w.policy.Network || w.policy.DNS != DNSSystem {
		w.deny("mach-lookup", services(resolverServices)...)
	}
}

func services(names []string) []string {
	out := make([]string, 0, len(names))
	for _, n := range names {
		out = append(out, "(global-name "+quote(n)+")")
	}
	return out
}

// roots writes the writable and read-only roots, shallow first.
func (w *writer) roots() {
	w.section("what may be written; the deepest root wins")
	type root struct {
		path  string
		allow bool
	}
	var all []root
	for _, path := range w.policy.Writable {
		for _, s := range w.policy.spellings(path) {
			all = append(all, root{s, true})
		}
	}
	for _, path := range w.policy.ReadOnly {
		for _, s := range w.policy.spellings(path) {
			all = append(all, root{s, false})
		}
	}
	depth := func(r root) int { return strings.Count(strings.TrimPrefix(r.path, dataVolume), "/") }
	slices.SortFunc(all, func(a, b root) int {
		if d := depth(a) - depth(b); d != 0 {
			return d
		}
		if d := strings.Compare(a.path, b.path); d != 0 {
			return d
		}
		return boolInt(b.allow) - boolInt(a.allow) // of the same path, the denial last
	})
	for _, r := range slices.Compact(all) {
		if r.allow {
			w.allow("file-write*", subpath(r.path))
		} else {
			w.deny("file-write*", subpath(r.path))
		}
	}
	w.allow("file-write*", w.literals(w.policy.Devices)...)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func subpath(path string) string { return "(subpath " + quote(path) + ")" }
func literal(path string) string { return "(literal " + quote(path) + ")" }

func (w *writer) literals(paths []string) []string { return w.filters(paths, literal) }

// whole is literal and subpath: a subpath alone may leave a gap for the first
// creation of the entry itself.
func (w *writer) whole(paths []string) []string {
	return append(w.filters(paths, literal), w.filters(paths, subpath)...)
}

func (w *writer) filters(paths []string, form func(string) string) []string {
	var out []string
	for _, path := range paths {
		for _, s := range w.policy.spellings(path) {
			out = append(out, form(s))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// writeDenies come after every allow, so that nothing re-opens them.
func (w *writer) writeDenies() {
	w.section("never writable, whatever holds it")
	if paths := w.whole(w.policy.Protected); len(paths) > 0 {
		w.deny("file-write* file-link", paths...)
	}
	w.names(w.policy.Secrets, nil)
	w.names(w.policy.Names, w.policy.NamesFree)
}

// readDenies also close the ways to read a hidden file elsewhere: moving it,
// linking it, cloning it.
func (w *writer) readDenies() {
	paths := w.whole(w.policy.Hidden)
	if len(paths) == 0 {
		return
	}
	w.section("never readable, nor movable to where it would be")
	w.deny("file-read* file-write* file-link file-clone", paths...)
}

// ancestors cannot be renamed away with what they protect.
func (w *writer) ancestors() {
	var above []string
	for _, path := range slices.Concat(w.policy.Protected, w.policy.Hidden) {
		for _, s := range w.policy.spellings(path) {
			for i := strings.LastIndexByte(s, '/'); i > 0; i = strings.LastIndexByte(s[:i], '/') {
				above = append(above, literal(s[:i]))
			}
		}
	}
	for _, path := range w.policy.Free {
		for _, s := range w.policy.spellings(path) {
			for i := len(s); i > 0; i = strings.LastIndexByte(s[:i], '/') {
				above = append(above, literal(s[:i]))
			}
		}
	}
	for _, root := range slices.Concat(w.policy.Writable, w.policy.ReadOnly) {
		for _, s := range w.policy.spellings(root) {
			above = append(above, literal(s))
		}
	}
	slices.Sort(above)
	if above = slices.Compact(above); len(above) > 0 {
		w.section("nor their ancestors renamed away")
		w.deny("file-write-unlink", above...)
	}
}

func (w *writer) exec() {
	w.section("nothing is executed from where it can be written")
	if roots := w.filters(w.policy.Writable, subpath); len(roots) > 0 && !w.policy.OpenExec {
		w.deny("process-exec*", roots...)
	}
	w.allow("process-exec*", w.filters(w.policy.ExecGrants, subpath)...)
	w.allow("process-exec*", w.literals(w.policy.Tools)...)
	if paths := w.literals(w.policy.Dangerous); len(paths) > 0 {
		w.deny("process-exec*", paths...)
	}
}

func sorted(ports []int) []int {
	ports = slices.Clone(ports)
	slices.Sort(ports)
	return slices.Compact(ports)
}

// network opens the run's own ports. A filter on the local end would match every
// outbound socket, so of those only the remote end is ever named.
func (w *writer) network() {
	p := w.policy
	if !p.Network && len(p.Ports)+len(p.Serve) == 0 {
		return
	}
	w.section("the only way out")
	if p.Network && p.OpenNetwork {
		w.allow("network-outbound", `(remote ip "*:*")`)
		w.allow("network-bind network-inbound", `(local ip "*:*")`)
	}
	for _, port := range sorted(p.Ports) {
		w.allow("network-outbound", fmt.Sprintf(`(remote tcp "localhost:%d")`, port))
	}
	for _, port := range sorted(p.Serve) {
		w.allow("network-bind network-inbound", fmt.Sprintf(`(local tcp "localhost:%d")`, port))
	}
	switch {
	case !p.Network:
	case p.DNS == DNSGuard:
		w.allow("network-outbound", fmt.Sprintf(`(remote udp "localhost:%d")`, p.GuardPort), fmt.Sprintf(`(remote tcp "localhost:%d")`, p.GuardPort))
	case p.DNS == DNSSystem:
		w.allow("network-outbound", literal(resolverSockets[0]), literal(resolverSockets[1]))
	}
}
