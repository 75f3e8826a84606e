package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"postern/launcher/backend"
)

// Bounds of one run of the launcher.
const (
	runTimeout = 20 * time.Second
	maxAnswer  = 64 << 10 // bytes
)

// Reasons of this package; the others are the launcher's.
const (
	ReasonLauncherMissing = "launcher_missing"
	ReasonLauncherFailed  = "launcher_failed"
)

// Result is what was found. The first four fields are the specification's (SPEC 16 to
// 19).
type Result struct {
	Available       bool   `json:"available"`
	RequiresInstall bool   `json:"requiresInstall"`
	Note            string `json:"note"`
	Hint            string `json:"hint,omitempty"`

	Reason  string        `json:"reason,omitempty"` // stable: programs branch on it
	Detail  string        `json:"detail,omitempty"`
	Backend string        `json:"backend"` // "native", or "none"
	Bridge  string        `json:"bridge,omitempty"`
	Tool    string        `json:"tool,omitempty"`
	Version string        `json:"version,omitempty"`
	Took    time.Duration `json:"took"` // in nanoseconds

	LowPorts       bool   `json:"lowPorts"`
	LowPortsDetail string `json:"lowPortsDetail,omitempty"`

	// Off says that the operator does without a sandbox, whatever there is. StartLine is
	// the line that was logged.
	Off       bool   `json:"off"`
	StartLine string `json:"startLine"`
}

// Options say how to probe.
type Options struct {
	// Launcher is the postern program. Empty means the one beside this program, else
	// that of the system's directories; PATH is not asked.
	Launcher string

	// Off says that hosts are to run without a sandbox.
	Off bool

	// Log takes the start line.
	Log *slog.Logger

	// Run runs the launcher and returns what it says. Tests alone set it.
	Run func(ctx context.Context, exe string) ([]byte, error)
}

// Off reads the option as hosts give it (SPEC 22): what was configured, else
// POSTERN_SANDBOX, else CC_SERVER_SANDBOX; off in any case is off, anything else is on.
func Off(configured string, getenv func(string) string) bool {
	for _, text := range []string{configured, getenv("POSTERN_SANDBOX"), getenv("CC_SERVER_SANDBOX")} {
		if text = strings.TrimSpace(text); text != "" {
			return strings.EqualFold(text, "off")
		}
	}
	return false
}

// Prober probes once.
type Prober struct {
	options Options
	once    sync.Once
	ctx     context.Context //nolint:containedctx // the probe's own life, ended by Close
	cancel  context.CancelFunc
	done    chan struct{}
	result  Result
}

// New makes a Prober. Nothing is run before Start.
func New(o Options) *Prober {
	if o.Run == nil {
		o.Run = run
	}
	p := &Prober{options: o, done: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Start begins the one probe, and does not wait for it. Later calls do nothing.
func (p *Prober) Start() {
	p.once.Do(func() {
		go func() {
			defer close(p.done)
			p.result = p.probe()
			if p.ctx.Err() == nil {
				p.options.Log.LogAttrs(p.ctx, slog.LevelInfo, p.result.StartLine)
			}
		}()
	})
}

// Result waits for the probe, which it starts if nobody has.
func (p *Prober) Result(ctx context.Context) (Result, error) {
	p.Start() //nolint:contextcheck // the probe is everybody's: who asked first and went away does not end it
	select {
	case <-p.done:
		return p.result, nil
	case <-ctx.Done():
		return Result{}, fmt.Errorf("wait for the probe: %w", context.Cause(ctx))
	}
}

// Close ends a probe that is under way, and waits for it. It may be called again.
func (p *Prober) Close() {
	p.cancel()
	p.once.Do(func() { close(p.done) })
	<-p.done
}

func (p *Prober) probe() Result {
	r, err := p.ask()
	if err != nil {
		r = Result{Note: backend.Tool("").Note(runtime.GOOS), Backend: string(backend.None), Reason: ReasonLauncherFailed, Detail: err.Error(), Hint: "run postern doctor"}
		if missing, ok := errors.AsType[*missingError](err); ok {
			r.Reason, r.Hint = ReasonLauncherMissing, missing.cure
		}
	}
	r.Off = p.options.Off
	r.StartLine = backend.StartLine(r.Off, r.Available, r.Note, r.Hint)
	return r
}

func (p *Prober) ask() (Result, error) {
	exe, err := find(p.options.Launcher, launcherDirs())
	if err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithTimeout(p.ctx, runTimeout)
	defer cancel()
	said, err := p.options.Run(ctx, exe)
	if err != nil {
		return Result{}, fmt.Errorf("run %s: %w", exe, err)
	}
	var r Result
	if err := json.Unmarshal(said, &r); err != nil {
		return Result{}, fmt.Errorf("read what %s says: %w", exe, err)
	}
	if r.Note == "" || r.Backend == "" {
		return Result{}, fmt.Errorf("read what %s says: it is no probe", exe)
	}
	return r, nil
}

// run asks the launcher. Its environment is bare: what stands in ours is not for it.
func run(ctx context.Context, exe string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, exe, "probe", "--json")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "LC_ALL=C"}
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	said, err := io.ReadAll(io.LimitReader(out, maxAnswer+1))
	if err == nil && len(said) > maxAnswer {
		err = fmt.Errorf("it says more than %d bytes", maxAnswer)
		_ = cmd.Process.Kill()
	}
	werr := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](werr); ok && exit.ExitCode() == 1 {
		werr = nil // it found something in the way, and says what
	}
	return said, errors.Join(err, werr)
}

// missingError says that there is no launcher.
type missingError struct{ detail, cure string }

func (e *missingError) Error() string { return e.detail }

// launcherDirs are where the launcher is looked for: beside this program first, for they
// are built together.
func launcherDirs() []string {
	dirs := []string{"/usr/local/bin", "/usr/bin"}
	if exe, err := os.Executable(); err == nil {
		if target, err := filepath.EvalSymlinks(exe); err == nil {
			exe = target
		}
		dirs = append([]string{filepath.Dir(exe)}, dirs...)
	}
	return dirs
}

// find returns the launcher. It is run with this process's rights, so it must be a
// program that nobody else may write.
func find(configured string, dirs []string) (string, error) {
	candidates := []string{configured}
	if configured == "" {
		candidates = nil
		for _, dir := range dirs {
			candidates = append(candidates, filepath.Join(dir, "postern"))
		}
	}
	for _, path := range candidates {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("look for the launcher: %w", err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || int(st.Uid) != 0 && int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 || !info.Mode().IsRegular() {
			return "", fmt.Errorf("look for the launcher: %s is no program of this user or root that nobody else may write", path)
		}
		return path, nil
	}
	return "", &missingError{
		detail: "the launcher is missing: there is no " + strings.Join(candidates, ", nor "),
		cure:   "put postern beside caddy, or name it: sandbox { launcher PATH }",
	}
}
