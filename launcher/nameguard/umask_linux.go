package nameguard

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// umasks keeps what is known of the callers' umasks. Files are made by us with theirs,
// and to ask for it takes the kernel as long as to make a file.
//
// Whoever changes a umask has to ask us. So as long as nobody has, everybody has the one
// of the start; and what is known is known until the next change.
type umasks struct {
	start   uint32        // everybody's
	moved   atomic.Bool   // somebody has another
	version atomic.Uint64 // of all that is known
	last    atomic.Int64  // when somebody asked last, in nanoseconds
}

// knownMask is the umask of one thread.
type knownMask struct {
	pid     uint32
	mask    uint32
	version uint64
	since   int64
}

const (
	// pending is how long a change may take that was let through.
	pending = 100 * time.Millisecond

	// fresh is how long a umask is believed: the number of a thread may be another's by
	// then, and a change may have come late.
	fresh = time.Second
)

// changed notes that somebody is about to change a umask.
func (u *umasks) changed(mask uint32) {
	if !u.moved.Load() && mask&0o777 == u.start {
		return
	}
	u.last.Store(now())
	u.moved.Store(true)
	u.version.Add(1)
}

// now is the time of a clock that is cheap to read.
func now() int64 { return int64(time.Since(origin)) }

var origin = time.Now()

// takeMask makes the caller's umask this thread's.
func (w *worker) takeMask() {
	w.setMask(w.maskOf())
}

func (w *worker) setMask(mask uint32) {
	if mask != w.umask {
		unix.Umask(int(mask))
		w.umask = mask
	}
}

// maskOf is the caller's umask; where it cannot be read, one that gives nobody else a right.
func (w *worker) maskOf() uint32 {
	u := &w.b.umasks
	if !u.moved.Load() {
		return u.start
	}
	version, at := u.version.Load(), now()
	known := &w.masks[w.note.pid%uint32(len(w.masks))]
	if known.pid == w.note.pid && known.version == version && at-known.since < int64(fresh) {
		return known.mask
	}
	mask, ok := readMask(w.status())
	if !ok {
		return 0o077
	}
	if at-u.last.Load() > int64(pending) {
		*known = knownMask{pid: w.note.pid, mask: mask, version: version, since: at}
	}
	return mask
}

// readMask reads the umask of a status.
func readMask(status []byte) (mask uint32, ok bool) {
	text := field(status, "Umask")
	for _, c := range text {
		if c < '0' || c > '7' {
			return 0, false
		}
		mask = mask<<3 | uint32(c-'0')
	}
	return mask & 0o777, len(text) > 0
}
