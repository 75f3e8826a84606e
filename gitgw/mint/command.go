package mint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"postern/gitgw"
)

const (
	commandTime   = 10 * time.Second
	commandOutput = 64 << 10
)

// Command asks a program for tokens, for forges and vaults that have no minter
// of their own. The program is started without a shell and gets one JSON object
// on its standard input:
//
//	{"action":"mint","access":"write","host":"github.com","owner":"acme","name":"app"}
//
// access is "write" for a push, "read" for a run's own token and "look" for
// listing refs. The program answers on standard output with
//
//	{"token":"…","expires_at":"2026-01-02T15:04:05Z"}
//
// or with the token alone on one line. A token to be revoked comes as
// {"action":"revoke","token":"…"}; a program that cannot revoke exits 0.
// Nothing secret is passed in arguments or the environment, where other
// processes could read it.
type Command struct {
	// Argv is the program and its arguments. The program is an absolute path or
	// found in PATH.
	Argv []string
	// Timeout bounds one run, by default 10 s. When it ends, the program and
	// everything it started are killed.
	Timeout time.Duration
}

type commandRequest struct {
	Action string `json:"action"`
	Access string `json:"access,omitempty"`
	Host   string `json:"host,omitempty"`
	Owner  string `json:"owner,omitempty"`
	Name   string `json:"name,omitempty"`
	Token  string `json:"token,omitempty"`
}

// Mint runs the program and reads its token.
func (c *Command) Mint(ctx context.Context, repo gitgw.Repo, access gitgw.Access) (gitgw.Token, error) {
	out, err := c.run(ctx, commandRequest{
		Action: "mint", Access: access.String(), Host: repo.Host(), Owner: repo.Owner(), Name: repo.Name(),
	})
	if err != nil {
		return gitgw.Token{}, err
	}
	token, err := parseCommandToken(out)
	if err != nil {
		return gitgw.Token{}, &gitgw.MintError{Reason: "the token command gave no token", Err: err}
	}
	return token, nil
}

// Revoke runs the program with the token to end.
func (c *Command) Revoke(ctx context.Context, t gitgw.Token) error {
	_, err := c.run(ctx, commandRequest{Action: "revoke", Token: t.Value()})
	return err
}

// run starts the program once. Errors never hold its standard output, which may
// be the token, but the last line of its standard error.
func (c *Command) run(ctx context.Context, req commandRequest) ([]byte, error) {
	if len(c.Argv) == 0 {
		return nil, &gitgw.MintError{Reason: "no token command is configured"}
	}
	timeout := c.Timeout
	if timeout == 0 {
		timeout = commandTime
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	in, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encode request to the token command: %w", err)
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Stdin = bytes.NewReader(append(in, '\n'))
	stdout, stderr := &boundedBuffer{left: commandOutput}, &boundedBuffer{left: commandOutput}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// A child that keeps the pipes open must not hold the push longer.
	cmd.WaitDelay = time.Second
	killGroup(cmd)
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, &gitgw.MintError{Reason: "the token command did not answer in time", Err: ctx.Err()}
	case stdout.full:
		return nil, &gitgw.MintError{Reason: "the token command said too much", Err: fmt.Errorf("more than %d bytes", commandOutput)}
	case err != nil:
		return nil, &gitgw.MintError{Reason: "the token command failed", Err: fmt.Errorf("%w: %s", err, said(stderr.buf.Bytes(), req.Token))}
	}
	return stdout.buf.Bytes(), nil
}

// parseCommandToken reads an object or one bare line.
func parseCommandToken(out []byte) (gitgw.Token, error) {
	out = bytes.TrimSpace(out)
	if bytes.HasPrefix(out, []byte("{")) {
		var answer struct {
			Token     string    `json:"token"`
			ExpiresAt time.Time `json:"expires_at"`
		}
		if err := json.Unmarshal(out, &answer); err != nil {
			// The decoder's error may quote the input.
			return gitgw.Token{}, errors.New("malformed JSON")
		}
		return checkedToken(answer.Token, answer.ExpiresAt)
	}
	return checkedToken(string(out), time.Time{})
}

// checkedToken accepts what can stand in a header and nothing else.
func checkedToken(value string, expires time.Time) (gitgw.Token, error) {
	if value == "" {
		return gitgw.Token{}, errors.New("empty")
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return gitgw.Token{}, errors.New("more than one word of ASCII")
	}
	return gitgw.NewToken(value, expires), nil
}

// boundedBuffer keeps the first bytes and notes when there were more. The
// program is not blocked by what is thrown away.
//
// The buffer is not embedded: its ReadFrom would be found by io.Copy and read
// past the bound.
type boundedBuffer struct {
	buf  bytes.Buffer
	left int
	full bool
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	b.full = b.full || n < len(p)
	b.buf.Write(p[:n])
	return len(p), nil
}

// said is the last line of what the program said of its failure, which may quote
// the token.
func said(b []byte, token string) string {
	b = bytes.TrimSpace(b)
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		b = b[i+1:]
	}
	const most = 1000 // of which a part is shown
	return fmt.Sprintf("%q", gitgw.RedactLine(string(b[:min(len(b), most)]), gitgw.NewToken(token, time.Time{})))
}

var _ gitgw.Minter = (*Command)(nil)
