package proxy

import (
	"log/slog"
	"time"
)

// say writes an answer of the proxy itself. It says whether the client can be
// asked for another request.
func (f *flow) say(r reply) bool {
	r.head = f.req.method == "HEAD"
	f.watch.stage(farewell, func() { f.abort(CauseError) })
	b := getLarge()
	defer putLarge(b)
	_, err := f.client.Write(r.append(b[:0]))
	if err != nil {
		return false
	}
	if r.close {
		f.linger()
	}
	return !r.close
}

// linger lets the client read the last answer. Closing while it still sends
// would make the kernel reset the connection, and throw away what the client has
// not read yet.
func (f *flow) linger() {
	const most, patience = 256 << 10, time.Second
	if cw, ok := f.client.(closeWriter); !ok || cw.CloseWrite() != nil {
		return
	}
	f.watch.stage(patience, f.stopReading)
	_ = f.client.SetReadDeadline(time.Time{})
	b := getSmall()
	defer putSmall(b)
	for n := 0; n < most; {
		m, err := f.client.Read(b[:])
		if err != nil {
			return
		}
		n += m
	}
}

type closeWriter interface{ CloseWrite() error }

// malformed answers what could not be read.
func (f *flow) malformed(err error) bool {
	f.noteMalformed(err)
	return f.say(malformedReply(err))
}

func (f *flow) noteMalformed(err error) {
	f.s.count.malformed.Add(1)
	f.s.log.Debug("malformed request", slog.String("client", f.clientName()), slog.String("error", printable(err.Error())))
}
