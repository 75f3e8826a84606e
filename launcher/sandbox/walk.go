package sandbox

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A walk goes once through everything below one root, and answers every question about
// names: what is protected, where git directories and sockets are, what the patterns of
// the run match. It is what a start costs in a large folder, so every processor takes
// part as soon as there is something to share.
type walk struct {
	root, home string
	dir        string // where notes for later walks are; empty: nowhere
	globs      *globSet
	limit      int64

	cache     *walkCache
	cacheFile string
	given     bool       // they are those of an earlier walk of this run
	after     *walkCache // what a later walk of this run may go by, or nil
	top       *cacheNode // of the notes that are taken
	began     time.Time
	small     bool          // take notes of small folders as well
	later     time.Duration // how far the clock is taken to have gone on

	entries atomic.Int64

	mu      sync.Mutex
	idle    *sync.Cond
	shared  []place
	busy    int
	workers []*scanner
	wg      sync.WaitGroup
}

// maxEntries bounds a walk. Twenty million names are a minute or so; who has more binds
// a folder that is smaller.
const maxEntries = 20_000_000

// folderStat is what tells one directory, and one content of it, from another.
type folderStat struct {
	dev, ino  uint64
	sec, nsec int64
}

// share is from how many folders on a worker lets others take part.
const share = 32

var errTooLarge = errors.New("it holds too much to be searched")

func newWalk(root, home, dir string, globs *globSet) *walk {
	w := &walk{root: root, home: home, dir: dir, globs: globs, limit: maxEntries}
	w.idle = sync.NewCond(&w.mu)
	return w
}

// run walks from one place, and puts together what the workers found, in an order that
// does not depend on them.
func (w *walk) run(from place) (findings, error) {
	w.openCache(&from)
	s := w.worker()
	s.dirs = append(s.dirs, from)
	w.work(s)
	w.wg.Wait()
	w.closeCache()
	for _, other := range w.workers[1:] {
		s.merge(other)
	}
	byPath := func(a, b found) int { return strings.Compare(a.path, b.path) }
	slices.SortFunc(s.names, byPath)
	slices.SortFunc(s.globbed, byPath)
	slices.SortFunc(s.gits, func(a, b gitDir) int { return strings.Compare(a.path, b.path) })
	for _, list := range [][]string{s.closed, s.deep, s.tops} {
		slices.Sort(list)
	}
	if w.entries.Load() > w.limit {
		s.errs = append(s.errs, fmt.Errorf("%w: over %d names", errTooLarge, w.limit))
	}
	s.configured()
	return s.findings, errors.Join(s.errs...)
}

// worker makes one more; it counts as busy.
func (w *walk) worker() *scanner {
	s := &scanner{walk: w, root: w.root, home: w.home, globs: w.globs, buf: make([]byte, listBuffer)}
	s.referenced = map[string]bool{}
	w.workers = append(w.workers, s)
	w.busy++
	return s
}

func (s *scanner) merge(other *scanner) {
	s.names = append(s.names, other.names...)
	s.globbed = append(s.globbed, other.globbed...)
	s.gits = append(s.gits, other.gits...)
	s.closed = append(s.closed, other.closed...)
	s.deep = append(s.deep, other.deep...)
	s.notes = append(s.notes, other.notes...)
	s.tops = append(s.tops, other.tops...)
	s.errs = append(s.errs, other.errs...)
	for dir := range other.referenced {
		s.referenced[dir] = true
	}
}

// work searches folders until there are none left, or too much was seen.
func (w *walk) work(s *scanner) {
	for {
		for len(s.dirs) > 0 {
			at := s.dirs[len(s.dirs)-1]
			s.dirs = s.dirs[:len(s.dirs)-1]
			s.count = 0
			s.dir(at)
			if w.entries.Add(int64(s.count)) > w.limit {
				s.dirs = nil
			}
			if len(s.dirs) >= share {
				w.give(s)
			}
		}
		if !w.take(s) {
			return
		}
	}
}

// give lets others have the half of the folders that was found first: what lies below
// them is the larger part.
func (w *walk) give(s *scanner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.shared) > 0 {
		return
	}
	half := len(s.dirs) / 2
	w.shared = append(w.shared, s.dirs[:half]...)
	s.dirs = slices.Delete(s.dirs, 0, half)
	if len(w.workers) < runtime.GOMAXPROCS(0) {
		other := w.worker()
		w.wg.Go(func() { w.work(other) })
	}
	w.idle.Signal()
}

// take waits for folders that another worker shares. It reports whether there are any:
// when nobody works any more there will be none.
func (w *walk) take(s *scanner) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy--
	for len(w.shared) == 0 {
		if w.busy == 0 || w.entries.Load() > w.limit {
			w.idle.Broadcast()
			return false
		}
		w.idle.Wait()
	}
	w.busy++
	s.dirs, w.shared = append(s.dirs, w.shared...), nil
	return true
}
