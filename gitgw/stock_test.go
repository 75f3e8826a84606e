package gitgw_test

import (
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"os"
	"path/filepath"
	"sync"
)

// forgeKey is the App's key in every world: making one takes seconds under the race
// detector.
var forgeKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// stock is what worlds begin with, each kind of it made by git once and copied into the
// worlds that come after: dozens of processes less for each.
var stock struct {
	mu    sync.Mutex
	dir   string // made by the first world, removed by TestMain
	kinds map[string]*stocked
}

type stocked struct {
	once sync.Once
	dir  string // with the folders of the forge's repository and of the clone
}

// stockOf finds a kind.
func stockOf(kind string) (*stocked, error) {
	stock.mu.Lock()
	defer stock.mu.Unlock()
	if stock.kinds == nil {
		dir, err := os.MkdirTemp("", "postern-gitgw-stock-")
		if err != nil {
			return nil, err
		}
		stock.dir, stock.kinds = dir, map[string]*stocked{}
	}
	if stock.kinds[kind] == nil {
		stock.kinds[kind] = new(stocked)
	}
	return stock.kinds[kind], nil
}

// begin has acme/app and its clone be what a kind of worlds begins with, which prepare
// makes of what is there.
func (w *world) begin(kind string, prepare func()) {
	w.t.Helper()
	far, err := w.hub.Dir("acme/app")
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := stockOf(kind)
	if err != nil {
		w.t.Fatal(err)
	}
	// What of a repository holds its history; the rest names places of this world.
	parts := map[string]string{"objects": filepath.Join(far, "objects"), "refs": filepath.Join(far, "refs"), "clone": w.clone}
	here := false
	s.once.Do(func() {
		here = true
		prepare()
		dir := filepath.Join(stock.dir, kind)
		for name, from := range parts {
			err = errors.Join(err, os.CopyFS(filepath.Join(dir, name), os.DirFS(from)))
		}
		if err == nil {
			s.dir = dir
		}
	})
	if s.dir == "" {
		w.t.Fatalf("nothing is in stock for a %s world: %v", kind, err)
	}
	if here {
		return
	}
	for name, to := range parts {
		if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(filepath.Join(s.dir, name)))); err != nil {
			w.t.Fatal(err)
		}
	}
}
