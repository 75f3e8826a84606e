package sandbox

import "postern/caddy-modules/session/lease"

// Inside is where the run finds what is ours, and how it reaches the proxies.
type Inside struct {
	Exe     string // this binary; needs no quoting
	Empty   string // an empty directory: hooks and templates
	Git     string // the git configuration of the run
	Runtime string // XDG_RUNTIME_DIR
	Temp    string // TMPDIR

	// SharedHome says that the home is the user's own.
	SharedHome bool

	// Login is what the proxies ask for, where others than the run can connect to them;
	// nil where only the run can.
	Login *lease.Login
}

// Inside says where things are, fully so once the sandbox stands.
func (f *Facts) Inside() Inside {
	if f.inside != nil {
		return *f.inside
	}
	return Inside{Exe: InnerExe, Empty: InnerEmpty, Git: InnerGit, Runtime: f.Runtime, Temp: "/tmp"}
}
