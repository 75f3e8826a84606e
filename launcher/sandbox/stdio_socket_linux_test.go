package sandbox

import (
	"bufio"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// socketPair is two sockets that are joined.
func socketPair(tb testing.TB, kind int) (ours, theirs *os.File) {
	tb.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	must(tb, err)
	ours, theirs = os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	tb.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	return ours, theirs
}

// fileOf is another descriptor of a socket.
func fileOf(tb testing.TB, c any) *os.File {
	tb.Helper()
	f, err := c.(interface{ File() (*os.File, error) }).File()
	must(tb, err)
	tb.Cleanup(func() { _ = f.Close() })
	return f
}

// leading are sockets of this host that can be connected to something else.
func leading(tb testing.TB) map[string]*os.File {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(tb, err)
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(tb, err)
	tcp, err := net.Dial("tcp", ln.Addr().String())
	must(tb, err)
	udp, err := net.Dial("udp", packets.LocalAddr().String())
	must(tb, err)
	tb.Cleanup(func() { must(tb, errors.Join(ln.Close(), packets.Close(), tcp.Close(), udp.Close())) })
	_, datagrams := socketPair(tb, unix.SOCK_DGRAM)
	return map[string]*os.File{"tcp": fileOf(tb, tcp), "udp": fileOf(tb, udp), "a datagram pair": datagrams, "a listener": fileOf(tb, ln)}
}

// SPEC 45: a socket of the host's network is a way around the sandbox's, for it can be
// taken back and connected to something else. The command is given none.
func TestStdioLeadsOutByNoSocket(t *testing.T) {
	const look = `for i in 0 1 2; do case $(readlink /proc/$$/fd/$i) in socket:*) exit 9;; esac; done; echo said; echo said >&2; exit 0`
	null := devNull(t)
	for name, f := range leading(t) {
		t.Run(name, func(t *testing.T) {
			_, err := withStdio(t, f, null, null, "true")
			refusal(t, err, ReasonStdio)
			if !strings.Contains(err.Error(), "stdin") || !strings.Contains(err.Error(), "socket") {
				t.Errorf("refused with %v", err)
			}
			for _, files := range [][2]*os.File{{f, null}, {null, f}, {f, f}} {
				status, err := withStdio(t, null, files[0], files[1], look)
				// What nothing can be written to is an error of the output alone.
				if _, lost := errors.AsType[*OutputError](err); lost && name == "a listener" {
					err = nil
				}
				if err != nil || status.Code != 0 {
					t.Errorf("%+v, %v", status, err)
				}
			}
		})
	}
}

// A connected pair of Unix sockets leads to its other end and nowhere else: programs that
// start others use them as pipes.
func TestStdioKeepsAPair(t *testing.T) {
	for name, kind := range map[string]int{"stream": unix.SOCK_STREAM, "packets": unix.SOCK_SEQPACKET} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := socketPair(t, kind)
			_, err := ours.WriteString("hello\n")
			must(t, err)
			status, err := withStdio(t, theirs, theirs, devNull(t), `x=$(dd bs=64 count=1 2>/dev/null); case $(readlink /proc/$$/fd/0) in socket:*) echo "got $x";; esac`)
			must(t, err)
			must(t, unix.SetsockoptTimeval(int(ours.Fd()), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}))
			if got, err := bufio.NewReader(ours).ReadString('\n'); got != "got hello\n" || status.Code != 0 {
				t.Errorf("%q, %v, status %+v", got, err, status)
			}
		})
	}
}
