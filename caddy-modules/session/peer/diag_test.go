package peer

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
)

func addr(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

var sample = pair{local: addr("127.0.0.1:40000"), remote: addr("127.0.0.1:20001")}

// told builds what the kernel answers about p.
func told(p pair, state byte, uid, inode uint32) []byte {
	b := make([]byte, headerSize+tellSize+8) // attributes may follow
	n := binary.NativeEndian
	n.PutUint32(b, uint32(len(b)))
	n.PutUint16(b[4:], typeByFamily)
	n.PutUint32(b[8:], 7)
	body := b[headerSize:]
	body[0], body[1] = family(p.local.Addr()), state
	copy(body[4:], sockID(p))
	n.PutUint32(body[4+40:], 0x1234) // a cookie of its own
	n.PutUint32(body[offsetUID:], uid)
	n.PutUint32(body[offsetInode:], inode)
	return b
}

func TestQuestion(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("written down for little endian")
	}
	zeros := func(n int) string { return strings.Repeat("00", n) }
	for p, want := range map[pair]string{
		sample: "48000000" + "1400" + "0100" + "07000000" + "00000000" + // header
			"02060000" + "ffffffff" + "9c40" + "4e21" + "7f000001" + zeros(12) + "7f000001" + zeros(12) + "00000000" + "ffffffffffffffff",
		{addr("[::1]:1"), addr("[::1]:2")}: "48000000" + "1400" + "0100" + "07000000" + "00000000" +
			"0a060000" + "ffffffff" + "0001" + "0002" + zeros(15) + "01" + zeros(15) + "01" + "00000000" + "ffffffffffffffff",
	} {
		if got := hex.EncodeToString(question(p, 7)); got != want {
			t.Errorf("%v:\n got %s\nwant %s", p, got, want)
		}
	}
}

func TestAnswer(t *testing.T) {
	edit := func(f func(b []byte)) []byte {
		b := told(sample, stateEstablished, 1000, 99)
		f(b)
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		uid  uint32
		err  error
	}{
		{"established", told(sample, stateEstablished, 1000, 99), 1000, nil},
		{"half-closed", told(sample, stateFinWait2, 1000, 99), 1000, nil},
		{"root", told(sample, stateEstablished, 0, 99), 0, nil},
		// The kernel says 0 for the user of a socket that nobody holds.
		{"closed, its last bytes on the way", told(sample, stateFinWait2, 0, 0), 0, ErrGone},
		{"established without a file", told(sample, stateEstablished, 0, 0), 0, ErrGone},
		{"TIME_WAIT", told(sample, 6, 0, 0), 0, ErrGone},
		{"another one that connects with the same port", told(sample, 2, 1000, 99), 0, ErrGone},
		{"a listener", told(sample, 10, 1000, 99), 0, ErrGone},
		{"another local port", told(pair{addr("127.0.0.1:40001"), sample.remote}, 1, 1000, 99), 0, ErrUnknown},
		{"another remote port", told(pair{sample.local, addr("127.0.0.1:0")}, 1, 1000, 99), 0, ErrUnknown},
		{"another local address", told(pair{addr("127.0.0.2:40000"), sample.remote}, 1, 1000, 99), 0, ErrUnknown},
		{"another remote address", told(pair{sample.local, addr("0.0.0.0:20001")}, 1, 1000, 99), 0, ErrUnknown},
		{"another family", edit(func(b []byte) { b[headerSize] = familyIPv6 }), 0, ErrUnknown},
		{"another sequence", edit(func(b []byte) { b[8]++ }), 0, ErrUnknown},
		{"another type", edit(func(b []byte) { b[4]++ }), 0, ErrUnknown},
		{"longer than it is", edit(func(b []byte) { binary.NativeEndian.PutUint32(b, uint32(len(b)+1)) }), 0, ErrUnknown},
		{"shorter than a header", edit(func(b []byte) { binary.NativeEndian.PutUint32(b, headerSize-1) }), 0, ErrUnknown},
		{"shorter than a message", edit(func(b []byte) { binary.NativeEndian.PutUint32(b, headerSize+tellSize-1) }), 0, ErrUnknown},
		{"nothing", nil, 0, ErrUnknown},
		{"an error", edit(func(b []byte) {
			binary.NativeEndian.PutUint16(b[4:], typeError)
			no := -int32(syscall.ENOENT)
			binary.NativeEndian.PutUint32(b[headerSize:], uint32(no))
		}), 0, syscall.ENOENT},
	} {
		t.Run(c.name, func(t *testing.T) {
			if uid, err := answer(c.b, sample, 7); uid != c.uid || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("got %d, %v; want %d, %v", uid, err, c.uid, c.err)
			}
		})
	}
}

// Whatever comes, a user is only read from an answer about the very socket.
func FuzzAnswer(f *testing.F) {
	f.Add(told(sample, stateEstablished, 1000, 99))
	f.Add(told(sample, stateFinWait1, 0, 0))
	f.Add([]byte{16, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		uid, err := answer(b, sample, 7)
		if err == nil && (len(b) < headerSize+tellSize || string(b[headerSize+4:headerSize+40]) != string(sockID(sample)[:36])) {
			t.Errorf("user %d from %x", uid, b)
		}
	})
}
