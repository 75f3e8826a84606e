package mint

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/google/go-github/v60/github"

	"postern/gitgw"
)

// GitHubApp makes installation tokens of a GitHub App: each for one repository,
// with exactly the permissions of its access. Its fields are set before the
// first use.
type GitHubApp struct {
	// AppID is the app's client id (preferred by GitHub) or its number.
	AppID string
	// Key signs for the app; see [ParseKey].
	Key *rsa.PrivateKey
	// Forge says whose API is asked, and which repositories are its.
	Forge gitgw.Forge
	// HTTP reaches the API. nil means a client without proxy settings of the
	// environment. Redirects are never followed.
	HTTP *http.Client

	mu    sync.Mutex
	skew  time.Duration         // what the forge's clock is ahead of ours
	known map[gitgw.Repo]target // where a repository's tokens come from
	dead  map[string]time.Time  // tokens revoked a moment ago, by ID
	once  sync.Once
	own   *http.Client
}

// target is what stays the same between two pushes to one repository. Tokens
// are never kept.
type target struct {
	installation int64
	repository   int64 // 0 until the first token named it
}

// permissions are the exact permissions of an access. GitHub adds
// metadata:read to every token by itself. `workflows` is never asked for, so
// the forge refuses changes of .github/workflows.
func permissions(access gitgw.Access) (*github.InstallationPermissions, error) {
	switch access {
	case gitgw.Read:
		return &github.InstallationPermissions{
			Contents: new("read"), PullRequests: new("write"), Metadata: new("read"),
		}, nil
	case gitgw.Write:
		return &github.InstallationPermissions{Contents: new("write")}, nil
	case gitgw.Look:
		return &github.InstallationPermissions{Contents: new("read"), Metadata: new("read")}, nil
	default:
		return nil, fmt.Errorf("unknown access %d", access)
	}
}

// Mint makes a token for repo. One that writes is always asked for by the
// repository's id, which cannot come to mean another repository. The id is learned
// from the first token that does not write, which is asked for by name and checked
// against what the answer says it opens.
func (a *GitHubApp) Mint(ctx context.Context, repo gitgw.Repo, access gitgw.Access) (gitgw.Token, error) {
	// A key of one forge must never sign for another.
	if repo.Host() != a.Forge.Host {
		return gitgw.Token{}, &gitgw.MintError{Reason: "the GitHub App belongs to " + a.Forge.Host + ", not to " + repo.Host()}
	}
	wanted, err := permissions(access)
	if err != nil {
		return gitgw.Token{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	for {
		to, cached := a.recall(repo)
		switch {
		case cached:
		case access == gitgw.Write:
			to, err = a.identify(ctx, repo)
		default:
			to, err = a.find(ctx, repo)
		}
		if err != nil {
			return gitgw.Token{}, err
		}
		token, err := a.create(ctx, repo, to, wanted)
		if !cached || !gone(err) {
			return token, err
		}
		// The app was installed anew, or the repository made anew under its name.
		a.forget(repo)
	}
}

// Revoke ends a token. One that is already dead, by age or by an earlier
// revocation, is no error. The API says the same of a token that not all of its
// replicas know yet, so a young one is tried again, and is not taken for dead
// before it has grown older.
func (a *GitHubApp) Revoke(ctx context.Context, t gitgw.Token) error {
	client, err := a.client(t.Value())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	for {
		resp, err := client.Apps.RevokeInstallationToken(ctx)
		unknown := resp != nil && resp.StatusCode == http.StatusUnauthorized
		switch {
		case err == nil:
			a.bury(t)
			return nil
		case unknown && !a.young(t):
			return nil
		case !unknown:
			return fmt.Errorf("revoke %s: %w", t, safe(err, t))
		}
		select {
		case <-time.After(youngAgain):
		case <-ctx.Done():
			return fmt.Errorf("revoke %s: the API does not know it yet", t)
		}
	}
}

// Replication takes seconds; within youngFor a token that the API does not know
// may only be too new to be known, and is asked about again after youngAgain.
const (
	youngFor   = 15 * time.Second
	youngAgain = time.Second
)

// young reports whether a token was minted a moment ago by the forge's clock, and
// not revoked since. An installation's tokens live for an hour; one that does not
// say is not young.
func (a *GitHubApp) young(t gitgw.Token) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, dead := a.dead[t.ID()]
	return !dead && t.Expires().Sub(time.Now().Add(a.skew)) > time.Hour-youngFor
}

// bury remembers a token that was revoked for as long as it would be young.
func (a *GitHubApp) bury(t gitgw.Token) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for id, at := range a.dead {
		if now.Sub(at) > youngFor {
			delete(a.dead, id)
		}
	}
	if a.dead == nil {
		a.dead = make(map[string]time.Time)
	}
	a.dead[t.ID()] = now
}

// find asks which installation covers repo.
func (a *GitHubApp) find(ctx context.Context, repo gitgw.Repo) (target, error) {
	var found *github.Installation
	err := a.asApp(func(client *github.Client) (resp *github.Response, err error) {
		found, resp, err = client.Apps.FindRepositoryInstallation(ctx, repo.Owner(), repo.Name())
		return resp, err
	})
	if status(err) == http.StatusNotFound {
		return target{}, a.whyNotFound(ctx, repo, err)
	}
	if status(err)/100 == 3 {
		return target{}, a.whereTo(ctx, repo, err)
	}
	if err != nil {
		return target{}, a.reason(repo, err)
	}
	if found.SuspendedAt != nil {
		return target{}, suspended(repo, nil)
	}
	return target{installation: found.GetID()}, nil
}

// whyNotFound tells an app that is not installed from one that is installed on
// the account without this repository, which the API answers alike.
func (a *GitHubApp) whyNotFound(ctx context.Context, repo gitgw.Repo, cause error) error {
	notInstalled := &gitgw.MintError{Reason: "the GitHub App is not installed on " + repo.FullName(), Err: safe(cause)}
	options := &github.ListOptions{PerPage: 100}
	for range 10 {
		var installed []*github.Installation
		var resp *github.Response
		err := a.asApp(func(client *github.Client) (_ *github.Response, err error) {
			installed, resp, err = client.Apps.ListInstallations(ctx, options)
			return resp, err
		})
		if err != nil {
			return notInstalled
		}
		for _, i := range installed {
			switch {
			case !strings.EqualFold(i.GetAccount().GetLogin(), repo.Owner()):
			case i.SuspendedAt != nil:
				return suspended(repo, safe(cause))
			default:
				return notSelected(repo, cause)
			}
		}
		// An app of a thousand accounts is asked ten times at most; the reason is
		// then a little less exact.
		if options.Page = resp.NextPage; options.Page == 0 {
			break
		}
	}
	return notInstalled
}

// create asks for the token and holds the answer to the question.
func (a *GitHubApp) create(ctx context.Context, repo gitgw.Repo, to target, wanted *github.InstallationPermissions) (gitgw.Token, error) {
	options := &github.InstallationTokenOptions{Permissions: wanted}
	// By name only the first time: names can be given to another repository.
	if to.repository != 0 {
		options.RepositoryIDs = []int64{to.repository}
	} else {
		options.Repositories = []string{repo.Name()}
	}
	var made *github.InstallationToken
	err := a.asApp(func(client *github.Client) (resp *github.Response, err error) {
		made, resp, err = client.Apps.CreateInstallationToken(ctx, to.installation, options)
		return resp, err
	})
	if err != nil {
		return gitgw.Token{}, a.reason(repo, err)
	}
	token := gitgw.NewToken(made.GetToken(), made.GetExpiresAt().Time)
	id, err := checkToken(made, repo, wanted)
	if err != nil {
		// It opens more or other than was asked: it must not live.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return gitgw.Token{}, &gitgw.MintError{Reason: gitgw.RedactLine(err.Error(), token), Err: a.Revoke(ctx, token)}
	}
	a.remember(repo, target{to.installation, id})
	return token, nil
}

// checkToken compares a token's own description with what was asked. It returns
// the repository's id.
func checkToken(made *github.InstallationToken, repo gitgw.Repo, wanted *github.InstallationPermissions) (int64, error) {
	if made.GetToken() == "" {
		return 0, errors.New("the GitHub API gave no token")
	}
	// An API that ignored the restriction lists none: the token opens everything.
	if len(made.Repositories) != 1 {
		return 0, fmt.Errorf("the GitHub API gave a token for %d repositories", len(made.Repositories))
	}
	only := made.Repositories[0]
	if only.GetID() == 0 || !strings.EqualFold(only.GetFullName(), repo.FullName()) {
		return 0, fmt.Errorf("%s is now %s: change the remote", repo.FullName(), only.GetFullName())
	}
	given := made.GetPermissions()
	if given == nil || !samePermissions(*given, *wanted) {
		return 0, errors.New("the GitHub API gave a token with other permissions")
	}
	return only.GetID(), nil
}

// samePermissions compares all but metadata:read, which comes with any other.
func samePermissions(a, b github.InstallationPermissions) bool {
	a.Metadata, b.Metadata = nil, nil
	return reflect.DeepEqual(a, b)
}

// recall finds what an earlier push learned.
func (a *GitHubApp) recall(repo gitgw.Repo) (target, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	to, ok := a.known[repo]
	return to, ok
}

func (a *GitHubApp) remember(repo gitgw.Repo, to target) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil {
		a.known = make(map[gitgw.Repo]target)
	}
	a.known[repo] = to
}

func (a *GitHubApp) forget(repo gitgw.Repo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.known, repo)
}

var _ gitgw.Minter = (*GitHubApp)(nil)
