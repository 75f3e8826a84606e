package proxy

import (
	"bytes"
	"strings"
)

// Limits of the chunked coding, in bytes. Extensions are dropped, so that a
// client that sends more of them than content only wastes our time.
const (
	maxChunkLine    = 4 << 10
	maxChunkExcess  = 16 << 10
	maxTrailerBytes = 8 << 10
	maxTrailers     = 64
)

type chunkState uint8

const (
	atSize chunkState = iota
	inData
	atDataEnd
	inTrailer
	atEnd
)

// chunkDecoder takes the chunked coding of RFC 9112 section 7.1 apart, as
// strictly as the grammar is written: CRLF only, plain hex digits only. It keeps
// no bytes itself, so that a copy of it can look ahead at what has arrived
// already (see content.check).
type chunkDecoder struct {
	state    chunkState
	left     int64 // of the chunk's data
	excess   int64 // framing bytes beyond what honest chunks need
	trailers int   // bytes of trailer lines so far
	fields   []field
}

// step decodes as much of b as one piece allows. It gives the number of bytes it
// consumed and the content among them, a part of b. Nothing consumed and no
// error means that more bytes are needed.
func (d *chunkDecoder) step(b []byte) (n int, data []byte, err error) {
	for {
		switch d.state {
		case atSize:
			line, used, err := chunkLine(b[n:], maxChunkLine)
			if err != nil || used == 0 {
				return n, nil, err
			}
			if err := d.size(line); err != nil {
				return n, nil, err
			}
			n += used
		case inData:
			size := int(min(d.left, int64(len(b)-n)))
			if size == 0 {
				return n, nil, nil
			}
			data = b[n : n+size]
			d.left -= int64(size)
			if d.left == 0 {
				d.state = atDataEnd
			}
			return n + size, data, nil
		case atDataEnd:
			switch rest := b[n:]; {
			case len(rest) >= 1 && rest[0] != '\r', len(rest) >= 2 && rest[1] != '\n':
				return n, nil, bad("chunk data without its CRLF")
			case len(rest) < 2:
				return n, nil, nil
			}
			n += 2
			d.state = atSize
		case inTrailer:
			line, used, err := chunkLine(b[n:], maxTrailerBytes-d.trailers)
			if err != nil || used == 0 {
				return n, nil, err
			}
			n += used
			d.trailers += used
			if err := d.trailer(string(line)); err != nil {
				return n, nil, err
			}
		case atEnd:
			return n, nil, nil
		}
	}
}

// chunkLine cuts a CRLF line off b; used is 0 while it is not complete.
func chunkLine(b []byte, limit int) (line []byte, used int, err error) {
	i := bytes.IndexByte(b, '\n')
	switch {
	case i < 0 && len(b) >= limit, i >= limit:
		return nil, 0, bad("line of the chunked coding too long")
	case i < 0:
		// A bare CR is seen at once; its LF is all that may follow.
		if cr := bytes.IndexByte(b, '\r'); cr >= 0 && cr != len(b)-1 {
			return nil, 0, bad("CR inside a line of the chunked coding")
		}
		return nil, 0, nil
	case i == 0 || b[i-1] != '\r':
		return nil, 0, bad("LF without CR in the chunked coding")
	case bytes.IndexByte(b[:i-1], '\r') >= 0:
		return nil, 0, bad("CR inside a line of the chunked coding")
	}
	return b[:i-1], i + 1, nil
}

// size reads chunk-size [chunk-ext].
func (d *chunkDecoder) size(line []byte) error {
	digits := 0
	var size uint64
	for digits < len(line) && isHexDigit(line[digits]) {
		if digits == 15 {
			// 15 digits are an exabyte; more would come close to overflowing.
			return bad("chunk size too large")
		}
		size = size<<4 | uint64(hexValue(line[digits]))
		digits++
	}
	if digits == 0 {
		return bad("chunk size is no hex number")
	}
	ext := bytes.TrimLeft(line[digits:], " \t")
	if len(ext) > 0 && ext[0] != ';' || len(ext) == 0 && digits != len(line) {
		return bad("malformed chunk size")
	}
	if !isFieldValue(string(ext)) {
		return bad("control byte in a chunk extension")
	}
	d.left = int64(size)
	// The same allowance as net/http: a chunk may carry extensions worth 16
	// bytes and twice its data, what is beyond adds up.
	d.excess = max(0, d.excess+int64(len(line)+2)-16-2*d.left)
	if d.excess > maxChunkExcess {
		return bad("chunked coding with too much beside its content")
	}
	d.state = inData
	if size == 0 {
		d.state = inTrailer
	}
	return nil
}

func (d *chunkDecoder) trailer(line string) error {
	if line == "" {
		d.state = atEnd
		return nil
	}
	name, value, ok := strings.Cut(line, ":")
	if !ok || !isTokenText(name) || len(d.fields) == maxTrailers {
		return bad("malformed trailer")
	}
	value = strings.Trim(value, " \t")
	if !isFieldValue(value) {
		return bad("control byte in a trailer")
	}
	if passesAsTrailer(name) {
		d.fields = append(d.fields, field{name, value})
	}
	return nil
}

// done says that the last chunk and the trailers were read.
func (d *chunkDecoder) done() bool { return d.state == atEnd }

// content is the body of one request, read from the client's buffer.
type content struct {
	in     *reader
	left   int64 // of Content-Length
	coding bool  // chunked
	chunks chunkDecoder
}

func newContent(in *reader, r *request) content {
	return content{in: in, left: max(r.bodyLen, 0), coding: r.bodyLen == chunked}
}

// check looks at what has arrived already, so that a body whose framing is
// broken from the start is refused before anybody is asked or dialled.
func (c *content) check() error {
	if !c.coding {
		return nil
	}
	ahead := c.chunks
	for b := c.in.bytes(); len(b) > 0 && !ahead.done(); {
		n, _, err := ahead.step(b)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		b = b[n:]
	}
	return nil
}

// take gives content that is in the buffer, of at most limit bytes with its
// framing, or nil when more must be read first. It is valid until the buffer is
// filled again.
func (c *content) take(limit int) ([]byte, error) {
	b := c.in.bytes()
	b = b[:min(len(b), limit)]
	if !c.coding {
		b = b[:min(int64(len(b)), c.left)]
		c.left -= int64(len(b))
		c.in.discard(len(b))
		return b, nil
	}
	n, data, err := c.chunks.step(b)
	c.in.discard(n)
	return data, err
}

// done says that all of the content was taken.
func (c *content) done() bool {
	if c.coding {
		return c.chunks.done()
	}
	return c.left == 0
}

func isHexDigit(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func hexValue(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c >= 'a':
		return c - 'a' + 10
	default:
		return c - 'A' + 10
	}
}
