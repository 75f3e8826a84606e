package ports

import (
	"io"
	"net"
	"strconv"
	"testing"
)

// BenchmarkForward measures a published port beside the same connection without it, in
// the same round: a bulk answer, and a new connection with one byte each way.
func BenchmarkForward(b *testing.B) {
	const bulk = 64 << 20
	block := make([]byte, 1<<20)
	origin, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer origin.Close()
	go func() {
		for {
			c, err := origin.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				want := make([]byte, 1)
				if _, err := io.ReadFull(c, want); err != nil {
					return
				}
				if want[0] == 1 {
					_, _ = c.Write(want)
					return
				}
				for range bulk / len(block) {
					if _, err := c.Write(block); err != nil {
						return
					}
				}
			}()
		}
	}()
	inside := uint16(origin.Addr().(*net.TCPAddr).Port) //nolint:forcetypeassert // a TCP listener
	f, err := Open(b.Context(), Set{Publish: []Publish{{Host: free(b), Inside: inside}}})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := f.Start(b.Context(), far{}); err != nil {
		b.Fatal(err)
	}
	fetch := func(b *testing.B, addr string, ask byte) int64 {
		b.Helper()
		c, err := net.Dial("tcp4", addr)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte{ask}); err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, c)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	for _, way := range []struct {
		name string
		port uint16
	}{{"direct", inside}, {"published", f.set.Publish[0].Host}} {
		addr := "127.0.0.1:" + strconv.Itoa(int(way.port))
		b.Run("bulk/"+way.name, func(b *testing.B) {
			b.SetBytes(bulk)
			for b.Loop() {
				if n := fetch(b, addr, 0); n != bulk {
					b.Fatalf("%d bytes", n)
				}
			}
		})
		b.Run("connection/"+way.name, func(b *testing.B) {
			for b.Loop() {
				fetch(b, addr, 1)
			}
		})
	}
}
