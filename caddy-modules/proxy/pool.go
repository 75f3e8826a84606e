package proxy

import "sync"

// Two sizes of buffer are enough: a small one for what nearly every head,
// handshake and ClientHello fits into, and a large one for content and for the
// largest head that Limits can allow.
const (
	smallSize = 4 << 10
	largeSize = 64 << 10
)

var (
	smallPool = sync.Pool{New: func() any { return new([smallSize]byte) }}
	largePool = sync.Pool{New: func() any { return new([largeSize]byte) }}
)

func getSmall() *[smallSize]byte  { return smallPool.Get().(*[smallSize]byte) }
func putSmall(b *[smallSize]byte) { smallPool.Put(b) }

func getLarge() *[largeSize]byte  { return largePool.Get().(*[largeSize]byte) }
func putLarge(b *[largeSize]byte) { largePool.Put(b) }
