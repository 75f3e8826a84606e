package pack

import (
	"context"
	"crypto/sha1" //nolint:gosec // it is the format's; forges refuse known collisions
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sort"
)

// Kind is an object's type, with the numbers of the format.
type Kind uint8

// The kinds of objects. The deltas are how an object is stored, not what it is.
const (
	Commit   Kind = 1
	Tree     Kind = 2
	Blob     Kind = 3
	Tag      Kind = 4
	ofsDelta Kind = 6
	refDelta Kind = 7
)

// String is git's word, which also begins what is hashed.
func (k Kind) String() string {
	switch k {
	case Commit:
		return "commit"
	case Tree:
		return "tree"
	case Blob:
		return "blob"
	case Tag:
		return "tag"
	default:
		return "unknown"
	}
}

// ID is an object's id: 20 bytes of SHA-1, the rest zero, or 32 of SHA-256.
type ID [32]byte

// Limits bound what a look into a pack may cost. A zero field means its default.
type Limits struct {
	// Objects is the most objects. Default 100,000, some 10 MiB of memory.
	Objects int
	// Object is the most bytes of an object that has to be held: a commit, a tree,
	// and every object that is stored as a delta. Default 4 MiB.
	Object int64
	// Work is the most bytes inflated, each time counted; what costs time and no bytes
	// counts as some. Default [DefaultWork].
	Work int64
}

// DefaultWork is the work that a look may do unless it is told otherwise: 8 GiB.
const DefaultWork = 8 << 30

// The reasons for which a sound pack is not looked into.
var (
	ErrObjects = errors.New("too many objects to look into")
	ErrLarge   = errors.New("an object is too large to look into")
	ErrWork    = errors.New("the pack inflates too far to be looked into")
)

// entry is one object where it lies.
type entry struct {
	at   int64 // where its header begins
	data int64 // where its zlib stream begins
	base int64 // of an ofsDelta: where the base begins
	size int64 // inflated, of a delta: the delta's own
	kind Kind  // as it is stored
	real Kind  // what it is; of a delta 0 until its base is known
}

// Pack is a pack that has been passed over once. It is not safe for concurrent use.
type Pack struct {
	ctx     context.Context //nolint:containedctx // of the one push that the pack belongs to
	file    io.ReaderAt
	sum     func() hash.Hash
	width   int
	limits  Limits
	left    int64
	used    *int64
	entries []entry
	ids     map[ID]uint32
	named   []bool // by entry: its id is in ids
	outside int
	in      inflater
	bufs    [3][]byte
	last    cached
}

// Options say what is wanted of the pass.
type Options struct {
	Limits Limits
	// SHA256 is the repository's hash; SHA-1 otherwise.
	SHA256 bool
	// Blob is called with the content of each blob, in the order of the pack for
	// those that are stored whole and after them for the rest. nil: blobs are
	// passed over, and have no id. Its error ends the pass.
	Blob func(i int, content io.Reader) error
	// Used, where it is set, is told the work that was done, also by a pass that failed.
	Used *int64
}

// Open passes over the pack in the first size bytes of file.
func Open(ctx context.Context, file io.ReaderAt, size int64, o Options) (*Pack, error) {
	p := &Pack{ctx: ctx, file: file, limits: o.Limits, sum: sha1.New, width: sha1.Size, ids: map[ID]uint32{}, used: o.Used}
	if o.SHA256 {
		p.sum, p.width = sha256.New, sha256.Size
	}
	p.limits.Objects = orDefault(p.limits.Objects, 100_000)
	p.limits.Object = orDefault(p.limits.Object, 4<<20)
	p.limits.Work = orDefault(p.limits.Work, DefaultWork)
	p.left = p.limits.Work
	p.last.at = -1
	if p.used == nil {
		p.used = new(int64)
	}
	if err := p.pass(size, o.Blob); err != nil {
		return nil, err
	}
	if err := p.resolve(o.Blob); err != nil {
		return nil, err
	}
	return p, nil
}

func orDefault[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

// spend counts work, and notices that nobody waits for it any more.
func (p *Pack) spend(n int64) error {
	*p.used += n
	if p.left -= n; p.left < 0 {
		return ErrWork
	}
	return p.ctx.Err()
}

// ParseID reads an id's hex digits.
func ParseID(text string) (ID, bool) {
	var id ID
	if len(text) != 40 && len(text) != 64 {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(text))
	return id, err == nil
}

// Hex is an id as git prints it.
func (p *Pack) Hex(id ID) string { return hex.EncodeToString(id[:p.width]) }

// Len is the number of objects.
func (p *Pack) Len() int { return len(p.entries) }

// Outside is how many objects are deltas against objects that the pack does not
// hold, or hang on such: what they are cannot be told. A pack that is not thin has
// none.
func (p *Pack) Outside() int { return p.outside }

// Find returns the number of the object with an id. Blobs are found only where the
// pass had a function for them.
func (p *Pack) Find(id ID) (int, bool) {
	i, ok := p.ids[id]
	return int(i), ok
}

// IDs calls f with each object that has an id.
func (p *Pack) IDs(f func(id ID, i int)) {
	for id, i := range p.ids {
		f(id, int(i))
	}
}

// name computes an object's id from its content.
func (p *Pack) name(i int, kind Kind, content []byte) {
	h := p.sum()
	_, _ = fmt.Fprintf(h, "%s %d\x00", kind, len(content))
	_, _ = h.Write(content)
	p.enter(i, h)
}

func (p *Pack) enter(i int, h hash.Hash) {
	var id ID
	h.Sum(id[:0])
	p.ids[id] = uint32(i) //nolint:gosec // at most Limits.Objects
	p.named[i] = true
}

// byOffset finds the object that begins at an offset.
func (p *Pack) byOffset(at int64) (int, bool) {
	i := sort.Search(len(p.entries), func(i int) bool { return p.entries[i].at >= at })
	return i, i < len(p.entries) && p.entries[i].at == at
}
