package approve

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
	"strings"
	"time"

	"postern/gitgw"
)

// maxAnswer bounds an approver's answer in bytes.
const maxAnswer = 64 << 10

// HTTP asks a program on this host: it POSTs the [gitgw.Question] as JSON and
// waits for 200 and a JSON object
//
//	{"allowed": true, "by": "ada", "reason": "…"}
//
// The program may take as long as the question's deadline allows; when the
// pushing client goes away, the request is cancelled.
type HTTP struct {
	url     string
	timeout time.Duration
	client  *http.Client
}

// NewHTTP makes an approver for an address: a Unix socket as unix//run/x.sock
// (asked at path /), or an http URL whose host is a loopback address or
// localhost. A question never leaves the host, since it names what people work
// on. timeout 0 leaves the limit to the gateway.
func NewHTTP(address string, timeout time.Duration) (*HTTP, error) {
	if timeout < 0 {
		return nil, fmt.Errorf("configure approver %q: negative timeout", address)
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	transport := &http.Transport{Proxy: nil, DisableCompression: true, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute}
	h := &HTTP{timeout: timeout, client: &http.Client{
		Transport: transport,
		// Only the configured program may answer.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	// The form of Caddy's network addresses: unix/ and then an absolute path.
	if path, ok := strings.CutPrefix(address, "unix/"); ok {
		path = filepath.Clean(path)
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("configure approver %q: want an absolute path, as in unix//run/approver.sock", address)
		}
		h.url = "http://approver/"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		return h, nil
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("configure approver %q: %w", address, err)
	}
	if u.Scheme != "http" || u.User != nil || u.Fragment != "" || !loopback(u.Hostname()) {
		return nil, fmt.Errorf("configure approver %q: want unix//PATH or http://127.0.0.1:PORT/PATH", u.Redacted())
	}
	h.url = u.String()
	// The name localhost could be anything by the time it is asked.
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if host, port, err := net.SplitHostPort(addr); err == nil && strings.EqualFold(host, "localhost") {
			addr = net.JoinHostPort("127.0.0.1", port)
		}
		return dialer.DialContext(ctx, network, addr)
	}
	return h, nil
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

// Connected is always true: whether the program is there shows when it is
// asked, and the refusal then says what is wrong.
func (h *HTTP) Connected() bool { return true }

// Close drops idle connections.
func (h *HTTP) Close() error {
	h.client.CloseIdleConnections()
	return nil
}

// Ask puts the question to the program.
func (h *HTTP) Ask(ctx context.Context, q gitgw.Question) (gitgw.Answer, error) {
	if h.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.timeout)
		defer cancel()
	}
	body, err := json.Marshal(q)
	if err != nil {
		return gitgw.Answer{}, fmt.Errorf("encode question: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return gitgw.Answer{}, fmt.Errorf("prepare question: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.client.Do(req)
	if err != nil {
		// The cause holds an address, which is no business of the client's.
		if ctx.Err() != nil {
			return gitgw.Answer{}, &askError{"the approver did not answer in time", err}
		}
		return gitgw.Answer{}, &askError{"the approver cannot be reached", err}
	}
	defer func() { _ = resp.Body.Close() }()
	// 200 and nothing else: a redirect or a 202 is not a yes.
	if resp.StatusCode != http.StatusOK {
		return gitgw.Answer{}, &askError{fmt.Sprintf("the approver answered %d", resp.StatusCode), nil}
	}
	answer, err := decodeAnswer(resp)
	if err != nil {
		if ctx.Err() != nil {
			return gitgw.Answer{}, &askError{"the approver did not answer in time", err}
		}
		return gitgw.Answer{}, &askError{"the approver gave no usable answer", err}
	}
	return answer, nil
}

// decodeAnswer is strict, because a misspelt field of a yes is a yes to
// something else.
func decodeAnswer(resp *http.Response) (gitgw.Answer, error) {
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return gitgw.Answer{}, errors.New("not application/json")
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return gitgw.Answer{}, fmt.Errorf("read: %w", err)
	}
	if len(body) > maxAnswer {
		return gitgw.Answer{}, fmt.Errorf("more than %d bytes", maxAnswer)
	}
	// A pointer tells false from absent: an empty object decides nothing.
	var wire struct {
		Allowed *bool  `json:"allowed"`
		By      string `json:"by"`
		Reason  string `json:"reason"`
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&wire); err != nil {
		return gitgw.Answer{}, fmt.Errorf("decode: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return gitgw.Answer{}, errors.New("more than one JSON value")
	}
	if wire.Allowed == nil {
		return gitgw.Answer{}, errors.New("no field allowed")
	}
	return gitgw.Answer{Allowed: *wire.Allowed, By: wire.By, Reason: wire.Reason}, nil
}

// askError shows its reason and keeps its cause.
type askError struct {
	reason string
	err    error
}

func (e *askError) Error() string { return e.reason }
func (e *askError) Unwrap() error { return e.err }

var _ gitgw.Approver = (*HTTP)(nil)
