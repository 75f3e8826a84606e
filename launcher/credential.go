package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http" //nolint:depguard // linked already, by the reader of settings; a client of our own would parse worse
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"postern/caddy-modules/session/lease"
)

// credentialCommand is how git calls credentialMain inside a run.
const credentialCommand = "credential"

//nolint:gosec // says how credentials are asked for, and is none
const credentialUsage = `postern credential GATEWAY get|store|erase is git's credential helper inside a run: it asks
the appliance, through the run's HTTP proxy, for the run's read token, which is renewed
before it expires. It speaks the protocol of git-credential(1) on its standard streams.
`

const (
	// credentialTimeout bounds the appliance's answer, which may have to mint.
	credentialTimeout = 30 * time.Second

	// maxCredentialInput bounds what git says of itself.
	maxCredentialInput = 64 << 10
)

func credentialMain(args []string, in io.Reader, out, stderr io.Writer) int {
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		_, _ = io.WriteString(out, credentialUsage)
		return 0
	}
	if len(args) != 2 {
		_, _ = io.WriteString(stderr, credentialUsage)
		return exitRefused
	}
	if args[1] != "get" {
		return 0 // nothing is kept here: store and erase have no meaning
	}
	proxy := os.Getenv("HTTP_PROXY")
	if proxy == "" {
		return 0 // not inside a run, or one that cleared its variables
	}
	ctx, cancel := context.WithTimeout(context.Background(), credentialTimeout)
	defer cancel()
	answer, err := credential(ctx, proxy, args[0], in)
	if err != nil {
		fmt.Fprintln(stderr, "postern:", printable(err.Error()))
		return 1
	}
	if _, err := out.Write(answer); err != nil {
		return 1
	}
	return 0
}

// credential answers one question of git's; nothing means that another helper may.
func credential(ctx context.Context, proxy, gateway string, in io.Reader) ([]byte, error) {
	host, err := credentialHost(in)
	if err != nil || host == "" {
		return nil, err
	}
	at, err := url.Parse(gateway)
	if err != nil || at.Scheme != "http" || at.Host == "" || at.User != nil {
		return nil, fmt.Errorf("ask for the read token: %q is no gateway", gateway)
	}
	at.Path, at.RawQuery = lease.ReadTokenPath, url.Values{"host": {host}}.Encode()
	resp, err := throughProxy(ctx, proxy, at)
	if err != nil {
		return nil, fmt.Errorf("ask for the read token: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return nil, nil
	case resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json":
		line, _ := bufio.NewReader(io.LimitReader(resp.Body, 500)).ReadString('\n')
		return nil, fmt.Errorf("ask for the read token: the appliance answered %d: %s", resp.StatusCode, strings.TrimSpace(line))
	}
	t, err := lease.DecodeReadToken(resp.Body)
	if err != nil {
		return nil, err
	}
	var answer bytes.Buffer
	answer.WriteString("username=x-access-token\npassword=" + t.Token + "\n")
	if !t.Expires.IsZero() {
		// git 2.40 and later then ask no other program to store it for longer.
		answer.WriteString("password_expiry_utc=" + strconv.FormatInt(t.Expires.Unix(), 10) + "\n")
	}
	return answer.Bytes(), nil
}

// credentialHost reads what git wants a credential for: lines of key=value, to the
// first empty one. It is "" for what is not asked for over HTTPS: a token never
// goes over a connection that others can read.
func credentialHost(in io.Reader) (string, error) {
	protocol, host := "", ""
	limited := &io.LimitedReader{R: in, N: maxCredentialInput}
	lines := bufio.NewScanner(limited)
	lines.Buffer(nil, maxCredentialInput)
	for lines.Scan() && lines.Text() != "" {
		switch key, value, _ := strings.Cut(lines.Text(), "="); key {
		case "protocol":
			protocol = value
		case "host":
			host = value
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("read what git asks for: %w", err)
	}
	if limited.N <= 0 {
		return "", errors.New("read what git asks for: it says too much")
	}
	if protocol != "https" {
		return "", nil
	}
	return host, nil
}

// throughProxy asks an HTTP proxy for a URL, on a connection for this question. The
// caller closes the body, and the connection with it.
func throughProxy(ctx context.Context, proxy string, at *url.URL) (*http.Response, error) {
	p, err := url.Parse(proxy)
	if err != nil || p.Scheme != "http" || p.Port() == "" {
		return nil, errors.New("HTTP_PROXY names no proxy of a run") // its text may hold what the proxy asks for
	}
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", p.Host)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		_ = c.Close()
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil) //nolint:gosec // git names the gateway that its configuration, ours, names
	if err == nil {
		req.Header.Set("User-Agent", "postern")
		req.Close = true
		if p.User != nil {
			password, _ := p.User.Password()
			req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(p.User.Username()+":"+password)))
		}
		err = req.WriteProxy(c)
	}
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(bufio.NewReader(c), req)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	resp.Body = bodyOf{resp.Body, c}
	return resp, nil
}

// bodyOf closes a response's connection with its body.
type bodyOf struct {
	io.ReadCloser
	conn net.Conn
}

func (b bodyOf) Close() error { return errors.Join(b.ReadCloser.Close(), b.conn.Close()) }
