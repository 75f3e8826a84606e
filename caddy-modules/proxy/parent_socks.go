package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
)

// socksHandshake asks for a connection (RFC 1928), with a user and a password
// where there are some (RFC 1929). Every message is read by its length.
func (p *Parent) socksHandshake(conn *net.TCPConn, to string) error {
	user, password, login, err := p.credentials()
	if err != nil {
		return err
	}
	if len(user) > 255 || len(password) > 255 {
		return errors.New("read the credentials of the parent proxy: SOCKS carries 255 bytes of each at most")
	}
	request, err := parentRequest(to)
	if err != nil {
		return err
	}
	greeting := []byte{socksVersion, 1, methodNone}
	if login {
		greeting = []byte{socksVersion, 2, methodNone, methodLogin}
	}
	var answer [4]byte
	if err := saySocksParent(conn, greeting, answer[:2]); err != nil {
		return err
	}
	switch {
	case answer[0] != socksVersion:
		return fmt.Errorf("%w: its answer is not SOCKS5", errRefusedByParent)
	case answer[1] == methodNone:
	case answer[1] == methodLogin && login:
		message := append([]byte{loginVersion, byte(len(user))}, user...)   //nolint:gosec // at most 255
		message = append(append(message, byte(len(password))), password...) //nolint:gosec // at most 255
		if err := saySocksParent(conn, message, answer[:2]); err != nil {
			return err
		}
		if answer[0] != loginVersion || answer[1] != loginAccepted {
			return parentSays("it wants other credentials, status", int(answer[1]))
		}
	default:
		return parentSays("it wants to be logged in to by method", int(answer[1]))
	}
	if err := saySocksParent(conn, request, answer[:]); err != nil {
		return err
	}
	switch {
	case answer[0] != socksVersion || answer[2] != 0:
		return fmt.Errorf("%w: its answer is not SOCKS5", errRefusedByParent)
	case answer[1] != replySucceeded:
		return parentSays("reply", int(answer[1]))
	}
	return skipBound(conn, answer[3])
}

// saySocksParent writes a message and reads exactly the bytes of its answer.
func saySocksParent(conn *net.TCPConn, message, answer []byte) error {
	if _, err := conn.Write(message); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, answer); err != nil {
		return parentEnded(err)
	}
	return nil
}

func parentEnded(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it closed the connection inside its answer", errRefusedByParent)
	}
	return err
}

// skipBound reads the bound address, which says nothing that is needed.
func skipBound(conn *net.TCPConn, kind byte) error {
	var b [256 + 2]byte
	size := 0
	switch kind {
	case addressIPv4:
		size = 4
	case addressIPv6:
		size = 16
	case addressName:
		if _, err := io.ReadFull(conn, b[:1]); err != nil {
			return parentEnded(err)
		}
		size = int(b[0])
	default:
		return fmt.Errorf("%w: its answer is not SOCKS5", errRefusedByParent)
	}
	if _, err := io.ReadFull(conn, b[:size+2]); err != nil {
		return parentEnded(err)
	}
	return nil
}

// parentRequest is the request for a host and port: an address by its bytes, a
// name as text.
func parentRequest(to string) ([]byte, error) {
	host, text, err := net.SplitHostPort(to)
	if err != nil {
		return nil, fmt.Errorf("ask the parent proxy: %w", err)
	}
	port, err := net.LookupPort("tcp", text)
	if err != nil {
		return nil, fmt.Errorf("ask the parent proxy: %w", err)
	}
	b := []byte{socksVersion, commandConnect, 0}
	addr, err := netip.ParseAddr(host)
	switch {
	case err == nil && addr.Is4():
		b = append(append(b, addressIPv4), addr.AsSlice()...)
	case err == nil:
		b = append(append(b, addressIPv6), addr.AsSlice()...)
	case len(host) > 255:
		return nil, errors.New("ask the parent proxy: the name is too long")
	default:
		b = append(append(b, addressName, byte(len(host))), host...) //nolint:gosec // at most 255
	}
	return binary.BigEndian.AppendUint16(b, uint16(port)), nil //nolint:gosec // a port
}
