package gitgw

import (
	"context"
	"slices"
)

// Caller is the run that pushes, as whoever owns the connection knows it. The
// gateway believes nothing the client says of itself.
type Caller struct {
	Session   string
	Agent     string
	Workspace string
	// Own is the repository of the run's worktree; Linked are those its
	// workspace links. A push to any other repository is refused.
	Own    Repo
	Linked []Repo
	// ReadToken gives the run's own token for a repository, if it has one. May
	// be nil. The gateway never revokes what it got here.
	ReadToken func(ctx context.Context, repo Repo) (Token, bool)
	// Ended is closed when the run ends; nil means that nobody will say. Nothing
	// is begun in its name from then on. What is under way is aborted at once, but
	// for a push that the forge has whole: it gets Limits.Grace to be reported.
	Ended <-chan struct{}
	// Hold makes the run's end wait until release is called, because something is
	// still to be done in its name, such as revoking a token. ok is false when the
	// end has come too far for that. May be nil.
	Hold func() (release func(), ok bool)
}

// mayName reports whether repo is the caller's own or a linked one.
func (c Caller) mayName(repo Repo) bool {
	return !repo.IsZero() && (repo == c.Own || slices.Contains(c.Linked, repo))
}

type callerKey struct{}

// WithCaller puts the caller into a request's context. The handler in front of
// the gateway does this for every request.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom finds what [WithCaller] put.
func CallerFrom(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}
