package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"time"
)

// connectCommand is how ssh calls connectMain inside a run.
const connectCommand = "__connect"

const connectUsage = `postern connect HOST PORT joins its standard streams to HOST through the SOCKS proxy
that POSTERN_SOCKS names. Inside a run on Linux this program is /run/postern/postern, for
whatever speaks over its standard streams; ssh, scp and git find it there by themselves.
`

// connectTimeout bounds the proxy's answer; it has to resolve and dial.
const connectTimeout = 60 * time.Second

func connectMain(args []string, in io.Reader, out, stderr io.Writer) int {
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		_, _ = io.WriteString(out, connectUsage)
		return 0
	}
	if len(args) != 2 {
		_, _ = io.WriteString(stderr, connectUsage)
		return exitRefused
	}
	if err := connect(os.Getenv("POSTERN_SOCKS"), args[0], args[1], in, out); err != nil {
		fmt.Fprintln(stderr, "postern:", printable(err.Error()))
		return 1
	}
	return 0
}

// connect opens host:port through the SOCKS5 proxy at proxyURL and copies both ways
// until the far side is done.
func connect(proxyURL, host, port string, in io.Reader, out io.Writer) error {
	u, err := url.Parse(proxyURL)
	if err != nil || u.Host == "" {
		return fmt.Errorf("connect to %s: POSTERN_SOCKS names no proxy; this works inside a run only", host)
	}
	request, err := socksRequest(host, port)
	if err != nil {
		return err
	}
	c, err := net.DialTimeout("tcp", u.Host, 10*time.Second) //nolint:gosec // the run's own proxy, inside its own network
	if err != nil {
		return fmt.Errorf("connect to %s: %w", host, err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(connectTimeout)); err != nil {
		return fmt.Errorf("connect to %s: %w", host, err)
	}
	if err := socksConnect(c, u.User, request); err != nil {
		return fmt.Errorf("connect to %s port %s: %w", host, port, err)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return fmt.Errorf("connect to %s: %w", host, err)
	}
	go func() {
		_, _ = io.Copy(c, in)
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.CloseWrite() // the far side may still have something to say
		}
	}()
	if _, err := io.Copy(out, c); err != nil {
		return fmt.Errorf("read from %s: %w", host, err)
	}
	return nil
}

// socksRequest writes a CONNECT of RFC 1928, section 4. Names travel as names: they
// are resolved where the rules are.
func socksRequest(host, port string) ([]byte, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return nil, fmt.Errorf("connect to %s: %q is not a port", host, port)
	}
	request := []byte{5, 1, 0}
	if ip := net.ParseIP(host); ip == nil {
		if host == "" || len(host) > 255 {
			return nil, fmt.Errorf("connect to %q: not a host name", host)
		}
		request = append(append(request, 3, byte(len(host))), host...) //nolint:gosec // at most 255, see above
	} else if v4 := ip.To4(); v4 != nil {
		request = append(append(request, 1), v4...)
	} else {
		request = append(append(request, 4), ip.To16()...)
	}
	return append(request, byte(n>>8), byte(n)), nil //nolint:gosec // a port has two bytes
}

// socksReplies words the reply codes of RFC 1928, section 6.
var socksReplies = map[byte]string{
	1: "the proxy failed",
	2: "denied by the policy of this run; do not retry another way",
	3: "the network is unreachable",
	4: "the host is unreachable, or its name does not resolve",
	5: "the host refused the connection",
	6: "the connection took too long",
	7: "the proxy does not do that",
	8: "the proxy does not know that kind of address",
}

// socksConnect greets the proxy and sends the request. Without user the listener a
// connection comes in on is the run's identity, with it what RFC 1929 asks for.
func socksConnect(c io.ReadWriter, user *url.Userinfo, request []byte) error {
	method := byte(0)
	if user != nil {
		method = 2
	}
	if _, err := c.Write([]byte{5, 1, method}); err != nil {
		return err
	}
	var hello [2]byte
	if _, err := io.ReadFull(c, hello[:]); err != nil {
		return fmt.Errorf("greet the proxy: %w", err)
	}
	if hello != [2]byte{5, method} {
		return errors.New("greet the proxy: it wants a password, or is no SOCKS5 proxy")
	}
	if user != nil {
		if err := socksLogin(c, user); err != nil {
			return err
		}
	}
	if _, err := c.Write(request); err != nil {
		return err
	}
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return fmt.Errorf("ask the proxy: %w", err)
	}
	if head[1] != 0 {
		why, ok := socksReplies[head[1]]
		if !ok {
			why = fmt.Sprintf("the proxy answered %d", head[1])
		}
		return errors.New(why)
	}
	// The bound address means nothing here, but must be read to its end.
	var size int
	switch head[3] {
	case 1:
		size = net.IPv4len
	case 4:
		size = net.IPv6len
	case 3:
		var n [1]byte
		if _, err := io.ReadFull(c, n[:]); err != nil {
			return fmt.Errorf("ask the proxy: %w", err)
		}
		size = int(n[0])
	default:
		return fmt.Errorf("ask the proxy: it answered with an address of kind %d", head[3])
	}
	if _, err := io.ReadFull(c, make([]byte, size+2)); err != nil {
		return fmt.Errorf("ask the proxy: %w", err)
	}
	return nil
}

// socksLogin says who we are (RFC 1929, section 2).
func socksLogin(c io.ReadWriter, user *url.Userinfo) error {
	name := user.Username()
	password, _ := user.Password()
	if name == "" || len(name) > 255 || len(password) > 255 {
		return errors.New("log in at the proxy: the credentials in POSTERN_SOCKS are none")
	}
	b := append([]byte{1, byte(len(name))}, name...)        //nolint:gosec // at most 255, see above
	b = append(append(b, byte(len(password))), password...) //nolint:gosec // at most 255, see above
	if _, err := c.Write(b); err != nil {
		return err
	}
	var answer [2]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return fmt.Errorf("log in at the proxy: %w", err)
	}
	if answer != [2]byte{1, 0} {
		return errors.New("log in at the proxy: it does not take the credentials in POSTERN_SOCKS")
	}
	return nil
}
