package pack

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// tally is a buffered reader that knows how far it has been read. It reads byte by
// byte for zlib, which therefore never takes more than its stream.
type tally struct {
	r *bufio.Reader
	n int64
}

func (t *tally) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	t.n += int64(n)
	return n, err
}

func (t *tally) ReadByte() (byte, error) {
	b, err := t.r.ReadByte()
	if err == nil {
		t.n++
	}
	return b, err
}

// inflater is a zlib reader that is used again.
type inflater struct {
	z io.ReadCloser
	t *tally
}

func (f *inflater) open(from io.Reader) (io.Reader, error) {
	if f.z == nil {
		z, err := zlib.NewReader(from)
		f.z = z
		return z, err
	}
	return f.z, f.z.(zlib.Resetter).Reset(from, nil)
}

// pass reads the pack once, from its first byte to its checksum.
func (p *Pack) pass(size int64, blob func(int, io.Reader) error) error {
	end := size - int64(p.width)
	if end < 12 {
		return errors.New("the pack is cut short")
	}
	check := p.sum()
	t := &tally{r: bufio.NewReaderSize(io.TeeReader(io.NewSectionReader(p.file, 0, end), check), 64<<10)}
	var head [12]byte
	if _, err := io.ReadFull(t, head[:]); err != nil || string(head[:4]) != "PACK" {
		return errors.New("not a pack")
	}
	count := binary.BigEndian.Uint32(head[8:])
	if int64(count) > int64(p.limits.Objects) {
		return fmt.Errorf("%w: %d, at most %d", ErrObjects, count, p.limits.Objects)
	}
	// An object takes two bytes at the least: a small pack does not get the room of
	// a large one because it says so.
	room := min(int64(count), end/2)
	p.entries, p.named = make([]entry, 0, room), make([]bool, 0, room)
	var in inflater
	for i := range int(count) {
		if err := p.object(t, &in, i, blob); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = errors.New("the pack is cut short")
			}
			return err
		}
	}
	if t.n != end {
		return errors.New("the pack holds more than it says")
	}
	trailer := make([]byte, p.width)
	if _, err := p.file.ReadAt(trailer, end); err != nil {
		return fmt.Errorf("read the pack's checksum: %w", err)
	}
	if !bytes.Equal(trailer, check.Sum(nil)) {
		return errors.New("the pack's checksum is wrong")
	}
	return nil
}

// object reads one entry of the pack.
func (p *Pack) object(t *tally, in *inflater, i int, blob func(int, io.Reader) error) error {
	e := entry{at: t.n}
	if err := e.header(t, p.width); err != nil {
		return err
	}
	e.data = t.n
	p.entries, p.named = append(p.entries, e), append(p.named, false)
	z, err := in.open(t)
	if err != nil {
		return fmt.Errorf("object %d: %w", i, err)
	}
	body := &exact{p: p, z: z, left: e.size}
	held := e.kind == Commit || e.kind == Tree || e.kind == Tag
	switch {
	case held && e.size > p.limits.Object:
		return fmt.Errorf("%w: a %s of %d bytes", ErrLarge, e.kind, e.size)
	case held, e.kind == Blob && blob != nil:
		h := p.sum()
		_, _ = fmt.Fprintf(h, "%s %d\x00", e.kind, e.size)
		from := io.TeeReader(body, h)
		if e.kind == Blob {
			if err := blob(i, from); err != nil {
				return err
			}
		}
		if _, err := io.Copy(io.Discard, from); err != nil {
			return fmt.Errorf("object %d: %w", i, err)
		}
		p.enter(i, h)
	default:
		if _, err := io.Copy(io.Discard, body); err != nil {
			return fmt.Errorf("object %d: %w", i, err)
		}
	}
	return nil
}

// header reads an entry's type, size and base.
func (e *entry) header(t *tally, width int) error {
	b, err := t.ReadByte()
	if err != nil {
		return err
	}
	e.kind = Kind(b >> 4 & 7)
	size, shift := uint64(b&15), uint(4)
	for b&0x80 != 0 {
		if b, err = t.ReadByte(); err != nil {
			return err
		}
		if shift > 53 {
			return errors.New("malformed object size")
		}
		size |= uint64(b&0x7f) << shift
		shift += 7
	}
	e.size = int64(size)
	switch e.kind {
	case Commit, Tree, Blob, Tag:
		e.real = e.kind
	case ofsDelta:
		if b, err = t.ReadByte(); err != nil {
			return err
		}
		back := int64(b & 0x7f)
		for b&0x80 != 0 {
			if b, err = t.ReadByte(); err != nil {
				return err
			}
			if back >= 1<<54 {
				return errors.New("malformed base offset")
			}
			back = (back+1)<<7 | int64(b&0x7f)
		}
		if e.base = e.at - back; back == 0 || e.base < 12 {
			return errors.New("malformed base offset")
		}
	case refDelta:
		if _, err := io.CopyN(io.Discard, t, int64(width)); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown object type %d", e.kind)
	}
	return nil
}

// exact reads an object's content, which must be as long as its header says.
type exact struct {
	p    *Pack
	z    io.Reader
	left int64
}

func (x *exact) Read(b []byte) (int, error) {
	n, err := x.z.Read(b)
	if more := x.p.spend(int64(n)); more != nil {
		return 0, more
	}
	if x.left -= int64(n); x.left < 0 {
		return 0, errors.New("it is longer than its header says")
	}
	if err == io.EOF && x.left > 0 {
		return n, errors.New("it is shorter than its header says")
	}
	return n, err
}
