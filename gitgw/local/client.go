package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Client asks one program. It is safe for concurrent use.
type Client struct {
	what   string
	url    string
	client *http.Client
}

// New makes a client for an address: a Unix socket as unix//run/x.sock (asked at
// path /), or an http URL whose host is a loopback address or localhost. what names
// the program in errors, as in "approver".
func New(what, address string) (*Client, error) {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	transport := &http.Transport{Proxy: nil, DisableCompression: true, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute}
	c := &Client{what: what, client: &http.Client{
		Transport: transport,
		// Only the configured program may answer.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	// The form of Caddy's network addresses: unix/ and then an absolute path.
	if path, ok := strings.CutPrefix(address, "unix/"); ok {
		path, err := socketPath(path)
		if err != nil {
			return nil, fmt.Errorf("configure %s %q: %w", what, address, err)
		}
		c.url = "http://host/"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		return c, nil
	}
	u, err := url.Parse(address)
	if err != nil {
		// The text of a *url.Error holds the address, which may hold a password.
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return nil, fmt.Errorf("configure %s: parse address: %w; want unix//PATH or http://127.0.0.1:PORT/PATH", what, err)
	}
	if u.Scheme != "http" || u.User != nil || u.Fragment != "" || !loopback(u.Hostname()) {
		return nil, fmt.Errorf("configure %s %q: want unix//PATH or http://127.0.0.1:PORT/PATH", what, u.Redacted())
	}
	if err := checkPort(u); err != nil {
		return nil, fmt.Errorf("configure %s %q: %w", what, address, err)
	}
	c.url = u.String()
	// The name localhost could be anything by the time it is asked.
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if host, port, err := net.SplitHostPort(addr); err == nil && strings.EqualFold(host, "localhost") {
			addr = net.JoinHostPort("127.0.0.1", port)
		}
		return dialer.DialContext(ctx, network, addr)
	}
	return c, nil
}

// socketPath checks a path at which a socket may be: what no system could connect to
// would be found out by the first question.
func socketPath(path string) (string, error) {
	const longest = 103 // of macOS; Linux takes 107
	clean := filepath.Clean(path)
	switch {
	case !filepath.IsAbs(clean) || clean == "/":
		return "", errors.New("want an absolute path, as in unix//run/host.sock")
	case strings.HasSuffix(path, "/"):
		return "", errors.New("names a folder; want the socket in it, as in unix//run/host.sock")
	case strings.ContainsAny(path, "\x00|"):
		return "", errors.New("want the path of a socket alone; its permissions are set by the program that listens")
	case len(clean) > longest:
		return "", fmt.Errorf("the path is %d bytes long, and a socket's at most %d", len(clean), longest)
	}
	return clean, nil
}

// checkPort refuses a port that cannot be connected to. Without one it is 80.
func checkPort(u *url.URL) error {
	port := u.Port()
	if port == "" && !strings.HasSuffix(u.Host, ":") {
		return nil
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
		return fmt.Errorf("%q is no port; want 1 to 65535", port)
	}
	return nil
}

// loopback reports whether host cannot be another machine. Names are not looked
// up: only localhost is one.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback() && addr.Zone() == ""
}

// Close drops idle connections.
func (c *Client) Close() error {
	c.client.CloseIdleConnections()
	return nil
}

// Ask posts question as JSON and decodes the answer into answer, see [Decode]. An
// answer is 200, application/json and at most limit bytes; anything else is none.
// Errors are *[Error]. The request is cancelled when ctx ends.
func (c *Client) Ask(ctx context.Context, question, answer any, limit int64) error {
	body, err := json.Marshal(question)
	if err != nil {
		return c.fail("cannot be asked", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return c.fail("cannot be asked", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.client.Do(req)
	if err != nil {
		// The cause holds an address, which is no business of the client's.
		return c.late(ctx, "cannot be reached", err)
	}
	defer func() { _ = resp.Body.Close() }()
	// 200 and nothing else: a redirect or a 202 is not a yes.
	if resp.StatusCode != http.StatusOK {
		return c.fail(fmt.Sprintf("answered %d", resp.StatusCode), nil)
	}
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return c.Unusable(errors.New("not application/json"))
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return c.late(ctx, "gave no usable answer", fmt.Errorf("read: %w", err))
	}
	if int64(len(data)) > limit {
		return c.Unusable(fmt.Errorf("more than %d bytes", limit))
	}
	if err := Decode(data, answer); err != nil {
		return c.Unusable(err)
	}
	return nil
}

// late tells an answer that came too late from one that did not come.
func (c *Client) late(ctx context.Context, why string, err error) error {
	if ctx.Err() != nil {
		why = "did not answer in time"
	}
	return c.fail(why, err)
}

// Unusable is the error for an answer that decides nothing.
func (c *Client) Unusable(err error) error { return c.fail("gave no usable answer", err) }

func (c *Client) fail(why string, err error) error {
	return &Error{Reason: "the " + c.what + " " + why, Err: err}
}

// Error is why there is no answer. Its text is fit for git's output; the cause, for
// the log, is not: it may hold an address.
type Error struct {
	Reason string
	Err    error
}

func (e *Error) Error() string { return e.Reason }
func (e *Error) Unwrap() error { return e.Err }
