package lease

import (
	"bytes"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// socketPair returns two ends of a Unix connection.
func socketPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1]
}

// FuzzAccept: whatever bytes come in whatever pieces with whatever descriptors,
// a hello is taken only when it is one, with two listeners; and neither way does
// a descriptor stay open.
func FuzzAccept(f *testing.F) {
	f.Add([]byte(goodHello), []byte("hs"), uint16(0))
	f.Add([]byte(goodHello), []byte("sh"), uint16(5))
	f.Add([]byte(goodHello), []byte("hh"), uint16(1))
	f.Add([]byte(goodHello), []byte(""), uint16(0))
	f.Add([]byte(goodHello), []byte("hsd"), uint16(20))
	f.Add([]byte(goodHello), []byte("du"), uint16(0))
	f.Add([]byte(goodHello+"x"), []byte("hs"), uint16(3))
	f.Add([]byte(`{"version":1,"spec":{"id":"a"},"sockets":[{"use":"dns","network":"udp","port":UUUUU},{"use":"dns","network":"tcp","port":TTTTT}]}`+"\n"), []byte("hsut"), uint16(0))
	f.Add([]byte(`{"version":1,"spec":{"id":"a"},"sockets":[{"use":"dns","network":"udp","port":UUUUU}]}`+"\n"), []byte("hs"), uint16(7))
	f.Add([]byte(`{"version":1,"spec":{"id":"a"},"sockets":[{"use":"transparent","network":"tcp","port":TTTTT}]}`+"\n"), []byte("hst"), uint16(0))
	f.Add([]byte(`{"version":1`), []byte("hs"), uint16(3))
	f.Add([]byte(`{"version":2}`+"\n"), []byte("nnnnnnnnnnnnnnnnnnnn"), uint16(0))
	f.Fuzz(func(t *testing.T, data, kinds []byte, at uint16) {
		if len(kinds) > 200 {
			return // the kernel takes 253
		}
		p := newPair(t)
		defer p.Close()
		before := openDescriptors(t)
		func() {
			us, them := socketPair(t)
			defer them.Close()
			udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			defer udp.Close()
			tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			defer tcp.Close()
			data := bytes.ReplaceAll(data, []byte("UUUUU"), []byte(strconv.Itoa(udp.LocalAddr().(*net.UDPAddr).Port)))
			data = bytes.ReplaceAll(data, []byte("TTTTT"), []byte(strconv.Itoa(tcp.Addr().(*net.TCPAddr).Port)))
			null, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			defer null.Close()
			var fds []int
			for _, k := range kinds {
				switch k {
				case 'h':
					fds = append(fds, fdOf(t, p.HTTP))
				case 's':
					fds = append(fds, fdOf(t, p.SOCKS))
				case 'u':
					if err := control(udp, func(fd int) error { fds = append(fds, fd); return nil }); err != nil {
						t.Fatal(err)
					}
				case 't':
					fds = append(fds, fdOf(t, tcp))
				default:
					if err := control(null, func(fd int) error { fds = append(fds, fd); return nil }); err != nil {
						t.Fatal(err)
					}
				}
			}
			// The descriptors travel with the second piece.
			cut := min(int(at), len(data))
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				if _, err := them.Write(data[:cut]); err != nil {
					return
				}
				if cut < len(data) {
					var oob []byte
					if len(fds) > 0 {
						oob = unix.UnixRights(fds...)
					}
					_, _, _ = them.WriteMsgUnix(data[cut:], oob, nil)
				}
				_ = them.CloseWrite()
			}()
			req, err := (&Acceptor{Timeout: 5 * time.Second}).Accept(us)
			<-sent
			if err != nil {
				return
			}
			if req.Hello.Spec.Validate() != nil || req.Pair.HTTP == nil || req.Pair.SOCKS == nil {
				t.Errorf("taken: %+v", req.Hello.Spec)
			}
			if len(req.More) != len(req.Hello.Sockets) || len(kinds) != 2+len(req.More) {
				t.Errorf("taken with the descriptors %q for %d sockets, as %d", kinds, len(req.Hello.Sockets), len(req.More))
			}
			for i, m := range req.More {
				if k := kinds[2+i]; (m.Packets != nil) != (k == 'u') || (m.Listener != nil) != (k == 't') || m.Port == 0 {
					t.Errorf("a %c was taken for a %s", k, m.Socket)
				}
			}
			if kinds := string(kinds[:2]); kinds != "hs" && kinds != "sh" {
				t.Errorf("taken with the descriptors %q", kinds)
			}
			if err := req.Close(); err != nil {
				t.Error(err)
			}
		}()
		if after := openDescriptors(t); after != before {
			t.Fatalf("%d descriptors open, %d before", after, before)
		}
	})
}
