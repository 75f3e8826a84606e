package sandbox

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"postern/launcher/tty"
)

// Messages between the launcher and the inside of the sandbox. Each is a big-endian
// length of four bytes and that many bytes of JSON. Descriptors, where a message has
// any, come with its first byte.
//
//	inside   listeners  + 2 descriptors: HTTP, SOCKS; and the bare sockets that were asked for
//	inside   ready      the sandbox stands; waiting
//	launcher start      what to run, and what the mounts must look like
//	inside   guard      + 2 descriptors, where names are to be guarded: who answers the
//	                    command's calls, and the sandbox's root
//	inside   started, or failed
//	launcher signal     as often as needed
//	launcher socket     from ready on, as often as needed
//	inside   socket     + 1 descriptor, or Code: the error number
//	inside   stopped    the command was stopped at its terminal, as often as that happens
//	inside   exit       the last
//
// What comes from inside is not to be trusted: the command cannot reach the socket
// as far as we know, and if it could, it could say that it ended, and no more.
// Descriptors that nobody asked for are closed, and those that were asked for looked at.
type message struct {
	Type string `json:"type"`

	// start; texts are bytes, for neither paths nor arguments need be UTF-8
	Argv   []byte    `json:"argv,omitempty"` // packed
	Env    []byte    `json:"env,omitempty"`  // packed
	Dir    []byte    `json:"dir,omitempty"`
	Verify []expect  `json:"verify,omitempty"`
	TTY    *ttyStart `json:"tty,omitempty"` // started then brings a descriptor: the pseudo-terminal

	Guard *guardStart `json:"guard,omitempty"` // names are guarded; guard then comes before started

	// signal
	Signal int  `json:"signal,omitempty"` // also of exit: what killed the command
	Group  bool `json:"group,omitempty"`  // the whole process group, as a terminal does

	// socket: which answer belongs to which request; signal, stopped: which turn of the
	// command, of those that a stop divides
	ID   uint64 `json:"id,omitempty"`
	IPv6 bool   `json:"ipv6,omitempty"`

	// failed, exit, socket
	Code   int    `json:"code,omitempty"`
	Reason Reason `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// The types of messages.
const (
	msgListeners = "listeners"
	msgReady     = "ready"
	msgStart     = "start"
	msgStarted   = "started"
	msgFailed    = "failed"
	msgSignal    = "signal"
	msgExit      = "exit"
	msgSocket    = "socket"
	msgStopped   = "stopped"
	msgGuard     = "guard"
)

// ttyStart asks for a pseudo-terminal.
type ttyStart struct {
	Size   tty.Size      `json:"size"`
	Modes  *unix.Termios `json:"modes,omitempty"`  // of the caller's terminal; nil: the kernel's
	Stderr bool          `json:"stderr,omitempty"` // the command's stderr is the terminal, too
}

// expect is what the inside checks about one path before anything runs.
type expect struct {
	Path     []byte `json:"path"`
	Dev      uint64 `json:"dev"`
	Ino      uint64 `json:"ino"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	Hidden   bool   `json:"hidden,omitempty"`
}

const (
	// maxInside bounds a message from inside, in bytes.
	maxInside = 64 << 10

	// maxStart bounds a start message. The kernel takes 2 MiB of arguments and
	// environment by default, up to 6 MiB; JSON may need more for the same.
	maxStart = 32 << 20
)

// encode makes the bytes of a message of at most limit bytes.
func encode(m *message, limit int) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.Type, err)
	}
	if len(body) > limit {
		return nil, fmt.Errorf("encode %s: %d bytes, at most %d", m.Type, len(body), limit)
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...), nil //nolint:gosec // bounded above
}

// plain makes the bytes of messages that have nothing but a type, one of the constants
// above. The launcher waits for the first ones, and the codec takes its time to get ready.
func plain(types ...string) []byte {
	var out []byte
	for _, t := range types {
		body := `{"type":"` + t + `"}`
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(body))), body...) //nolint:gosec // a few bytes
	}
	return out
}

// decode reads one message of at most limit bytes. The error is io.EOF when r ends
// before it begins.
func decode(r io.Reader, limit int) (*message, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, fmt.Errorf("read message: %w", err)
	}
	size := binary.BigEndian.Uint32(head[:])
	if size == 0 || uint64(size) > uint64(limit) { //nolint:gosec // limits are positive constants
		return nil, fmt.Errorf("read message: %d bytes, want 1 to %d", size, limit)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // a clean end is before a message, not in it
		}
		return nil, fmt.Errorf("read message: %w", err)
	}
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, fmt.Errorf("decode message: %w", err)
	}
	return &m, nil
}

// pack joins texts as the kernel does, each ended by a zero byte.
func pack(texts []string) ([]byte, error) {
	var out []byte
	for _, text := range texts {
		if strings.IndexByte(text, 0) >= 0 {
			return nil, fmt.Errorf("pack %q: it contains a zero byte", text)
		}
		out = append(append(out, text...), 0)
	}
	return out, nil
}

// unpack splits what pack joined.
func unpack(data []byte) ([]string, error) {
	if len(data) == 0 {
		return nil, nil
	}
	if data[len(data)-1] != 0 {
		return nil, errors.New("unpack: the last text has no end")
	}
	return strings.Split(string(data[:len(data)-1]), "\x00"), nil
}

// warm has the way of a start message through the codec ready before there is one: the
// first time takes a good part of a millisecond, and either side has to wait for the
// other anyway, for a moment.
func warm() {
	data, err := encode(&message{Type: msgStart, Verify: []expect{{}}}, maxStart)
	if err == nil {
		_, _ = decode(bytes.NewReader(data), maxStart)
	}
}
