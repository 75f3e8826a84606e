package gitgw

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
)

// relay reads a forge's answer to a push and writes it on as it comes. It
// decodes and encodes anew, for three reasons: the client may have asked for
// another shape than the forge was asked for, a credential may not leave even
// when the forge echoes it, and an answer that breaks off can be recognised
// only by who reads it.
type relay struct {
	rep    *reporter
	redact *redactor
	body   *bufio.Reader
	side   bool // the forge multiplexes
	v2     bool // the client reads option lines
	refs   []PushedRef
	index  map[string]int // into refs

	unpack string // what the forge said of the pack, "" until it did
	last   int    // the ref that option lines speak of, -1 for none
	held   []byte // progress text that may end inside a line
	skip   bool   // in the middle of a word that is left out
}

// newRelay prepares to relay body. refs are the push's own, in which the results
// are noted.
func newRelay(rep *reporter, redact *redactor, body io.Reader, side, v2 bool, refs []PushedRef) *relay {
	y := &relay{
		rep: rep, redact: redact, body: bufio.NewReaderSize(body, 64<<10),
		side: side, v2: v2, refs: refs, index: make(map[string]int, len(refs)), last: -1,
	}
	for i := range refs {
		y.index[refs[i].Ref] = i
	}
	return y
}

// run relays until the answer is complete. An error means that it is not; what
// is in refs by then is what the forge did say.
func (y *relay) run() error {
	defer y.sayHeld(true)
	bands := &bandReader{y: y, scan: pktline.NewScanner(y.body)}
	// Without side-band the answer is the report itself.
	var from io.Reader = y.body
	if y.side {
		from = bands
	}
	scan := pktline.NewScanner(from)
	for scan.Scan() {
		line := scan.Bytes()
		if len(line) == 0 {
			if !y.side {
				return nil
			}
			// Hooks may go on talking after the report, and the answer is whole only
			// with the flush that ends the multiplexing.
			if _, err := io.Copy(io.Discard, bands); err != nil {
				return fmt.Errorf("after the report: %w", err)
			}
			return nil
		}
		if err := y.report(string(bytes.TrimSuffix(line, []byte("\n")))); err != nil {
			return err
		}
		if !y.side {
			y.flushIdle()
		}
	}
	if err := scan.Err(); err != nil {
		return fmt.Errorf("read report: %w", err)
	}
	return errors.New("the answer ends before its report does")
}

// flushIdle shows the client what has come, unless more is here already.
func (y *relay) flushIdle() {
	if y.body.Buffered() == 0 {
		_ = y.rep.flush() // a lost client is found in rep.lost
	}
}

// report takes one line of the report, notes it and passes it on.
func (y *relay) report(line string) error {
	// A packet that holds two lines would be one line to us and two to git.
	word, rest, _ := strings.Cut(line, " ")
	if strings.ContainsAny(line, "\n\x00") {
		return fmt.Errorf("malformed report line %s", quote(y.redact.text(line)))
	}
	// gitprotocol-pack(5): unpack-status comes first, once, then one
	// command-status for each ref.
	if y.unpack == "" {
		if word != "unpack" || rest == "" {
			return fmt.Errorf("report begins with %s", quote(y.redact.text(line)))
		}
		y.unpack = rest
		y.rep.line(y.redact.text(line))
		return nil
	}
	switch word {
	case "ok", "ng":
		ref, message, _ := strings.Cut(rest, " ")
		i, ours := y.index[ref]
		y.last = -1
		if !ours {
			return nil // git would warn of a ref it never pushed
		}
		y.last = i
		// The record gets a cleaned line; the client gets the forge's own words,
		// as `refusing to allow a GitHub App …` explains itself.
		y.refs[i].Result, y.refs[i].Message = word, y.redact.line(message)
	case "option":
		// report-status-v2 tells more of the ref before; a client of version 1
		// would not know the word.
		if y.last < 0 || !y.v2 {
			return nil
		}
	default:
		return fmt.Errorf("malformed report line %s", quote(y.redact.text(line)))
	}
	y.rep.line(y.redact.text(line))
	return nil
}

// say passes progress text on. It is cut only at the ends of lines, which no
// credential holds nor the words that give one away, so that none slips through in
// two packets. git shows whole lines only.
func (y *relay) say(p []byte) {
	y.held = append(y.held, p...)
	y.sayHeld(false)
}

// sayHeld shows what is held up to the last end of a line, or all of it at the end.
// A line that is too long is cut between words, and a word that long is left out.
func (y *relay) sayHeld(all bool) {
	const most = 8 << 10
	if y.skip {
		end := bytes.IndexAny(y.held, " \t\r\n")
		if end < 0 {
			y.held = y.held[:0]
			return
		}
		y.held, y.skip = y.held[end:], false
	}
	cut := bytes.LastIndexAny(y.held, "\r\n") + 1
	switch {
	case all:
		cut = len(y.held)
	case len(y.held)-cut > most:
		cut = bytes.LastIndexAny(y.held, " \t\r\n") + 1
	}
	if cut > 0 {
		y.rep.progress(y.redact.text(string(y.held[:cut])))
		y.held = append(y.held[:0], y.held[cut:]...)
	}
	if len(y.held) > most {
		y.rep.progress(redacted)
		y.held, y.skip = y.held[:0], true
	}
}

// bandReader reads the report out of a multiplexed answer and hands the rest to
// its relay on the way. It ends with io.EOF only after the flush that ends the
// multiplexing: go-git's Demuxer takes a lost connection for the same.
type bandReader struct {
	y    *relay
	scan *pktline.Scanner
	left []byte
	end  error
}

func (b *bandReader) Read(p []byte) (int, error) {
	for len(b.left) == 0 {
		if b.end != nil {
			return 0, b.end
		}
		// Before the read that may block, so that a client sees progress as it is
		// made and not with the next packet.
		b.y.flushIdle()
		b.left, b.end = b.packet()
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	return n, nil
}

// packet handles one packet and returns what it holds of the report.
func (b *bandReader) packet() ([]byte, error) {
	if !b.scan.Scan() {
		// The scanner reports an end between packets as no error, and one right
		// after a length as EOF; neither is an end here.
		if err := b.scan.Err(); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, io.ErrUnexpectedEOF
	}
	data := b.scan.Bytes()
	if len(data) == 0 {
		return nil, io.EOF
	}
	switch data[0] {
	case bandReport:
		if len(data) == 1 {
			b.y.rep.alive()
		}
		return data[1:], nil
	case bandProgress:
		b.y.say(data[1:])
		return nil, nil
	case bandError:
		// Shown as progress: passed on as an error, git would drop the report that
		// we can still finish.
		b.y.say(append(bytes.TrimRight(data[1:], "\n"), '\n'))
		return nil, errors.New("the forge gave up: " + b.y.redact.line(string(data[1:])))
	default:
		return nil, fmt.Errorf("unknown side-band %d", data[0])
	}
}
