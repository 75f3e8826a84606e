package pack

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
)

// maxChain is git's own limit for the length of a delta chain.
const maxChain = 4095

// errOutside says that a delta hangs on an object that the pack does not hold.
var errOutside = errors.New("its base is not in the pack")

// What steps cost, in bytes of work: objects of a few bytes, each at the end of a
// long chain, are work as well.
const (
	stepCost  = 128
	startCost = 1 << 10
)

// cached is the object that was resolved last: the next one often hangs on it.
type cached struct {
	at      int
	kind    Kind
	content []byte
}

// Object returns an object's kind and content, which is valid until the next call.
func (p *Pack) Object(i int) (Kind, []byte, error) {
	chain, kind, err := p.chain(i)
	if err != nil {
		return 0, nil, err
	}
	// From the base, or the last object resolved if it lies on the way, to i.
	var content []byte
	n, at := len(chain)-1, slices.Index(chain, p.last.at)
	spare := 0
	if at < 0 {
		if content, err = p.inflate(chain[n], &p.bufs[0]); err != nil {
			return 0, nil, err
		}
		n--
	} else {
		// Of no bytes it may be nil, and is there all the same.
		p.bufs[0] = append(p.bufs[0][:0], p.last.content...)
		content, n = p.bufs[0], at-1
	}
	for ; n >= 0; n-- {
		delta, err := p.inflate(chain[n], &p.bufs[2])
		if err != nil {
			return 0, nil, err
		}
		spare = 1 - spare
		if content, err = p.apply(content, delta, &p.bufs[spare]); err != nil {
			return 0, nil, fmt.Errorf("object %d: %w", chain[n], err)
		}
	}
	p.last.at, p.last.kind = i, kind
	p.last.content = append(p.last.content[:0], content...)
	return kind, content, nil
}

// chain lists the deltas from i to the object that is stored whole, and its kind.
func (p *Pack) chain(i int) ([]int, Kind, error) {
	chain := []int{i}
	for {
		if p.entries[i].real == p.entries[i].kind {
			return chain, p.entries[i].kind, nil
		}
		base, err := p.base(i)
		if err != nil {
			return nil, 0, err
		}
		// A base by id may come later in the pack, so that a chain could be a ring;
		// what has an id was resolved, and rings cannot be.
		i = base
		if chain = append(chain, i); len(chain) > maxChain {
			return nil, 0, errors.New("a chain of deltas is too long")
		}
	}
}

// base finds what a delta is against.
func (p *Pack) base(i int) (int, error) {
	if err := p.spend(stepCost); err != nil {
		return 0, err
	}
	e := &p.entries[i]
	if e.kind == ofsDelta {
		base, ok := p.byOffset(e.base)
		if !ok {
			return 0, errors.New("a delta whose base is no object")
		}
		return base, nil
	}
	id, err := p.baseID(e)
	if err != nil {
		return 0, err
	}
	base, ok := p.Find(id)
	if !ok {
		return 0, errOutside
	}
	return base, nil
}

// baseID reads the id that stands before a refDelta's stream.
func (p *Pack) baseID(e *entry) (ID, error) {
	var id ID
	if _, err := p.file.ReadAt(id[:p.width], e.data-int64(p.width)); err != nil {
		return id, fmt.Errorf("read a delta's base: %w", err)
	}
	return id, nil
}

// inflate reads what is stored at an entry into a buffer that is used again.
func (p *Pack) inflate(i int, into *[]byte) ([]byte, error) {
	e := &p.entries[i]
	if err := p.spend(startCost); err != nil {
		return nil, err
	}
	if e.size > p.limits.Object {
		return nil, fmt.Errorf("%w: %d bytes", ErrLarge, e.size)
	}
	if p.in.t == nil {
		p.in.t = &tally{r: bufio.NewReaderSize(nil, 4<<10)}
	}
	p.in.t.r.Reset(io.NewSectionReader(p.file, e.data, 1<<62))
	z, err := p.in.open(p.in.t)
	if err != nil {
		return nil, fmt.Errorf("object %d: %w", i, err)
	}
	buf := bytes.NewBuffer((*into)[:0])
	if _, err := buf.ReadFrom(&exact{p: p, z: z, left: e.size}); err != nil {
		return nil, fmt.Errorf("object %d: %w", i, err)
	}
	*into = buf.Bytes()
	return *into, nil
}

// apply builds an object from its base and a delta.
func (p *Pack) apply(base, delta []byte, into *[]byte) ([]byte, error) {
	from, delta, ok := varint(delta)
	size, delta, ok2 := varint(delta)
	switch {
	case !ok || !ok2 || from != int64(len(base)):
		return nil, errors.New("malformed delta")
	case size > p.limits.Object:
		return nil, fmt.Errorf("%w: %d bytes", ErrLarge, size)
	}
	if err := p.spend(size); err != nil {
		return nil, err
	}
	out := (*into)[:0]
	for len(delta) > 0 {
		op := delta[0]
		delta = delta[1:]
		switch {
		case op&0x80 != 0:
			var at, n int64
			for bit := range 7 {
				if op&(1<<bit) == 0 {
					continue
				}
				if len(delta) == 0 {
					return nil, errors.New("malformed delta")
				}
				if bit < 4 {
					at |= int64(delta[0]) << (8 * bit)
				} else {
					n |= int64(delta[0]) << (8 * (bit - 4))
				}
				delta = delta[1:]
			}
			if n == 0 {
				n = 0x10000
			}
			if at+n > int64(len(base)) || int64(len(out))+n > size {
				return nil, errors.New("malformed delta")
			}
			out = append(out, base[at:at+n]...)
		case op == 0 || int(op) > len(delta) || int64(len(out))+int64(op) > size:
			return nil, errors.New("malformed delta")
		default:
			out = append(out, delta[:op]...)
			delta = delta[op:]
		}
	}
	if *into = out; int64(len(out)) != size {
		return nil, errors.New("malformed delta")
	}
	return out, nil
}

// varint reads a size as deltas hold it.
func varint(b []byte) (int64, []byte, bool) {
	var v int64
	for i := 0; i < len(b) && i < 8; i++ {
		v |= int64(b[i]&0x7f) << (7 * i)
		if b[i]&0x80 == 0 {
			return v, b[i+1:], true
		}
	}
	return 0, nil, false
}

// resolve gives ids to what is stored as a delta. A base by id may itself be a delta
// that is named only later, so that it takes rounds; git writes such packs for old
// readers alone, and their chains are short.
func (p *Pack) resolve(blob func(int, io.Reader) error) error {
	for range maxRounds {
		progress := false
		p.outside = 0
		for i := range p.entries {
			e := &p.entries[i]
			// A chain is not gone down for each of its links: what a base is is known.
			if e.real == e.kind || p.named[i] || e.real == Blob && blob == nil {
				continue
			}
			base, err := p.base(i)
			if errors.Is(err, errOutside) || err == nil && p.entries[base].real == 0 {
				p.outside++
				continue
			}
			if err != nil {
				return err
			}
			e.real = p.entries[base].real
			kind := e.real
			if kind == Blob && blob == nil {
				continue
			}
			_, content, err := p.Object(i)
			if err != nil {
				return err
			}
			p.name(i, kind, content)
			progress = true
			if kind == Blob {
				if err := blob(i, bytes.NewReader(content)); err != nil {
					return err
				}
			}
		}
		if p.outside == 0 || !progress {
			return nil
		}
	}
	return nil
}

// maxRounds is how deep bases by id may hang on each other, against their order.
const maxRounds = 64
