package sandbox

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A sandbox's loopback gets addresses by ioctl on a socket of its network: that asks for
// the rights of the caller, where a netlink socket asks for those of whoever made it as
// well, and that is PID 1, who has none.

// secondAddress makes that programs ask for IPv4 addresses at all: with AI_ADDRCONFIG
// the C library asks only for what the host has, and does not count 127.0.0.1. One of the
// fake range does as well.
var secondAddress = netip.MustParsePrefix("127.0.0.2/8")

// addAddresses gives the loopback what o asks for. Where there is no IPv6, or it cannot
// have these addresses, o loses its sockets of IPv6: a run does as well without.
//
// PID 1 has handed out a socket for each of o.Low, of which one at least is of IPv4.
func (p *Process) addAddresses(o *Options) error {
	fd, ok := p.spare.any(false)
	if !ok {
		return fmt.Errorf("add address %s: the inside of the sandbox has made no socket of IPv4", secondAddress)
	}
	if err := addAddresses4(fd, o.Any); err != nil || !o.Any {
		return err
	}
	fd, ok = p.spare.any(true)
	if !ok || o.noIPv6 || addRange6(fd, fakeRange6) != nil {
		o.Low = withoutIPv6(o.Low)
	}
	return nil
}

// addAddresses4 adds one address: each takes a lock of the whole system's networks.
//
// On a loopback interface, and on no other, an address of IPv4 brings the whole of its
// network along: the kernel takes each of them for its own.
func addAddresses4(fd int, ranges bool) error {
	addr := secondAddress
	if ranges {
		addr = netip.PrefixFrom(fakeRange4.Addr().Next(), fakeRange4.Bits())
	}
	ip := addr.Addr().As4()
	err := setAddress(fd, unix.SIOCSIFADDR, ip[:])
	if err == nil && ranges { // the other has the mask of its class already
		err = setAddress(fd, unix.SIOCSIFNETMASK, net.CIDRMask(addr.Bits(), 32))
	}
	if err != nil {
		return fmt.Errorf("add address %s: %w", addr, err)
	}
	return nil
}

func setAddress(fd int, request uint, ip []byte) error {
	req, err := unix.NewIfreq("lo:1")
	if err != nil {
		return err
	}
	if err := req.SetInet4Addr(ip); err != nil {
		return err
	}
	return unix.IoctlIfreq(fd, request, req)
}

// What <linux/ipv6.h> and <linux/ipv6_route.h> call in6_ifreq and in6_rtmsg.
type (
	in6Ifreq struct {
		addr    [16]byte
		prefix  uint32
		ifindex int32
	}
	in6Rtmsg struct {
		dst, src, gateway [16]byte
		kind              uint32
		dstLen, srcLen    uint16
		metric            uint32
		info              uint64 // unsigned long: 64 bits on every system that is built for
		flags             uint32
		ifindex           int32
	}
)

const (
	rtfUp    = 0x1
	rtfLocal = 0x80000000
)

// addRange6 makes every address of a network one of the loopback's own. An address brings
// nothing along here, so it takes a route of the kernel's own kind; and one address, for
// with AI_ADDRCONFIG no program asks for addresses of IPv6 where there is but ::1.
func addRange6(fd int, network netip.Prefix) error {
	index, err := loopbackIndex(fd)
	if err != nil {
		return fmt.Errorf("add addresses %s: %w", network, err)
	}
	route := in6Rtmsg{
		dst: network.Addr().As16(), dstLen: uint16(network.Bits()), //nolint:gosec // at most 128
		kind: unix.RTN_LOCAL, flags: rtfUp | rtfLocal, ifindex: index,
	}
	one := in6Ifreq{addr: network.Addr().Next().As16(), prefix: 128, ifindex: index}
	err = errors.Join(
		ioctl(fd, unix.SIOCADDRT, unsafe.Pointer(&route)), //nolint:gosec // what the call takes
		ioctl(fd, unix.SIOCSIFADDR, unsafe.Pointer(&one)), //nolint:gosec // what the call takes
	)
	if err != nil {
		return fmt.Errorf("add addresses %s: %w", network, err)
	}
	return nil
}

// loopbackIndex is 1 in a network of its own; it is asked for all the same.
func loopbackIndex(fd int) (int32, error) {
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req); err != nil {
		return 0, err
	}
	return int32(req.Uint32()), nil //nolint:gosec // the kernel has it as an int
}

func ioctl(fd int, request uint, arg unsafe.Pointer) error {
	if _, _, no := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(arg)); no != 0 {
		return os.NewSyscallError("ioctl", no)
	}
	return nil
}
