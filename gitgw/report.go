package gitgw

import (
	"bufio"
	"errors"
	"net/http"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
)

// The bands of a multiplexed answer, gitprotocol-pack(5).
const (
	bandReport   = 1
	bandProgress = 2
	bandError    = 3
)

// The most data a packet may carry in each side-band: the packet's four length
// bytes and the band's number count too. (go-git's own Muxer leaves out the
// four, so its largest packets are refused by its own encoder and by git.)
const (
	maxSideBand    = 1000 - 5
	maxSideBand64k = 65520 - 5
)

// reporter writes a push's answer to the client, in the shape the client asked
// for. A report that was begun is either finished by end or the connection must
// be aborted: git waits for ever on a 200 that stops inside a packet.
type reporter struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	stall   time.Duration
	out     *bufio.Writer
	band    int  // most data in a packet, 0 without side-band
	status  bool // the client reads a report at all
	pending []byte
	begun   bool
	done    bool
	lost    error // the client is gone; everything after is silence
}

func newReporter(w http.ResponseWriter, rc *http.ResponseController, stall time.Duration) *reporter {
	r := &reporter{w: w, rc: rc, stall: stall}
	r.out = bufio.NewWriterSize(deadlineWriter{r}, 32<<10)
	return r
}

// shape takes the client's wishes, once they are known.
func (r *reporter) shape(c Capabilities) {
	// A client that asks for both side-bands gets the wider, as from git.
	r.status = c.reports()
	switch {
	case c.SideBand64k:
		r.band = maxSideBand64k
	case c.SideBand:
		r.band = maxSideBand
	default:
		r.band = 0
	}
}

// deadlineWriter gives every write to the client its own stall limit.
type deadlineWriter struct{ r *reporter }

func (d deadlineWriter) Write(p []byte) (int, error) {
	_ = d.r.rc.SetWriteDeadline(time.Now().Add(d.r.stall))
	n, err := d.r.w.Write(p)
	return n, err
}

// begin sends the status line and the type. The answer to a push is always 200:
// git shows no other answer's body.
func (r *reporter) begin() {
	if r.begun {
		return
	}
	r.begun = true
	h := r.w.Header()
	h.Set("Content-Type", "application/x-git-receive-pack-result")
	h.Set("Cache-Control", "no-cache")
	r.w.WriteHeader(http.StatusOK)
}

// packet writes one packet of a band, split where it is too long.
func (r *reporter) packet(band byte, p []byte) {
	r.begin()
	enc := pktline.NewEncoder(r.out)
	// One write for each packet: the number of the band goes before the data.
	buf := make([]byte, 0, min(len(p), r.band)+1)
	for len(p) > 0 && r.lost == nil {
		n := min(len(p), r.band)
		buf = append(append(buf[:0], band), p[:n]...)
		if err := enc.Encode(buf); err != nil {
			r.lost = err
		}
		p = p[n:]
	}
}

// progress shows text, which ends in a newline, as `remote:` lines. Without
// side-band nothing can be shown.
func (r *reporter) progress(text string) {
	if r.band > 0 && text != "" {
		r.sendReport()
		r.packet(bandProgress, []byte(text))
	}
}

// alive passes a forge's keep-alive on: a packet without data.
func (r *reporter) alive() {
	if r.band > 0 && r.lost == nil {
		r.begin()
		r.lost = pktline.NewEncoder(r.out).Encode([]byte{bandReport})
	}
}

// line adds one line to the report. Lines are gathered, so that 3,000 refs are
// a few packets.
func (r *reporter) line(text string) {
	if !r.status {
		return
	}
	r.begin()
	var w sliceWriter
	if err := pktline.NewEncoder(&w).EncodeString(text + "\n"); err != nil {
		// Longer than a packet may be: no forge and no rule makes such a line.
		r.lost = errors.Join(r.lost, err)
		return
	}
	r.pending = append(r.pending, w...)
	if len(r.pending) >= maxSideBand64k {
		r.sendReport()
	}
}

// sendReport writes the gathered lines.
func (r *reporter) sendReport() {
	if len(r.pending) == 0 {
		return
	}
	if r.band > 0 {
		r.packet(bandReport, r.pending)
	} else {
		r.begin()
		if _, err := r.out.Write(r.pending); err != nil && r.lost == nil {
			r.lost = err
		}
	}
	r.pending = r.pending[:0]
}

// end finishes the report: a flush of its own, inside the side-band where there
// is one, and then the flush that ends the side-band. With the inner one alone
// git shows the result and then an error in its demultiplexer.
func (r *reporter) end() {
	r.begin()
	// A client without report sees only the end of the side-band.
	if r.status {
		r.pending = append(r.pending, pktline.FlushPkt...)
		r.sendReport()
	}
	if r.band > 0 {
		r.write(pktline.FlushPkt)
	}
	r.done = true
	_ = r.flush() // its error stays in r.lost
}

// fatal ends the answer for a client that asked for no report but reads a
// side-band: git shows text and fails.
func (r *reporter) fatal(text string) {
	r.begin()
	if r.band > 0 {
		r.packet(bandError, []byte(text+"\n"))
		r.write(pktline.FlushPkt)
	}
	r.done = true
	_ = r.flush() // its error stays in r.lost
}

func (r *reporter) write(p []byte) {
	if _, err := r.out.Write(p); err != nil && r.lost == nil {
		r.lost = err
	}
}

// flush hands everything written so far to the network. Its error, once there
// is one, is the news that the client is gone.
func (r *reporter) flush() error {
	if !r.begun {
		return nil
	}
	r.sendReport()
	if r.lost == nil {
		r.lost = r.out.Flush()
	}
	if r.lost == nil {
		// A writer that cannot flush delivers when the handler returns.
		if err := r.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			r.lost = err
		}
	}
	return r.lost
}

// sliceWriter gathers what is written.
type sliceWriter []byte

func (s *sliceWriter) Write(p []byte) (int, error) {
	*s = append(*s, p...)
	return len(p), nil
}
