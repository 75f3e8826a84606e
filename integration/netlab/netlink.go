//go:build linux

package netlab

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// netlink is a NETLINK_ROUTE socket used for one request at a time
// (rtnetlink(7)). All numbers are in the machine's byte order.
type netlink struct {
	fd  int
	seq uint32
}

func dialNetlink() (*netlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("bind netlink: %w", err)
	}
	return &netlink{fd: fd}, nil
}

func (n *netlink) close() { _ = unix.Close(n.fd) }

// linkUp sets IFF_UP; the kernel adds 127.0.0.1 and ::1 to lo by itself.
func (n *netlink) linkUp(index int) error {
	return n.request(unix.RTM_NEWLINK, 0, bytesOf(unix.IfInfomsg{
		Family: unix.AF_UNSPEC, Index: int32(index), Flags: unix.IFF_UP, Change: unix.IFF_UP,
	}))
}

// addAddr gives the link an IPv4 address.
func (n *netlink) addAddr(index int, p netip.Prefix) error {
	addr := p.Addr().AsSlice()
	return n.request(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, bytesOf(unix.IfAddrmsg{
		Family: unix.AF_INET, Prefixlen: uint8(p.Bits()), Scope: unix.RT_SCOPE_UNIVERSE, Index: uint32(index),
	}), attr(unix.IFA_LOCAL, addr), attr(unix.IFA_ADDRESS, addr))
}

// routeLocal is `ip route add local 0.0.0.0/0 dev lo`, or its IPv6 brother.
func (n *netlink) routeLocal(index int, family uint8) error {
	msg := unix.RtMsg{
		Family: family, Table: unix.RT_TABLE_LOCAL, Protocol: unix.RTPROT_BOOT,
		Scope: unix.RT_SCOPE_HOST, Type: unix.RTN_LOCAL,
	}
	if family == unix.AF_INET6 {
		msg.Scope = unix.RT_SCOPE_UNIVERSE // IPv6 routes have no other
	}
	oif := make([]byte, 4)
	binary.NativeEndian.PutUint32(oif, uint32(index))
	return n.request(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, bytesOf(msg), attr(unix.RTA_OIF, oif))
}

// request sends one message and waits for its acknowledgement.
func (n *netlink) request(kind, flags uint16, parts ...[]byte) error {
	n.seq++
	size := unix.SizeofNlMsghdr
	for _, p := range parts {
		size += len(p)
	}
	msg := bytesOf(unix.NlMsghdr{
		Len: uint32(size), Type: kind, Flags: unix.NLM_F_REQUEST | unix.NLM_F_ACK | flags, Seq: n.seq,
	})
	for _, p := range parts {
		msg = append(msg, p...)
	}
	if err := unix.Sendto(n.fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send netlink request: %w", err)
	}
	buf := make([]byte, 8192)
	for {
		got, _, err := unix.Recvfrom(n.fd, buf, 0)
		if err != nil {
			return fmt.Errorf("read netlink answer: %w", err)
		}
		// An acknowledgement is an nlmsgerr: header, then a negative errno or 0.
		if got < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint32(buf[8:]) != n.seq {
			continue
		}
		if binary.NativeEndian.Uint16(buf[4:]) != unix.NLMSG_ERROR {
			continue
		}
		if code := int32(binary.NativeEndian.Uint32(buf[unix.SizeofNlMsghdr:])); code != 0 {
			return unix.Errno(-code)
		}
		return nil
	}
}

// attr is one rtattr, padded to four bytes.
func attr(kind uint16, value []byte) []byte {
	out := make([]byte, (unix.SizeofRtAttr+len(value)+3)&^3)
	binary.NativeEndian.PutUint16(out, uint16(unix.SizeofRtAttr+len(value)))
	binary.NativeEndian.PutUint16(out[2:], kind)
	copy(out[unix.SizeofRtAttr:], value)
	return out
}

// bytesOf is a kernel struct as it lies in memory. T must hold no pointers and
// no padding; the four used here do not.
func bytesOf[T unix.NlMsghdr | unix.IfInfomsg | unix.IfAddrmsg | unix.RtMsg](v T) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v))...)
}
