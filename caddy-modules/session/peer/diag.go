package peer

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"
)

// Numbers and layouts of linux/netlink.h, linux/sock_diag.h and
// linux/inet_diag.h. They are part of the kernel's ABI.
const (
	headerSize = 16 // struct nlmsghdr
	idSize     = 48 // struct inet_diag_sockid
	askSize    = 8 + idSize
	tellSize   = 4 + idSize + 20 // struct inet_diag_msg

	typeError    = 2  // NLMSG_ERROR
	typeByFamily = 20 // SOCK_DIAG_BY_FAMILY
	flagRequest  = 1  // NLM_F_REQUEST; without NLM_F_DUMP: one socket
	protocolTCP  = 6
	familyIPv4   = 2
	familyIPv6   = 10

	offsetUID   = 4 + idSize + 12
	offsetInode = 4 + idSize + 16
)

// States of a TCP socket (net/tcp_states.h) in which the connection is one that
// was accepted here and its process still holds it. A socket that is only
// connecting (2) may be another one, which got the same port after the first.
const (
	stateEstablished = 1
	stateFinWait1    = 4 // after a half-close
	stateFinWait2    = 5
)

// question asks for the one socket that has both addresses of p.
func question(p pair, seq uint32) []byte {
	b := make([]byte, headerSize+askSize)
	n := binary.NativeEndian
	n.PutUint32(b, headerSize+askSize)
	n.PutUint16(b[4:], typeByFamily)
	n.PutUint16(b[6:], flagRequest)
	n.PutUint32(b[8:], seq)
	body := b[headerSize:]
	body[0], body[1] = family(p.local.Addr()), protocolTCP
	n.PutUint32(body[4:], ^uint32(0)) // every state
	copy(body[8:], sockID(p))
	return b
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return familyIPv4
	}
	return familyIPv6
}

// sockID is struct inet_diag_sockid: ports and addresses in network order, any
// interface, and no cookie (all ones).
func sockID(p pair) []byte {
	id := make([]byte, idSize)
	binary.BigEndian.PutUint16(id, p.local.Port())
	binary.BigEndian.PutUint16(id[2:], p.remote.Port())
	copy(id[4:20], p.local.Addr().AsSlice())
	copy(id[20:36], p.remote.Addr().AsSlice())
	for i := 40; i < idSize; i++ {
		id[i] = 0xff
	}
	return id
}

// answer reads the user out of the kernel's answer to question(p, seq).
func answer(b []byte, p pair, seq uint32) (uint32, error) {
	n := binary.NativeEndian
	if len(b) < headerSize {
		return 0, fmt.Errorf("an answer of %d bytes: %w", len(b), ErrUnknown)
	}
	size := int(n.Uint32(b))
	if size < headerSize || size > len(b) || n.Uint32(b[8:]) != seq {
		return 0, fmt.Errorf("an answer to something else: %w", ErrUnknown)
	}
	body := b[headerSize:size]
	switch kind := n.Uint16(b[4:]); {
	case kind == typeError && len(body) >= 4:
		errno := syscall.Errno(-int32(n.Uint32(body))) //nolint:gosec // a negative error number
		return 0, fmt.Errorf("%w: %w", errno, ErrUnknown)
	case kind != typeByFamily || len(body) < tellSize:
		return 0, fmt.Errorf("an answer of type %d with %d bytes: %w", kind, len(body), ErrUnknown)
	}
	// Where there is no such connection the kernel goes on to listeners of the
	// port; that one is not asked for. Interface and cookie are as they are.
	if body[0] != family(p.local.Addr()) || string(body[4:40]) != string(sockID(p)[:36]) {
		return 0, fmt.Errorf("an answer about another socket: %w", ErrUnknown)
	}
	switch body[1] {
	case stateEstablished, stateFinWait1, stateFinWait2:
	default:
		return 0, ErrGone
	}
	// A socket without a file is one that its process has closed. Its user
	// reads 0 then, which must not be taken for root.
	if n.Uint32(body[offsetInode:]) == 0 {
		return 0, ErrGone
	}
	return n.Uint32(body[offsetUID:]), nil
}
