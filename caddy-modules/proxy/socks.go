package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"syscall"

	"postern/caddy-modules/policy"
)

// Numbers of RFC 1928.
const (
	socksVersion = 5

	methodNone         = 0x00
	methodLogin        = 0x02
	methodUnacceptable = 0xFF

	commandConnect = 1

	addressIPv4 = 1
	addressName = 3
	addressIPv6 = 4

	replySucceeded          = 0
	replyFailure            = 1
	replyDenied             = 2
	replyNetworkUnreachable = 3
	replyHostUnreachable    = 4
	replyRefused            = 5
	replyNoCommand          = 7
	replyNoAddressType      = 8
)

// socksError is a handshake that is refused. reply is what to answer, unless
// silent says that the client would not understand it.
type socksError struct {
	reply  byte
	silent bool
	reason string
}

func (e *socksError) Error() string { return "socks: " + e.reason }

// errShort says that a message is not complete yet.
var errShort = errors.New("socks: more bytes needed")

// serveSOCKS runs one SOCKS5 connection: greeting, request, tunnel. Both messages
// may come in one packet, with the first bytes of the tunnel behind them.
func (f *flow) serveSOCKS() {
	// The stage the flow began with is the limit of the whole handshake.
	method := byte(methodNone)
	if f.s.Login != nil {
		method = methodLogin
	}
	if err := f.socksMessage(func(b []byte) (int, error) { return readGreeting(b, method) }); err != nil {
		f.refuseSocks(err, func(reply byte) []byte { return []byte{socksVersion, reply} })
		return
	}
	if _, err := f.client.Write([]byte{socksVersion, method}); err != nil {
		return
	}
	if method == methodLogin && !f.socksLogin() {
		return
	}
	var t policy.Target
	err := f.socksMessage(func(b []byte) (n int, err error) {
		t, n, err = readSocksRequest(b)
		return n, err
	})
	if err != nil {
		f.refuseSocks(err, socksReply)
		return
	}
	ru := f.rule(f.meant(t))
	r, err := f.open(&ru, ProtoSOCKS5)
	if f.isEnded() {
		return
	}
	if err != nil {
		f.failed(ProtoSOCKS5, &ru, err)
		f.saySocks(socksReply(replyFor(err)))
		return
	}
	f.tunnel(r, ProtoSOCKS5, socksReply(replySucceeded))
}

// socksMessage reads until parse is content, and consumes what it read.
func (f *flow) socksMessage(parse func([]byte) (int, error)) error {
	for {
		n, err := parse(f.in.bytes())
		switch {
		case err == nil:
			f.in.discard(n)
			return nil
		case !errors.Is(err, errShort):
			return err
		}
		if err := f.in.fill(smallSize); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return &socksError{silent: true, reason: "the handshake did not end in time"}
			}
			return &socksError{silent: true, reason: "the connection ended inside the handshake"}
		}
	}
}

// readGreeting reads version and methods (RFC 1928 section 3), of which one is
// taken: "none" where the listener belongs to the session alone, for BSD nc
// knows no other.
func readGreeting(b []byte, method byte) (int, error) {
	switch {
	case len(b) == 0:
		return 0, errShort
	case b[0] == 4:
		// SOCKS4 has no names and 4a ends them with NUL: not offered.
		return 0, &socksError{silent: true, reason: "version 4 is not offered"}
	case b[0] != socksVersion:
		return 0, &socksError{silent: true, reason: "not SOCKS"}
	case len(b) < 2:
		return 0, errShort
	}
	n := 2 + int(b[1])
	if len(b) < n {
		return 0, errShort
	}
	if bytes.IndexByte(b[2:n], method) >= 0 {
		return n, nil
	}
	reason := "the client does not offer to go without authentication"
	if method == methodLogin {
		reason = "the client does not offer the credentials of the session"
	}
	return 0, &socksError{reply: methodUnacceptable, reason: reason}
}

// readSocksRequest reads a request (RFC 1928 section 4). Only CONNECT is served:
// BIND would listen for the client, UDP ASSOCIATE would relay what no policy
// reads. A name is taken as text and goes through the same parser as any other.
func readSocksRequest(b []byte) (t policy.Target, n int, err error) {
	refuse := func(reply byte, reason string) (policy.Target, int, error) {
		return policy.Target{}, 0, &socksError{reply: reply, reason: reason}
	}
	switch {
	case len(b) >= 1 && b[0] != socksVersion:
		return refuse(replyFailure, "another version in the request than in the greeting")
	case len(b) >= 2 && b[1] != commandConnect:
		return refuse(replyNoCommand, "a command other than CONNECT")
	case len(b) >= 3 && b[2] != 0:
		return refuse(replyFailure, "the reserved byte is not zero")
	case len(b) < 5:
		return policy.Target{}, 0, errShort
	}
	var size, start int
	switch b[3] {
	case addressIPv4:
		start, size = 4, 4
	case addressIPv6:
		start, size = 4, 16
	case addressName:
		start, size = 5, int(b[4])
	default:
		return refuse(replyNoAddressType, "unknown address type")
	}
	end := start + size
	if len(b) < end+2 {
		return policy.Target{}, 0, errShort
	}
	var host policy.Host
	if b[3] == addressName {
		host, err = policy.ParseName(string(b[start:end]))
		if err != nil {
			return refuse(replyFailure, err.Error())
		}
	} else {
		a, _ := netip.AddrFromSlice(b[start:end])
		host = policy.HostFromAddr(a)
	}
	t, err = policy.TunnelTarget(host, binary.BigEndian.Uint16(b[end:]))
	if err != nil {
		return refuse(replyFailure, err.Error())
	}
	return t, end + 2, nil
}

// socksReply is a reply without a bound address: which address of the host the
// connection left from is nothing a sandbox needs to know.
func socksReply(code byte) []byte {
	return []byte{socksVersion, code, 0, addressIPv4, 0, 0, 0, 0, 0, 0}
}

// replyFor is the code for a target that was not opened.
func replyFor(err error) byte {
	dial, ok := errors.AsType[*DialError](err)
	switch {
	case isDenied(err):
		if denied, _ := errors.AsType[*Denied](err); isCap(denied.Decision.Code) {
			return replyFailure
		}
		return replyDenied
	case !ok:
		return replyFailure
	case errors.Is(err, syscall.ECONNREFUSED):
		return replyRefused
	case errors.Is(err, syscall.ENETUNREACH):
		return replyNetworkUnreachable
	case dial.Op == OpLookup, errors.Is(err, syscall.EHOSTUNREACH), dial.Late:
		return replyHostUnreachable
	default:
		return replyFailure
	}
}

func (f *flow) refuseSocks(err error, message func(byte) []byte) {
	f.noteMalformed(err)
	refused, ok := errors.AsType[*socksError](err)
	if !ok || refused.silent {
		f.saySocks(nil)
		return
	}
	f.saySocks(message(refused.reply))
}

// saySocks writes the last bytes of a handshake that led nowhere.
func (f *flow) saySocks(b []byte) {
	f.watch.stage(farewell, func() { f.abort(CauseError) })
	if len(b) > 0 {
		if _, err := f.client.Write(b); err != nil {
			return
		}
	}
	f.linger()
}
