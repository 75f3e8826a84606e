package sandbox

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"postern/launcher/nameguard"
	"postern/launcher/sandbox/sbpl"
)

// aMac is a host as a developer has it. Paths that are not in it do not exist.
func aMac() (macHost, sbpl.World) {
	w := sbpl.World{
		Symlinks:  map[string]string{"/tmp": "/private/tmp", "/var": "/private/var", "/Users/me/.zshrc": "/Users/me/dots/zshrc", "/usr/local/bin/mkfs.x": "/opt/x/mkfs"},
		Firmlinks: map[string]string{"/System/Volumes/Data/Users": "/Users", "/System/Volumes/Data/private": "/private"},
	}
	programs := map[string]string{"node": "/Users/me/.nvm/bin/node", "git": "/usr/bin/git", "./run.sh": "/Users/me/tree/run.sh"}
	host := macHost{
		Resolve: func(p string) (string, error) { return w.Resolve(p), nil },
		Glob: func(pattern string) ([]string, error) {
			var out []string
			for _, exe := range []string{"/usr/bin/sudo", "/bin/dd", "/sbin/mkfs.ext4", "/usr/local/bin/mkfs.x", "/bin/bash", "/bin/rm"} {
				if ok, _ := path.Match(pattern, exe); ok {
					out = append(out, exe)
				}
			}
			return out, nil
		},
		Find: func(name string) (string, error) {
			if p := programs[name]; p != "" {
				return p, nil
			}
			return "", fs.ErrNotExist
		},
	}
	return host, w
}

const macPrivate = "/private/var/folders/x/T/postern-123"

func aMacRun() macRun {
	return macRun{Program: "./run.sh", Exe: "/Users/me/bin/postern", Dir: macPrivate, Temp: "postern-123-tmp", Ports: []int{50001, 50002}, Tag: "postern-s1"}
}

// macFacts is what Gather finds for a worktree in the home.
func macFacts(change func(*Profile)) *Facts {
	p := &Profile{
		Binds: []Bind{{Path: "/Users/me/tree"}}, Home: "/Users/me", RunDir: "/private/tmp/postern-501",
		Protected: []string{"/Users/me/src/checkout"}, StateDirs: []string{"/Users/me/tree/.state"},
	}
	if change != nil {
		change(p)
	}
	return &Facts{
		Home: "/Users/me", Dir: "/Users/me/tree", homes: []string{"/Users/me"}, wanted: p,
		Roots: []Root{{Path: "/Users/me/tree", Writable: p.Mode.Writes(), Dir: true}, {Path: "/Users/me/tree/.state", Writable: true, Dir: true, State: true}},
	}
}

func macProfile(tb testing.TB, change func(*Profile)) *sbpl.Profile {
	tb.Helper()
	host, _ := aMac()
	policy, err := seatbeltPolicy(macFacts(change), aMacRun(), host)
	must(tb, err)
	text, err := policy.Profile()
	must(tb, err)
	p, err := sbpl.Load(text, nil)
	must(tb, err)
	return p
}

// macDecision is one question about a path.
type macDecision struct {
	do, path string
	want     bool
}

func (d macDecision) ask(p *sbpl.Profile, w sbpl.World, how sbpl.Reading) bool {
	switch d.do {
	case "read":
		return w.Read(p, how, d.path)
	case "write":
		return w.Write(p, how, d.path)
	case "exec":
		return w.Exec(p, how, d.path, "")
	case "move":
		return w.Rename(p, how, d.path, "/Users/me/tree/moved")
	case "connect":
		return w.ConnectUnix(p, how, d.path)
	}
	panic(d.do)
}

func decideAll(t *testing.T, p *sbpl.Profile, ds []macDecision) {
	t.Helper()
	_, w := aMac()
	for _, d := range ds {
		for _, how := range sbpl.Readings() {
			if got := d.ask(p, w, how); got != d.want {
				t.Errorf("%s %s, read %s: got %v", d.do, d.path, how, got)
			}
		}
	}
}

// TestSeatbeltOfARun asks the profile of a whole run, under every reading.
func TestSeatbeltOfARun(t *testing.T) {
	p := macProfile(t, nil)
	var ds []macDecision
	for _, name := range secrets { // SPEC 30
		ds = append(ds, macDecision{"read", "/Users/me/" + name, false}, macDecision{"read", "/Users/me/" + name + "/x", false},
			macDecision{"write", "/Users/me/" + name, false}, macDecision{"move", "/Users/me/" + name, false})
	}
	for _, name := range neverWritten {
		ds = append(ds, macDecision{"write", "/Users/me/" + name, false}, macDecision{"move", "/Users/me/" + name, false})
	}
	for _, name := range texts(nameguard.Mandatory()) { // SPEC 33
		name = strings.NewReplacer("/**/", "/some/deep/", "*", "some").Replace(strings.TrimPrefix(name, "**/"))
		ds = append(ds, macDecision{"write", "/Users/me/tree/" + name, false}, macDecision{"write", "/Users/me/tree/sub/" + strings.ToUpper(name), false},
			macDecision{"write", "/Users/me/tree/node_modules/a/" + name, true}, macDecision{"write", macPrivate + "/postern-123-tmp/clone/" + name, true})
	}
	for _, name := range []string{".env", ".env.local", "a.key", "b.PEM", "c.p12", "d.pfx"} {
		ds = append(ds, macDecision{"write", "/Users/me/tree/" + name, false}, macDecision{"write", macPrivate + "/postern-123-tmp/" + name, false})
	}
	ds = append(ds, []macDecision{
		{"read", "/Users/me/other/file", true},
		{"read", "/etc/hosts", true}, // 31
		{"write", "/Users/me/tree/a", true},
		{"write", "/Users/me/x", true},
		{"write", "/tmp/x", true},
		{"write", "/var/folders/y", true},
		{"write", "/dev/null", true}, // 32, 43, 84
		{"write", "/opt/x", false},
		{"write", "/Users/you/x", false},
		{"write", "/usr/local/bin/x", false},
		{"write", "/Users/me/dots/zshrc", false}, // what .zshrc leads to
		{"read", "/Users/me/src/checkout/a", true},
		{"write", "/Users/me/src/checkout/a", false},
		{"move", "/Users/me/src", false}, // 42, 78
		{"write", "/Users/me/tree/.state/log", true},
		{"write", "/Users/me/tree/.state/hooks/x", false},
		{"write", "/Users/me/tree/.state/settings.json", false}, // 80
		{"read", "/tmp/postern-501/control.sock", false},
		{"connect", "/tmp/postern-501/control.sock", false},
		{"connect", "/var/run/docker.sock", false}, // 39
		{"write", macPrivate + "/gitconfig", false},
		{"write", macPrivate + "/sealed/written", false},
		{"write", macPrivate + "/empty/pre-commit", false},
		{"move", macPrivate, false},
		{"write", macPrivate + "/run/x", true},
		{"read", macPrivate + "/gitconfig", true},
		{"exec", "/bin/ls", true},
		{"exec", "/bin/rm", true},
		{"exec", "/bin/bash", true}, // decision 11
		{"exec", "/usr/bin/sudo", false},
		{"exec", "/bin/dd", false},
		{"exec", "/sbin/mkfs.ext4", false},
		{"exec", "/opt/x/mkfs", false}, // 35
		{"exec", "/Users/me/tree/evil", false},
		{"exec", "/tmp/evil", false},
		{"exec", macPrivate + "/postern-123-tmp/evil", false}, // 36
		{"exec", "/Users/me/.nvm/bin/node", true},
		{"write", "/Users/me/.nvm/bin/node", false},
		{"move", "/Users/me/.nvm", false}, // a tool that could be rewritten would be any program
		{"exec", "/Users/me/tree/run.sh", true},
		{"write", "/Users/me/tree/run.sh", false},
		{"exec", "/Users/me/bin/postern", true},
	}...)
	decideAll(t, p, ds)
}

func rulesOf(texts ...string) (out []nameguard.Rule) {
	for _, text := range texts {
		out = append(out, nameguard.Rule{Text: text, Source: "spec"})
	}
	return out
}

// TestSPEC41EveryRunItsOwnProfile: two specs give two profiles, the same spec the same.
func TestSPEC41EveryRunItsOwnProfile(t *testing.T) {
	host, _ := aMac()
	text := func(change func(*Profile), r macRun) string {
		t.Helper()
		policy, err := seatbeltPolicy(macFacts(change), r, host)
		must(t, err)
		text, err := policy.Profile()
		must(t, err)
		return text
	}
	other := aMacRun()
	other.Ports, other.Tag, other.Dir = []int{50003, 50004}, "postern-s2", macPrivate+"4"
	first := text(nil, aMacRun())
	if first != text(nil, aMacRun()) {
		t.Error("the same run, another profile")
	}
	second := text(nil, other)
	for _, only := range []string{`"localhost:50001"`, `"localhost:50002"`, `"postern-s1"`} {
		if !strings.Contains(first, only) || strings.Contains(second, only) {
			t.Errorf("%s is not the first run's alone", only)
		}
	}
	if text(func(p *Profile) { p.Protected = nil }, aMacRun()) == first {
		t.Error("another spec, the same profile")
	}
}

// TestSeatbeltModes is SPEC 77, 78 and 80: only chat writes the folders, nothing writes
// what is protected, a runner's state is always written.
func TestSeatbeltModes(t *testing.T) {
	for _, mode := range Modes() {
		t.Run(string(mode), func(t *testing.T) {
			decideAll(t, macProfile(t, func(p *Profile) { p.Mode = mode }), []macDecision{
				{"write", "/Users/me/tree/a", mode == ModeChat},
				{"write", "/Users/me/tree/.git/hooks/x", false},
				{"write", "/Users/me/src/checkout/a", false},
				{"write", "/Users/me/tree/.state/log", true},
				{"write", "/Users/me/tree/.state/settings.json", false},
			})
		})
	}
}

// TestSeatbeltSettings: what the user can change, and no more than that.
func TestSeatbeltSettings(t *testing.T) {
	t.Run("narrow home", func(t *testing.T) {
		decideAll(t, macProfile(t, func(p *Profile) { p.Mac.Narrow = true }), []macDecision{
			{"write", "/Users/me/x", false},
			{"write", "/Users/me/tree/a", true},
			{"read", "/Users/me/x", true},
			{"read", "/Users/me/.ssh/id", false},
		})
	})
	t.Run("exec grants", func(t *testing.T) { // SPEC 37
		decideAll(t, macProfile(t, func(p *Profile) { p.Mac.ExecGrants = []string{"/Users/me/tree/build"} }), []macDecision{
			{"exec", "/Users/me/tree/build/x", true},
			{"exec", "/Users/me/tree/builds", false},
			{"exec", "/Users/me/tree/x", false},
			{"write", "/Users/me/tree/build/x", true},
		})
	})
	t.Run("dangerous", func(t *testing.T) {
		decideAll(t, macProfile(t, func(p *Profile) { p.Mac.Dangerous = []string{"/bin/rm", "/bin/bash"} }), []macDecision{
			{"exec", "/bin/rm", false},
			{"exec", "/bin/bash", true}, // the shell is never denied
		})
	})
	t.Run("name patterns", func(t *testing.T) { // SPEC 26 holds on Linux; names can be forbidden here
		decideAll(t, macProfile(t, func(p *Profile) { p.NameGlobs = rulesOf("**/*.tfstate", "secret?.txt", "src/**/x", "/tmp/mine/*.log") }), []macDecision{
			{"write", "/Users/me/tree/src/a/b/X", false},
			{"write", "/Users/me/tree/src/x", false},
			{"write", "/Users/me/tree/src", false}, // a file there, and no directory
			{"move", "/Users/me/tree/src", false},
			{"write", "/Users/me/tree/src/a/y", true},
			{"write", "/tmp/mine/a.log", false},
			{"write", "/tmp/mine/a/b.log", true},
			{"write", "/Users/me/tmp/mine/a.log", true},
			{"move", "/tmp/mine", false},
			{"write", "/Users/me/tree/a/b.TFSTATE", false},
			{"write", "/Users/me/tree/secret1.txt", false},
			{"write", "/Users/me/tree/secret.txt", true},
		})
	})
	t.Run("a folder among packages", func(t *testing.T) {
		host, w := aMac()
		f := macFacts(nil)
		f.Roots = append(f.Roots, Root{Path: "/Users/me/tree/node_modules/mine", Writable: true, Dir: true})
		policy, err := seatbeltPolicy(f, aMacRun(), host)
		must(t, err)
		text, err := policy.Profile()
		must(t, err)
		p, err := sbpl.Load(text, nil)
		must(t, err)
		for _, how := range sbpl.Readings() {
			if w.Write(p, how, "/Users/me/tree/node_modules/mine/.git/hooks/pre-commit") {
				t.Errorf("nothing is forbidden in the folder, read %s", how)
			}
		}
	})
	t.Run("free directories", func(t *testing.T) {
		decideAll(t, macProfile(t, func(p *Profile) { p.NameFree = []string{"/Users/me/tree/build"} }), []macDecision{
			{"write", "/Users/me/tree/build/.env", true},
			{"write", "/Users/me/tree/build/a/.npmrc", true},
			{"write", "/Users/me/tree/build/.vscode/node_modules/x", true},
			{"write", "/Users/me/tree/build2/.env", false},
			{"write", "/Users/me/tree/.vscode/node_modules/x", false},
			{"move", "/Users/me/tree/build", false},
			{"write", "/Users/me/tree/build/.state/settings.json", true},
			{"write", "/Users/me/src/checkout/a", false}, // what is protected by its path stays so
		})
	})
	t.Run("the resolver", func(t *testing.T) { // decision 4
		for mode, want := range map[string]bool{"": false, "off": false, "system": true} {
			p := macProfile(t, func(p *Profile) { p.Mac.DNS = mode })
			for _, how := range sbpl.Readings() {
				if (sbpl.World{}).MachLookup(p, how, "com.apple.dnssd.service") != want {
					t.Errorf("%q: not %v", mode, want)
				}
			}
		}
	})
	t.Run("hidden and protected", func(t *testing.T) {
		host, _ := aMac()
		f := macFacts(func(p *Profile) { p.Hidden = []string{"/Users/me/tree/none-yet"} })
		f.Denials = []Denial{{Path: "/Users/me/tree/h", Kind: Hide}, {Path: "/Users/me/tree/p", Kind: Protect}}
		policy, err := seatbeltPolicy(f, aMacRun(), host)
		must(t, err)
		text, err := policy.Profile()
		must(t, err)
		p, err := sbpl.Load(text, nil)
		must(t, err)
		decideAll(t, p, []macDecision{
			{"read", "/Users/me/tree/h/x", false},
			{"write", "/Users/me/tree/p", false},
			{"read", "/Users/me/tree/p", true},
			{"write", "/Users/me/tree/none-yet", false},
		})
	})
}

// TestSeatbeltFailsClosed is D17: what cannot be said is not left out.
func TestSeatbeltFailsClosed(t *testing.T) {
	host, _ := aMac()
	for name, tc := range map[string]struct {
		change func(*Profile)
		reason Reason
	}{
		"a protected path with a line end": {func(p *Profile) { p.Protected = append(p.Protected, "/a\n(allow default)") }, ReasonProfile},
		"a relative one":                   {func(p *Profile) { p.Hidden = append(p.Hidden, "x") }, ReasonProfile},
		"a climbing grant":                 {func(p *Profile) { p.Mac.ExecGrants = []string{"/a/.."} }, ReasonProfile},
		"an unknown switch":                {func(p *Profile) { p.Mac.Open = []string{"everything"} }, ReasonProfile},
		"an unknown DNS mode":              {func(p *Profile) { p.Mac.DNS = "open" }, ReasonProfile},
		"a resolver that is nowhere":       {func(p *Profile) { p.Mac.DNS = MacGuard }, ReasonProfile},
		"a sandbox inside":                 {func(p *Profile) { p.NestedSandbox = true }, ReasonProfile},
		"Unix sockets":                     {func(p *Profile) { p.AllowUnix = true }, ReasonProfile},
		"a pattern of another language":    {func(p *Profile) { p.NameGlobs = rulesOf("*.{key,pem}") }, ReasonNameGlobs},
		"a pattern with a quote":           {func(p *Profile) { p.NameGlobs = rulesOf(`a"b`) }, ReasonProfile},
		"a pattern of nothing":             {func(p *Profile) { p.NameGlobs = rulesOf("**/") }, ReasonNameGlobs},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := seatbeltPolicy(macFacts(tc.change), aMacRun(), host)
			var r *Refusal
			if !errors.As(err, &r) || r.Reason != tc.reason {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestEachRuleOfARunIsNeeded drops each rule of a run's profile and asks about what it
// names: a rule whose loss changes no answer under any reading holds nothing.
func TestEachRuleOfARunIsNeeded(t *testing.T) {
	host, _ := aMac()
	policy, err := seatbeltPolicy(macFacts(func(p *Profile) { p.Mode = ModePlan; p.Mac.ExecGrants = []string{"/Users/me/tree/build"} }), aMacRun(), host)
	must(t, err)
	text, err := policy.Profile()
	must(t, err)
	p, err := sbpl.Load(text, nil)
	must(t, err)
	all := strings.Split(text, "\n")
	for i, r := range p.Rules {
		end := len(all)
		if i+1 < len(p.Rules) {
			end = p.Rules[i+1].Line - 1
		}
		lines := strings.Join(all[r.Line-1:end], "\n")
		if !missed(p, p.Without(i), questions(lines)) {
			t.Errorf("nothing changes without line %d: %s", r.Line, all[r.Line-1])
		}
	}
}

// questions are what can be asked about what the text of a rule names.
func questions(text string) []sbpl.Request {
	qs := []sbpl.Request{
		{Op: "file-read-data", Path: "/"},
		{Op: "file-write-create", Path: "/x"},
		{Op: "network-outbound", Path: "/s"},
		{Op: "network-outbound", Remote: &sbpl.Endpoint{Proto: "tcp", Host: "192.0.2.1", Port: 443}},
	}
	for _, op := range []string{"appleevent-send", "lsopen", "job-creation", "mach-priv-task-port"} {
		qs = append(qs, sbpl.Request{Op: op})
	}
	for _, target := range []string{"self", "same-sandbox", "children", "others"} {
		qs = append(qs, sbpl.Request{Op: "signal", Target: target}, sbpl.Request{Op: "process-info-pidinfo", Target: target})
	}
	for _, port := range []int{50001, 50002} {
		qs = append(qs, sbpl.Request{Op: "network-outbound", Remote: &sbpl.Endpoint{Proto: "tcp", Host: "localhost", Port: port}})
	}
	paths := []string{"/Users/me/tree/.state/.env", "/Users/me/tree/.state/.npmrc"} // for the rules of names
	for _, at := range []string{"/Users/me/tree/.state/new/.git", "/Users/me/tree/.state/new/.git/modules/a"} {
		for _, vnode := range []string{"SYMLINK", "DIRECTORY"} {
			qs = append(qs, sbpl.Request{Op: "file-write-create", Path: at, Vnode: vnode}, sbpl.Request{Op: "file-write-unlink", Path: at, Vnode: vnode})
		}
	}
	for named := range strings.SplitSeq(text, `"`) {
		switch {
		case strings.HasPrefix(named, "com.apple."):
			qs = append(qs, sbpl.Request{Op: "mach-lookup", Name: named})
		case strings.HasPrefix(named, "/"):
			paths = append(paths, named, named+"/x")
		}
	}
	for _, at := range paths {
		for _, op := range []string{"file-write-create", "file-write-unlink", "file-read-data", "process-exec", "file-link"} {
			qs = append(qs, sbpl.Request{Op: op, Path: at})
		}
	}
	return qs
}

// missed reports whether some answer is another without a rule.
func missed(p, less *sbpl.Profile, qs []sbpl.Request) bool {
	return slices.ContainsFunc(qs, func(q sbpl.Request) bool {
		return slices.ContainsFunc(sbpl.Readings(), func(how sbpl.Reading) bool {
			before, _ := p.Decide(q, how)
			after, _ := less.Decide(q, how)
			return before != after
		})
	})
}
