package gitgw

import "context"

// Access is what a token may do in its one repository.
type Access uint8

const (
	// Read is a run's own token: contents:read, pull_requests:write,
	// metadata:read. It cannot push.
	Read Access = iota + 1
	// Write is a push's token: contents:write. Without workflows:write the forge
	// itself protects .github/workflows.
	Write
	// Look is what the gateway needs to list a repository's refs: contents:read.
	Look
)

// String names the access in logs and to token commands.
func (a Access) String() string {
	switch a {
	case Read:
		return "read"
	case Write:
		return "write"
	case Look:
		return "look"
	default:
		return "none"
	}
}

// Minter obtains tokens. Implementations are safe for concurrent use, mint for
// exactly the repository and access asked, and keep no token.
type Minter interface {
	// Mint makes a token. Errors are *MintError where a person can be told why.
	Mint(ctx context.Context, repo Repo, access Access) (Token, error)
	// Revoke ends a token that Mint made. A token that is already dead is no
	// error.
	Revoke(ctx context.Context, t Token) error
}

// MintError says why there is no token, in words for git's output.
type MintError struct {
	// Reason is one line without token and prefix, as in "the GitHub App is not
	// installed on acme/app".
	Reason string
	// Err is the cause for the log, or nil.
	Err error
}

func (e *MintError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.Err.Error()
}

func (e *MintError) Unwrap() error { return e.Err }
