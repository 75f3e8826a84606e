package gitgw

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
)

// userAgent begins as git's does, which is how forges tell git from browsers.
const userAgent = "git/postern"

// upstream speaks to one repository's forge. Every request is built from the
// repository's canonical name and carries no header of the client's: not its
// Authorization or Cookie, and not Git-Protocol, which would change the answer.
type upstream struct {
	forge Forge
	repo  Repo
	rt    http.RoundTripper
	// silence is how long a listing may come to nothing, 0 for ever.
	silence time.Duration
}

// upstreamError is an answer, or the lack of one, that ends a push. Error is
// fit for git's output.
type upstreamError struct {
	host     string
	status   int    // 0: no HTTP answer
	location string // of a redirect, without query
	text     string // what the forge said, one line
	err      error
}

func (e *upstreamError) Error() string {
	switch {
	case e.location != "":
		return fmt.Sprintf("%s says the repository has moved to %s: change the remote", e.host, e.location)
	case e.status >= 300 && e.status < 400:
		return fmt.Sprintf("%s answered %d, a redirect that is not followed", e.host, e.status)
	case e.status != 0 && e.text != "":
		return fmt.Sprintf("%s answered %d: %s", e.host, e.status, e.text)
	case e.status != 0:
		return fmt.Sprintf("%s answered %d", e.host, e.status)
	case codeOf(e.err, "") != "":
		c, _ := errors.AsType[*coded](e.err)
		return c.Error()
	case errors.Is(e.err, context.DeadlineExceeded):
		return e.host + " did not answer in time"
	}
	var op *net.OpError
	if errors.As(e.err, &op) && op.Op == "dial" {
		return e.host + " cannot be reached"
	}
	return e.host + " ended the connection"
}

func (e *upstreamError) Unwrap() error { return e.err }

// again reports whether a new token may be the reason: 401, 403 and 404 are
// what forges answer until every replica knows it, and 5xx passes too.
func (e *upstreamError) again() bool {
	return e.status == http.StatusUnauthorized || e.status == http.StatusForbidden ||
		e.status == http.StatusNotFound || e.status >= 500
}

// request prepares a request with the token as git itself would send it.
func (u *upstream) request(ctx context.Context, method string, at *url.URL, body io.Reader, t Token) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, at.String(), body)
	if err != nil {
		return nil, fmt.Errorf("prepare request to %s: %w", u.forge.Host, err)
	}
	req.Header.Set("User-Agent", userAgent)
	if !t.IsZero() {
		req.Header.Set("Authorization", "Basic "+basicAuth(t.Value()))
	}
	return req, nil
}

// do sends req once. It goes below http.Client, so that no redirect is ever
// followed and no cookie kept.
func (u *upstream) do(req *http.Request, wantType string) (*http.Response, error) {
	// One attempt. The transport itself repeats a request only if no byte of its
	// body was read, so a pack is never sent twice.
	resp, err := u.rt.RoundTrip(req)
	if err != nil {
		if cause := context.Cause(req.Context()); cause != nil {
			err = errors.Join(err, cause)
		}
		return nil, &upstreamError{host: u.forge.Host, err: err}
	}
	// The type is part of the protocol: a login page with status 200 is the usual
	// answer of what stands between.
	if resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Type") == wantType {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	// Here the token is known, whatever its shape.
	r := redactorOf([]Token{tokenOf(req)})
	e := &upstreamError{host: u.forge.Host, status: resp.StatusCode, text: r.text(firstLine(resp))}
	if resp.StatusCode == http.StatusOK {
		e.text = "but not as a git server"
	}
	if at, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		e.location = r.text(u.placeOf(at))
	}
	return nil, e
}

// tokenOf is the token that request gave a request.
func tokenOf(req *http.Request) Token {
	_, value, _ := req.BasicAuth()
	return NewToken(value, time.Time{})
}

// placeOf is a redirect's target as a person would write it.
func (u *upstream) placeOf(at *url.URL) string {
	// Without the query, which may carry a credential, and without what git
	// appended.
	path := at.Path
	for _, service := range []string{"/info/refs", "/git-receive-pack"} {
		path = strings.TrimSuffix(path, service)
	}
	return at.Scheme + "://" + at.Host + strings.TrimSuffix(path, ".git")
}

// firstLine reads a plain-text answer's first line; forges put their reason
// there.
func firstLine(resp *http.Response) string {
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		return ""
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	return line
}

// refs asks for a service's advertisement. protocol is the value of the
// Git-Protocol header, "" for version 0.
func (u *upstream) refs(ctx context.Context, service, protocol string, t Token) (*http.Response, error) {
	at := u.forge.repoURL(u.repo, "info", "refs")
	at.RawQuery = "service=" + service
	req, err := u.request(ctx, http.MethodGet, at, nil, t)
	if err != nil {
		return nil, err
	}
	if protocol != "" {
		req.Header.Set("Git-Protocol", protocol)
	}
	return u.heard(req, func(req *http.Request) (*http.Response, error) {
		return u.do(req, "application/x-"+service+"-advertisement")
	})
}

// retrying calls try until it succeeds, fails for good or pauses are used up.
// waiting is told before each pause.
func retrying[T any](ctx context.Context, pauses []time.Duration, waiting func(error), try func() (T, error)) (T, error) {
	for i := 0; ; i++ {
		v, err := try()
		var up *upstreamError
		if err == nil || i == len(pauses) || !errors.As(err, &up) || !up.again() {
			return v, err
		}
		waiting(err)
		// The client may leave meanwhile; then the last error stands.
		select {
		case <-time.After(pauses[i]):
		case <-ctx.Done():
			return v, err
		}
	}
}

// preflight fetches receive-pack's advertisement with the write token. It
// proves the token before the pack is spent on it, warms the connection, and
// says what the forge's receive-pack offers.
func (u *upstream) preflight(ctx context.Context, t Token) (Capabilities, error) {
	resp, err := u.refs(ctx, "git-receive-pack", "", t)
	if err != nil {
		return Capabilities{}, err
	}
	defer func() {
		// Reading to the end lets the connection be used again; past 1 MiB a new
		// one is cheaper.
		_, _ = io.CopyN(io.Discard, resp.Body, 1<<20)
		_ = resp.Body.Close()
	}()
	ad, err := openAdvertisement(resp.Body, "git-receive-pack")
	if err != nil {
		return Capabilities{}, &upstreamError{host: u.forge.Host, status: resp.StatusCode, text: err.Error()}
	}
	return ad.capabilities, nil
}

// objectFormat asks by protocol version 2, which names the hash even where
// there is no ref: version 0 says nothing at all of an empty repository.
func (u *upstream) objectFormat(ctx context.Context, t Token) (string, error) {
	resp, err := u.refs(ctx, "git-upload-pack", "version=2", t)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	scan := pktline.NewScanner(bufio.NewReader(io.LimitReader(resp.Body, 64<<10)))
	format := "sha1"
	for scan.Scan() {
		line := bytes.TrimSuffix(scan.Bytes(), []byte("\n"))
		if value, ok := bytes.CutPrefix(line, []byte("object-format=")); ok {
			format = string(value)
		}
	}
	if format != "sha1" && format != "sha256" {
		return "", &upstreamError{host: u.forge.Host, status: resp.StatusCode, text: "unknown object-format " + quote(format)}
	}
	return format, nil
}
