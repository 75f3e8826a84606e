package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"postern/caddy-modules/session/lease"
	"postern/launcher/backend"
	"postern/launcher/environ"
	"postern/launcher/sandbox"
	"postern/launcher/spec"
)

const execUsage = `postern exec runs a command as a host's spec says, and tells the host what happens.

  postern exec --spec FILE|- [FLAG]… -- CMD [ARG]…

The spec is a JSON object of eleven fields: sessionId workspaceId agentId bindMounts
networkEnabled egressAllowlist guestWorkdir mode protectedPaths runnerStateDirs
execGrantRoots; the first, the second and bindMounts must be there. Settings of the user
are not read. CMD gets the caller's environment without what makes programs load code or
leads past the proxies; ALL_PROXY is the SOCKS proxy, socks5h://….

With --events the descriptor carries a JSON object a line, {"type":…,"time":…,"session":…}:
starting, ready, stdout, stderr, violation, denied, push, killed, and at last exit, always.
stdout and stderr have data where the piece is UTF-8, else base64; with --streams plain
they stay what they are, and only the rest is told. starting, ready and exit carry the
handle: sessionId, backend (what the run really has), state, error, details. What the run
made or replaced that tools outside act on is on stderr, and in the details of exit as
changes: a list of path, what, cure.

SIGTERM, and an end of the session by the control API, stop CMD: TERM, KILL after 3 s. At
the timeout it is TERM, KILL after 2 s, and status 124. Other statuses are as those of
postern run; 125 means that nothing was started.

--sandbox off, and --backend none, are the host's decision to run CMD on the bare system:
its folders are not confined, its variables are cleaned, its proxies are the appliance's if
there is one. Unless a backend is named, that is also what is left where the probe finds
no sandbox on this system; it is never what is left after a refusal of the spec.

`

// hostRequest is one run of a host, as asked for.
type hostRequest struct {
	Spec    spec.Spec
	Profile *sandbox.Profile
	Session lease.Spec
	Argv    []string
	Env     []string // --env
	Dir     string   // where the command starts, as far as it was said

	DNS sandbox.DNSMode

	Events  int // descriptor; 0: none
	Streams string
	Timeout time.Duration

	Backend  backend.Backend // asked for; empty: none was named
	Default  backend.Backend // what the host prefers where none was named
	Off      bool            // --sandbox off
	Sanitize bool
	Quiet    bool
}

// What becomes of the command's stdout and stderr.
const (
	streamsEvents = "events"
	streamsPlain  = "plain"
)

// parseExec reads the command line of exec, and the spec it names. The error is
// pflag.ErrHelp when help was asked for and printed.
func parseExec(args []string, stdin io.Reader, stdout io.Writer) (*hostRequest, error) {
	fs := pflag.NewFlagSet("exec", pflag.ContinueOnError)
	fs.SetInterspersed(false)
	fs.SetOutput(io.Discard)
	fs.SortFlags = false
	r := &hostRequest{}
	var (
		file     = fs.String("spec", "", "`FILE` with the spec; - is stdin, which CMD then finds at its end")
		events   = fs.Int("events", 0, "write events to the descriptor `FD`")
		streams  = fs.String("streams", streamsEvents, "`events|plain`: with --events, what becomes of CMD's stdout and stderr")
		timeout  = fs.Duration("timeout", 0, "end CMD after `TIME`, as 90s or 10m")
		workdir  = fs.String("workdir", "", "start CMD in `DIR`, not in the spec's guestWorkdir")
		onOff    = fs.String("sandbox", "", "`on|off`; $POSTERN_SANDBOX, $CC_SERVER_SANDBOX otherwise")
		named    = fs.String("backend", "", "`NAME`: native or none, and no other than that")
		deflt    = fs.String("default-backend", string(backend.Native), "`NAME` that the host prefers, if none was asked for: microvm steps down to native")
		sanitize = fs.Bool("sanitize", true, "with backend none, clean CMD's environment")
		policy   = fs.String("policy", "", "`NAME` of the appliance's policy; its default otherwise")
		repo     = fs.String("repo", "", "the run's own repository, `HOST/OWNER/NAME`")
		links    = fs.StringArray("link", nil, "another `REPO` it may push to (repeatable)")
		dns      = fs.String("dns", "", "`MODE` in which CMD looks names up: auto, fake, answer or off; $POSTERN_DNS otherwise")
		guard    = fs.String("guard-names", "", "`auto|on|off`: keep what tools act on (.npmrc, .vscode, …) from being made at the top of the run's folders, without any pattern too; $POSTERN_GUARD_NAMES otherwise")
		env      = fs.StringArray("env", nil, "pass `NAME[=VALUE]` on (repeatable)")
		quiet    = fs.BoolP("quiet", "q", false, "no warnings")
		help     = fs.BoolP("help", "h", false, "print this")
	)
	fs.Lookup("sandbox").NoOptDefVal = "on"
	args, command, dashed := splitDash(args)
	if err := parseFlags(fs, joinSandbox(args)); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return nil, execUsageError(err)
	}
	if *help {
		fmt.Fprint(stdout, execUsage, fs.FlagUsages())
		return nil, pflag.ErrHelp
	}
	switch {
	case fs.NArg() > 0:
		return nil, execUsageError(fmt.Errorf("%q is not a flag; the command stands behind --", fs.Arg(0)))
	case !dashed || len(command) == 0:
		return nil, execUsageError(errors.New("no command: postern exec --spec FILE [FLAG]… -- CMD [ARG]…"))
	case *file == "":
		return nil, execUsageError(errors.New("no --spec"))
	case *timeout < 0:
		return nil, execUsageError(fmt.Errorf("--timeout %s: before it begins", *timeout))
	case *streams != streamsEvents && *streams != streamsPlain:
		return nil, execUsageError(fmt.Errorf("--streams %q: neither events nor plain", *streams))
	case fs.Changed("events") && (*events < 1 || *events == 2):
		return nil, execUsageError(fmt.Errorf("--events %d: want 1, or a descriptor from 3 on", *events))
	case *events == 1 && *streams == streamsPlain:
		return nil, execUsageError(errors.New("--events 1 --streams plain: events and output in one stream cannot be told apart"))
	}
	r.Argv, r.Env, r.Events, r.Streams, r.Timeout = command, *env, *events, *streams, *timeout
	r.Sanitize, r.Quiet = *sanitize, *quiet
	r.Off = sandboxOff(fs.Changed("sandbox"), *onOff, os.Getenv)
	var err error
	if fs.Changed("backend") {
		if r.Backend, err = backend.Parse(*named); err != nil {
			return nil, execUsageError(err)
		}
	}
	if r.DNS, err = sandbox.ParseDNSMode(cmp.Or(*dns, os.Getenv("POSTERN_DNS"))); err != nil {
		return nil, execUsageError(err)
	}
	guarded, err := sandbox.ParseGuard(cmp.Or(*guard, os.Getenv("POSTERN_GUARD_NAMES")))
	if err != nil {
		return nil, execUsageError(fmt.Errorf("--guard-names: %w", err))
	}
	if r.Default, err = backend.Parse(*deflt); err != nil {
		return nil, execUsageError(err)
	}
	// From here on it is known whom to tell.
	if err := r.readSpec(*file, stdin); err != nil {
		return r, err
	}
	r.Dir = startDir(&r.Spec, *workdir)
	r.Profile.Dir, r.Profile.Guard = r.Dir, guarded
	r.Session.Policy, r.Session.Repository, r.Session.LinkedRepositories = *policy, *repo, *links
	if err := r.Session.Validate(); err != nil {
		return r, execUsageError(err)
	}
	e := environ.Run{Mode: environ.Strip, Pass: r.Env}
	if _, err := e.Build(); err != nil {
		return r, execUsageError(err)
	}
	return r, nil
}

func (r *hostRequest) readSpec(file string, stdin io.Reader) error {
	from := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return &sandbox.Refusal{Reason: reasonSpec, Detail: "the spec cannot be read", Err: err}
		}
		defer f.Close()
		from = f
	}
	s, err := spec.Decode(from)
	if err != nil {
		return &sandbox.Refusal{Reason: reasonSpec, Detail: "the spec is not usable", Err: err}
	}
	r.Spec = s
	r.Profile, r.Session, err = translate(&s)
	return err
}

// splitDash cuts at the first "--": what stands behind it is the command's.
func splitDash(args []string) (flags, command []string, dashed bool) {
	for i, arg := range args {
		if arg == "--" {
			return args[:i], args[i+1:], true
		}
	}
	return args, nil, false
}

// joinSandbox makes "--sandbox off" one argument: the flag may stand alone, and a parser
// of flags that may would leave its value over.
func joinSandbox(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		if args[i] == "--sandbox" && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			out = append(out, args[i]+"="+args[i+1])
			i++
			continue
		}
		out = append(out, args[i])
	}
	return out
}

// sandboxOff reads the option (SPEC 22): off in any case is off, and everything else is
// on, so that a slip never takes the sandbox away. The flag wins over the environment.
func sandboxOff(given bool, flag string, getenv func(string) string) bool {
	text := flag
	if !given {
		if text = getenv("POSTERN_SANDBOX"); text == "" {
			text = getenv("CC_SERVER_SANDBOX")
		}
	}
	return strings.EqualFold(strings.TrimSpace(text), "off")
}

func execUsageError(err error) error {
	return misused("exec", err)
}
