package mint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-github/v60/github"

	"postern/gitgw"
)

// callTime bounds one minting or revocation, retry included. It is the context's
// and not the client's: go-github leaves the bodies of errors open, and each
// would hold a client's timer until it fires.
const callTime = 30 * time.Second

// asApp calls the API as the app. When the forge refuses the JWT, its clock may
// be another than ours: the answer's Date says so, and the call is made once
// more by that clock.
func (a *GitHubApp) asApp(call func(*github.Client) (*github.Response, error)) error {
	for attempt := 0; ; attempt++ {
		a.mu.Lock()
		skew := a.skew
		a.mu.Unlock()
		if a.Key == nil {
			return errors.New("the app has no key")
		}
		jwt, err := signJWT(a.Key, a.AppID, time.Now().Add(skew))
		if err != nil {
			return fmt.Errorf("sign as app: %w", err)
		}
		client, err := a.client(jwt)
		if err != nil {
			return err
		}
		resp, err := call(client)
		if err == nil || attempt > 0 || resp == nil || resp.StatusCode != http.StatusUnauthorized {
			return err
		}
		// The Date header is the forge's clock to the second (RFC 9110, 6.6.1),
		// and the JWT's window is nine minutes.
		date, dateErr := http.ParseTime(resp.Header.Get("Date"))
		if dateErr != nil {
			return err
		}
		a.mu.Lock()
		a.skew = time.Until(date)
		a.mu.Unlock()
	}
}

// client is a fresh API client that carries one credential. A fresh one also
// remembers no rate limit of an earlier push.
func (a *GitHubApp) client(bearer string) (*github.Client, error) {
	if a.Forge.API == nil {
		return nil, errors.New("the forge has no API address")
	}
	base := *a.Forge.API
	if !strings.HasSuffix(base.Path, "/") {
		base.Path += "/"
	}
	// Set by hand: WithEnterpriseURLs would append api/v3/ to addresses that need
	// none, as a proxy's in front of github.com.
	client := github.NewClient(a.http()).WithAuthToken(bearer)
	client.BaseURL = &base
	client.UserAgent = "postern"
	return client, nil
}

// http is the client used, made so that no redirect is followed: a credential
// goes to the configured address or nowhere.
func (a *GitHubApp) http() *http.Client {
	a.once.Do(func() {
		a.own = &http.Client{
			Transport: &http.Transport{Proxy: nil, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second},
		}
		// A copy, since the redirect policy is ours whoever owns the client.
		if a.HTTP != nil {
			given := *a.HTTP
			a.own = &given
		}
		a.own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	})
	return a.own
}

// Close drops idle connections to the API.
func (a *GitHubApp) Close() error {
	a.http().CloseIdleConnections()
	return nil
}

// reason turns an API error into words for git's output, each cause its own.
func (a *GitHubApp) reason(repo gitgw.Repo, err error) error {
	say := func(format string, args ...any) error {
		return &gitgw.MintError{Reason: gitgw.RedactLine(fmt.Sprintf(format, args...)), Err: safe(err)}
	}
	if limited, ok := errors.AsType[*github.RateLimitError](err); ok {
		return say("the GitHub API's rate limit is reached until %s", limited.Rate.Reset.UTC().Format("15:04 MST"))
	}
	if abuse, ok := errors.AsType[*github.AbuseRateLimitError](err); ok {
		return say("the GitHub API asks to wait %s", abuse.GetRetryAfter().Round(time.Second))
	}
	var answer *github.ErrorResponse
	if !errors.As(err, &answer) {
		// No answer of the API at all: the network, or something in between that
		// does not speak JSON.
		if errors.Is(err, context.DeadlineExceeded) {
			return say("the GitHub API did not answer in time")
		}
		return say("the GitHub API cannot be reached")
	}
	// 403 and 422 have several causes each, told apart only by their text. A text
	// that is not known falls through to one that quotes it.
	switch code := status(err); {
	case code == http.StatusUnauthorized:
		return say("the GitHub API does not accept the app's id and key")
	case code == http.StatusForbidden && strings.Contains(strings.ToLower(answer.Message), "suspended"):
		return suspended(repo, safe(err))
	case code == http.StatusTooManyRequests:
		return say("the GitHub API's rate limit is reached%s", untilWhen(answer.Response.Header))
	case code == http.StatusUnprocessableEntity && strings.Contains(strings.ToLower(answer.Message), "permission"):
		return say("the GitHub App's installation on %s lacks a permission it needs", repo.Owner())
	case code == http.StatusUnprocessableEntity:
		return notSelected(repo, err)
	case code == http.StatusNotFound:
		return say("the GitHub App's installation on %s is gone", repo.Owner())
	case code/100 == 3:
		return say("%s has moved: change the remote", repo.FullName())
	case code >= 500:
		return say("the GitHub API answered %d", code)
	default:
		return say("the GitHub API answered %d: %s", code, answer.Message)
	}
}

// untilWhen reads how long a limiter's answer wants us to wait: Retry-After in
// seconds, else the time at which the hour's budget is new. It is "" for neither.
func untilWhen(h http.Header) string {
	if seconds, err := strconv.Atoi(h.Get("Retry-After")); err == nil && seconds > 0 {
		return fmt.Sprintf(" for %s", time.Duration(seconds)*time.Second)
	}
	if at, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64); err == nil && at > 0 {
		return " until " + time.Unix(at, 0).UTC().Format("15:04 MST")
	}
	return ""
}

// suspended: somebody at the account has to lift the suspension.
func suspended(repo gitgw.Repo, cause error) error {
	return &gitgw.MintError{Reason: "the GitHub App's installation on " + repo.Owner() + " is suspended", Err: cause}
}

// notSelected: somebody at the account has to add the repository.
func notSelected(repo gitgw.Repo, cause error) error {
	return &gitgw.MintError{Reason: "the GitHub App is installed on " + repo.Owner() + ", but " + repo.FullName() + " is not selected", Err: safe(cause)}
}

// status is the HTTP status behind an API error, 0 without one.
func status(err error) int {
	var answer *github.ErrorResponse
	if errors.As(err, &answer) && answer.Response != nil {
		return answer.Response.StatusCode
	}
	if kept, ok := errors.AsType[*apiError](err); ok {
		return kept.code
	}
	return 0
}

// gone reports whether a remembered installation or id no longer holds.
func gone(err error) bool {
	code := status(err)
	return code == http.StatusNotFound || code == http.StatusUnprocessableEntity
}

// safe is an API error without what it carries along: go-github's own types
// hold the request, and with it the credential's header. Its text may be the forge's.
func safe(err error, known ...gitgw.Token) error {
	if err == nil {
		return nil
	}
	return &apiError{text: gitgw.Redact(err.Error(), known...), code: status(err)}
}

// apiError keeps an error's text and status.
type apiError struct {
	text string
	code int
}

func (e *apiError) Error() string { return e.text }
