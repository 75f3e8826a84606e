package gitgateway

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"postern/caddy-modules/egress"
	"postern/gitgw"
	"postern/gitgw/mint"
)

func init() {
	caddy.RegisterModule(GitHubApp{})
	caddy.RegisterModule(Static{})
	caddy.RegisterModule(Command{})
}

// MinterSource is what a module of the namespace gitgw.minters must be. It makes
// the minter of one gateway, for the forges of that gateway. The minter outlives
// the module: requests in flight, and the tokens that sessions hold, end with the
// minter they began with.
type MinterSource interface {
	NewMinter(forges []gitgw.Forge) (gitgw.Minter, error)

	// Lends reports whether sessions are given read tokens of the minter.
	Lends() bool
}

// GitHubApp makes installation tokens of a GitHub App, each for one repository
// and with no more rights than its purpose needs: `contents:write` for a push,
// `contents:read` and `pull_requests:write` for a session. They are revoked when
// the push or the session ends.
type GitHubApp struct {
	// The app's client id, or its number.
	AppID string `json:"app_id"`

	// The file with the app's private key in PEM. It is read when the
	// configuration is loaded, and when it is validated.
	KeyFile string `json:"key_file"`

	// The forge the app belongs to. Default: the only one of the gateway.
	Forge string `json:"forge,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (GitHubApp) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "gitgw.minters.github_app",
		New: func() caddy.Module { return new(GitHubApp) },
	}
}

// Validate checks that the settings are complete.
func (m *GitHubApp) Validate() error {
	switch {
	case m.AppID == "":
		return errors.New("app_id is missing")
	case m.KeyFile == "":
		return errors.New("key_file is missing")
	}
	return nil
}

// NewMinter implements [MinterSource].
func (m *GitHubApp) NewMinter(forges []gitgw.Forge) (gitgw.Minter, error) {
	forge, ok := findForge(forges, m.Forge)
	switch {
	case m.Forge == "" && len(forges) == 1:
		forge = forges[0]
	case m.Forge == "":
		return nil, errors.New("github_app: the gateway has several forges; name the app's with forge")
	case !ok:
		return nil, fmt.Errorf("github_app: the gateway has no forge %q", m.Forge)
	}
	id, err := resolve("app_id", m.AppID)
	if err != nil {
		return nil, fmt.Errorf("github_app: %w", err)
	}
	path, err := resolve("key_file", m.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("github_app: %w", err)
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("github_app: read app key: %w", err)
	}
	key, err := mint.ParseKey(pem)
	if err != nil {
		return nil, fmt.Errorf("github_app: key file %s: %w", path, err)
	}
	return &mint.GitHubApp{AppID: id, Key: key, Forge: forge}, nil
}

// Lends implements [MinterSource].
func (*GitHubApp) Lends() bool { return true }

// UnmarshalCaddyfile sets up the minter from Caddyfile tokens. Syntax:
//
//	github_app APP_ID {
//		key_file PATH
//		forge    HOST
//	}
func (m *GitHubApp) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	begin := d.Token()
	if !d.AllArgs(&m.AppID) {
		return egress.Want(d, "token github_app APP_ID { key_file PATH }")
	}
	if err := options(d, "github_app", map[string]option{"key_file": text("PATH", &m.KeyFile), "forge": text("HOST", &m.Forge)}); err != nil {
		return err
	}
	return invalid(begin, m.Validate(), "token github_app APP_ID { key_file PATH }")
}

// Static hands out fixed tokens, for forges without apps. They are the
// operator's, reach whatever they reach, and are never revoked: prefer a minter
// that makes one for each push.
type Static struct {
	// The token that pushes. It may be a placeholder, as in {env.PUSH_TOKEN} or
	// {file./run/secrets/push}, so that it does not stand in the configuration.
	Write string `json:"write"`

	// The token that sessions are given. It must not be able to push. Default:
	// none; then sessions have no token.
	Read string `json:"read,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Static) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "gitgw.minters.static",
		New: func() caddy.Module { return new(Static) },
	}
}

// Validate checks that sessions do not get the token that pushes.
func (m *Static) Validate() error {
	switch m.Write {
	case "":
		return errors.New("write is missing")
	case m.Read:
		return errors.New("read is the token that pushes; a session must not have it")
	}
	return nil
}

// NewMinter implements [MinterSource].
func (m *Static) NewMinter([]gitgw.Forge) (gitgw.Minter, error) {
	write, err := secret("write", m.Write)
	if err != nil {
		return nil, err
	}
	read := ""
	if m.Read != "" {
		if read, err = secret("read", m.Read); err != nil {
			return nil, err
		}
	}
	if read == write {
		return nil, errors.New("static: read resolves to the token that pushes; a session must not have it")
	}
	return mint.NewStatic(write, read), nil
}

// Lends implements [MinterSource].
func (m *Static) Lends() bool { return m.Read != "" }

// UnmarshalCaddyfile sets up the minter from Caddyfile tokens. Syntax:
//
//	static {
//		write TOKEN
//		read  TOKEN
//	}
func (m *Static) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	begin := d.Token()
	if d.NextArg() {
		return egress.Want(d, "token static { write TOKEN; read TOKEN }, a line each")
	}
	if err := options(d, "static", map[string]option{"write": text("TOKEN", &m.Write), "read": text("TOKEN", &m.Read)}); err != nil {
		return err
	}
	return invalid(begin, m.Validate(), "token static { write TOKEN; read TOKEN }, a line each")
}

// Command asks a program for tokens, for forges and vaults that have no minter of
// their own. The program gets one JSON object on its standard input,
//
//	{"action":"mint","access":"write","host":"…","owner":"…","name":"…"}
//
// and answers with {"token":"…","expires_at":"…"} or the token alone. Tokens to be
// revoked come as {"action":"revoke","token":"…"}.
type Command struct {
	// The program and its arguments. No shell is involved.
	Command []string `json:"command"`

	// The longest one run may take. Default: 10s.
	Timeout caddy.Duration `json:"timeout,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Command) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "gitgw.minters.command",
		New: func() caddy.Module { return new(Command) },
	}
}

// Validate checks that there is a program.
func (m *Command) Validate() error {
	switch {
	case len(m.Command) == 0 || m.Command[0] == "":
		return errors.New("command is missing")
	case m.Timeout < 0:
		return errors.New("timeout is negative")
	}
	return nil
}

// NewMinter implements [MinterSource].
func (m *Command) NewMinter([]gitgw.Forge) (gitgw.Minter, error) {
	// A mistyped program is better found now than by the first push.
	if _, err := exec.LookPath(m.Command[0]); err != nil {
		return nil, fmt.Errorf("command: find the program: %w", err)
	}
	return &mint.Command{Argv: m.Command, Timeout: time.Duration(m.Timeout)}, nil
}

// Lends implements [MinterSource].
func (*Command) Lends() bool { return true }

// UnmarshalCaddyfile sets up the minter from Caddyfile tokens. Syntax:
//
//	command PROGRAM [ARG…] [{
//		timeout DURATION
//	}]
func (m *Command) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	begin := d.Token()
	if m.Command = d.RemainingArgs(); len(m.Command) == 0 {
		return egress.Want(d, "token command PROGRAM [ARG…] [{ timeout DURATION }]")
	}
	if err := options(d, "command", map[string]option{"timeout": duration("timeout", &m.Timeout)}); err != nil {
		return err
	}
	return invalid(begin, m.Validate(), "token command PROGRAM [ARG…] [{ timeout DURATION }]")
}

// invalid tells of a module that lacks something at the line where it begins.
func invalid(begin caddyfile.Token, err error, syntax string) error {
	if err == nil {
		return nil
	}
	return egress.At(begin, fmt.Errorf("%w; want %s", err, syntax))
}

// secret resolves the placeholders of a token: of an empty one the forge would only say
// that it does not know us.
func secret(name, text string) (string, error) {
	value, err := resolve(name, text)
	if err != nil {
		return "", fmt.Errorf("static: %w", err)
	}
	return value, nil
}

// Interface guards
var (
	_ MinterSource          = (*GitHubApp)(nil)
	_ caddy.Validator       = (*GitHubApp)(nil)
	_ caddyfile.Unmarshaler = (*GitHubApp)(nil)
	_ MinterSource          = (*Static)(nil)
	_ caddy.Validator       = (*Static)(nil)
	_ caddyfile.Unmarshaler = (*Static)(nil)
	_ MinterSource          = (*Command)(nil)
	_ caddy.Validator       = (*Command)(nil)
	_ caddyfile.Unmarshaler = (*Command)(nil)
)
