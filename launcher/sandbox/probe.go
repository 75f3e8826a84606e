package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"postern/launcher/backend"
	"postern/launcher/nameguard"
	"postern/launcher/sandbox/seatbelt"
)

// Probe is what this host offers. The first four fields are the specification's
// (SPEC 16 to 19), the rest says why and how to change it.
type Probe struct {
	Available       bool   `json:"available"`
	RequiresInstall bool   `json:"requiresInstall"` // a package is missing, and nothing else is known to be
	Note            string `json:"note"`
	Hint            string `json:"hint,omitempty"`

	Reason  Reason        `json:"reason,omitempty"`
	Detail  string        `json:"detail,omitempty"`
	Backend string        `json:"backend"` // "native", or "none"
	Bridge  string        `json:"bridge,omitempty"`
	Tool    string        `json:"tool,omitempty"`
	Version string        `json:"version,omitempty"`
	Took    time.Duration `json:"took"` // of the real start, in nanoseconds

	// Whether a sandbox can have sockets on ports below 1024, see Options.Low, and why
	// not. A run does not need them.
	LowPorts       bool   `json:"lowPorts"`
	LowPortsDetail string `json:"lowPortsDetail,omitempty"`

	// Whether names can be guarded, and why not: which part of the kernel is missing. A run
	// with patterns of names is refused then, others are not.
	Names       bool   `json:"names"`
	NamesDetail string `json:"namesDetail,omitempty"`
}

// probeTimeout bounds the whole of a probe.
const probeTimeout = 10 * time.Second

// Check really puts up a sandbox, with everything a run has, and runs a command in
// it: a tool that is there and does not work is not available (SPEC decision 2).
// visit, if not nil, is called while the sandbox stands.
func Check(ctx context.Context, o Options, visit func(*Process)) Probe {
	p := Probe{Backend: string(backend.None), Note: backend.NativeTool(runtime.GOOS, o.release()).Note(runtime.GOOS)}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	began := time.Now()
	if err := p.try(ctx, o, visit); err != nil {
		p.Reason, p.Detail = ReasonStart, err.Error()
		if r, ok := errors.AsType[*Refusal](err); ok {
			p.Reason, p.Hint = r.Reason, r.Cure
			p.RequiresInstall = r.Reason == ReasonMissing
		}
		return p
	}
	p.Available, p.Backend, p.Bridge, p.Took = true, string(backend.Native), "builtin", time.Since(began)
	return p
}

func (p *Probe) try(ctx context.Context, o Options, visit func(*Process)) error {
	switch runtime.GOOS {
	case "linux":
		var err error
		if p.Tool, err = FindBwrap(o.Dirs); err != nil {
			return o.blame(err)
		}
		p.Version = toolVersion(ctx, p.Tool)
	case "darwin":
		p.Tool = seatbelt.Exe
	}
	err := p.run(ctx, o, visit, []nameguard.Rule{{Text: "*.postern-probe", Source: nameguard.SourceDefault}})
	r, ok := errors.AsType[*Refusal](err)
	if p.Names = err == nil; !ok || r.Reason != ReasonNameGlobs {
		return err
	}
	_, p.NamesDetail, _ = strings.Cut(r.Detail, hadNot)
	return p.run(ctx, o, visit, nil)
}

// run puts up one sandbox.
func (p *Probe) run(ctx context.Context, o Options, visit func(*Process), names []nameguard.Rule) error {
	dir, err := os.MkdirTemp("", "postern-probe-")
	if err != nil {
		return fmt.Errorf("make a folder to probe with: %w", err)
	}
	defer os.RemoveAll(dir)
	facts, err := Gather(&Profile{Binds: []Bind{{Path: dir}}, Home: dir + "-home", NameGlobs: names})
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	o.Stdin, o.Stdout, o.Stderr, o.Low = null, null, null, DNSSockets(DNSFake)
	o.Any = true
	if o.Timeout == 0 {
		o.Timeout = probeTimeout
	}
	proc, err := Start(ctx, facts, o)
	if err != nil {
		return err
	}
	defer proc.Close()
	if _, err := proc.Low(); err != nil {
		p.LowPortsDetail = err.Error()
	} else {
		p.LowPorts = true
	}
	if visit != nil {
		visit(proc)
	}
	// Our own binary: the one command that is sure to be there.
	if err := proc.Exec(Command{Argv: []string{facts.Inside().Exe, "version"}}); err != nil {
		return err
	}
	status, err := proc.Wait()
	if err == nil && status.ExitCode() != 0 {
		err = &Refusal{Reason: ReasonStart, Detail: fmt.Sprintf("the sandbox stands, but a command in it ends with %d", status.ExitCode())}
	}
	return err
}

// toolVersion asks bubblewrap for its version; it is for people only.
func toolVersion(ctx context.Context, path string) string {
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = []string{}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return lastLine(strings.TrimSpace(strings.TrimPrefix(string(out), "bubblewrap ")))
}
