package mint

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-github/v60/github"

	"postern/gitgw"
)

// identifyFor bounds the revocation of a token that was made for its answer alone.
const identifyFor = 5 * time.Second

// identify learns where a repository's tokens come from and what its id is, by a
// token that reads and is revoked at once: nothing else tells an app the id. Runs
// have such a token mostly, and listings do, so that few pushes come here.
func (a *GitHubApp) identify(ctx context.Context, repo gitgw.Repo) (target, error) {
	var by gitgw.Minter = a
	if recorder, ok := ctx.Value(recorderKey{}).(gitgw.Minter); ok {
		by = recorder
	}
	token, err := by.Mint(ctx, repo, gitgw.Look)
	if err != nil {
		return target{}, err
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), identifyFor)
	defer cancel()
	// The ledger tries again; the token reads, and for an hour at most.
	_ = by.Revoke(ending, token)
	to, ok := a.recall(repo)
	if !ok {
		// Another push has found at this moment that it is gone.
		return target{}, &gitgw.MintError{Reason: "the GitHub App's installation on " + repo.Owner() + " has just changed: push again"}
	}
	return to, nil
}

// whereTo says what a repository is called now that the API has answered with a
// redirect to its id. The redirect itself is not followed: of its address only the
// id is taken, and asked for at the configured one.
func (a *GitHubApp) whereTo(ctx context.Context, repo gitgw.Repo, cause error) error {
	moved := a.reason(repo, cause)
	id, ok := a.redirectedID(cause)
	if !ok {
		return moved
	}
	var found *github.Installation
	err := a.asApp(func(client *github.Client) (resp *github.Response, err error) {
		found, resp, err = client.Apps.FindRepositoryInstallationByID(ctx, id)
		return resp, err
	})
	if err != nil {
		return moved
	}
	wanted, err := permissions(gitgw.Look)
	if err != nil {
		return err
	}
	// A token of that id is not repo's: it is given back, and the error names the
	// repository that it opens.
	token, err := a.create(ctx, repo, target{found.GetID(), id}, wanted)
	if err == nil {
		// It is called as before, after all.
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), identifyFor)
		defer cancel()
		return errors.Join(moved, a.Revoke(ending, token))
	}
	if told, ok := errors.AsType[*gitgw.MintError](err); ok && strings.Contains(told.Reason, " is now ") {
		return told
	}
	return moved
}

// redirectedID reads the id out of a redirect to API/repositories/ID/installation.
func (a *GitHubApp) redirectedID(err error) (int64, bool) {
	var answer *github.ErrorResponse
	if !errors.As(err, &answer) || answer.Response == nil || answer.Response.StatusCode == http.StatusNotModified {
		return 0, false
	}
	at, err := answer.Response.Location()
	if err != nil || a.Forge.API == nil || at.Scheme != a.Forge.API.Scheme || at.Host != a.Forge.API.Host {
		return 0, false
	}
	rest, ok := strings.CutPrefix(at.Path, strings.TrimSuffix(a.Forge.API.Path, "/")+"/repositories/")
	text, isInstallation := strings.CutSuffix(rest, "/installation")
	id, err := strconv.ParseInt(text, 10, 64)
	return id, ok && isInstallation && err == nil && id > 0
}
