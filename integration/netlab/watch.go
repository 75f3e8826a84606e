//go:build linux

package netlab

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Dial is one attempt to reach an address: the first packet of a TCP
// connection, or any UDP datagram.
type Dial struct {
	Net      string // "tcp" or "udp"
	Src, Dst netip.AddrPort
}

func (d Dial) String() string { return d.Net + " " + d.Dst.String() }

// Watch sees every dial in the lab, whoever makes it, whether or not anybody
// listens at the far end. It reads packets off the loopback link (packet(7)).
type Watch struct {
	fd   int
	done chan struct{}
	stop chan struct{}

	mu    sync.Mutex
	dials []Dial
	marks map[string]chan struct{}
}

// Watch starts watching. Close it.
func (l *Lab) Watch() (*Watch, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	w := &Watch{fd: fd, done: make(chan struct{}), stop: make(chan struct{}), marks: map[string]chan struct{}{}}
	// A burst of data (a big push) must not crowd out the packets of interest.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	proto := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: l.lo}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("bind packet socket to lo: %w", err)
	}
	go w.read()
	return w, nil
}

// Close stops watching.
func (w *Watch) Close() {
	close(w.stop)
	<-w.done
	_ = unix.Close(w.fd)
}

// Dials are the dials seen since the last Forget. It first waits until every
// packet sent before the call has been looked at.
func (w *Watch) Dials() ([]Dial, error) {
	if err := w.sync(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.dials), nil
}

// Forget empties the log, packets under way included.
func (w *Watch) Forget() error {
	if err := w.sync(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dials = nil
	return nil
}

// markAddr receives the datagrams of sync: the discard port of an address
// nothing else uses.
var markAddr = netip.MustParseAddrPort("127.255.0.9:9")

// sync sends a datagram through lo and waits until it comes by: packets are
// seen in order.
func (w *Watch) sync() error {
	mark := rand.Text()
	seen := make(chan struct{})
	w.mu.Lock()
	w.marks[mark] = seen
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.marks, mark)
		w.mu.Unlock()
	}()
	// Loss is possible when the socket's buffer overflows; ask again then.
	for range 20 {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(markAddr))
		if err != nil {
			return fmt.Errorf("mark the watch: %w", err)
		}
		_, err = c.Write([]byte(mark))
		_ = c.Close()
		if err != nil {
			return fmt.Errorf("mark the watch: %w", err)
		}
		select {
		case <-seen:
			return nil
		case <-w.done:
			return errors.New("the watch has ended")
		case <-time.After(250 * time.Millisecond):
		}
	}
	return errors.New("the watch does not see its own packets")
}

func (w *Watch) read() {
	defer close(w.done)
	buf := make([]byte, 64<<10)
	for {
		select {
		case <-w.stop:
			return
		default:
		}
		n, from, err := unix.Recvfrom(w.fd, buf, 0)
		if err != nil {
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOBUFS) {
				continue
			}
			return
		}
		// Every packet on lo comes by twice, on its way out and in.
		if ll, ok := from.(*unix.SockaddrLinklayer); !ok || ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		d, payload, ok := parsePacket(buf[:n])
		if !ok {
			continue
		}
		w.mu.Lock()
		if d.Dst == markAddr {
			if seen := w.marks[string(payload)]; seen != nil {
				close(seen)
				delete(w.marks, string(bytes.Clone(payload)))
			}
		} else {
			w.dials = append(w.dials, d)
		}
		w.mu.Unlock()
	}
}

// parsePacket reads an IP packet and reports whether it is a dial. IPv6
// extension headers are not followed: none are sent here.
func parsePacket(p []byte) (d Dial, payload []byte, ok bool) {
	var src, dst netip.Addr
	var proto byte
	switch {
	case len(p) >= 20 && p[0]>>4 == 4:
		head := int(p[0]&15) * 4
		if head < 20 || len(p) < head || binary.BigEndian.Uint16(p[6:])&0x1fff != 0 {
			return Dial{}, nil, false // a later fragment has no ports
		}
		src, dst, proto = netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20])), p[9]
		p = p[head:]
	case len(p) >= 40 && p[0]>>4 == 6:
		src, dst, proto = netip.AddrFrom16([16]byte(p[8:24])), netip.AddrFrom16([16]byte(p[24:40])), p[6]
		p = p[40:]
	default:
		return Dial{}, nil, false
	}
	if len(p) < 8 {
		return Dial{}, nil, false
	}
	d.Src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(p))
	d.Dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(p[2:]))
	const syn, ack = 2, 16
	switch {
	case proto == unix.IPPROTO_TCP && len(p) >= 20:
		d.Net = "tcp"
		return d, nil, p[13]&(syn|ack) == syn
	case proto == unix.IPPROTO_UDP:
		d.Net = "udp"
		return d, p[8:], true
	}
	return Dial{}, nil, false
}
