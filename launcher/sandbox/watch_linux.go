package sandbox

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A mask goes with the directory entry that it covers. When something outside the sandbox
// replaces the entry (the user's own git config, an editor that saves by renaming), the
// kernel takes the mask away, and the run sees the new file and may write it. Nobody
// without privileges can keep that from happening, or mount into the sandbox from outside
// afterwards. What can be done is to say so while there is still something to be done:
// Watch tells at once, Inspect again at the end. It does not end the run, for it is the
// user himself who did it, in nearly every case.

// maxWatched bounds the folders that are watched: the kernel gives each user a number of
// watches for all of his programs.
const maxWatched = 4096

// watchAfter is how long a run has to last before it is watched. To give watches up takes
// the kernel longer than most commands run; what such a short one missed, Inspect tells.
const watchAfter = 200 * time.Millisecond

// Watch calls tell from another goroutine for each denied path whose mask is lifted from
// outside, once for each, until stop is called. Where the kernel has no watches left it
// tells nothing; Inspect does not depend on it.
func (f *Facts) Watch(tell func(Change)) (stop func()) {
	over, end := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		timer := time.NewTimer(watchAfter)
		defer timer.Stop()
		select {
		case <-over.Done():
		case <-timer.C:
			f.watchMasks(over, tell)
		}
	})
	return func() {
		end()
		done.Wait()
	}
}

// watchMasks does it until over ends.
func (f *Facts) watchMasks(over context.Context, tell func(Change)) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return
	}
	w := &watcher{file: os.NewFile(uintptr(fd), "watches"), folders: map[int32]string{}, masks: map[string]*Denial{}, tell: tell}
	numbers := map[string]bool{}
	for _, d := range effective(f, granted(f)) {
		dir := filepath.Dir(d.Path)
		if d.ID == (FileID{}) {
			continue // it could not be made, and nothing is mounted on it
		}
		w.masks[d.Path] = &d
		if numbers[dir] || len(numbers) >= maxWatched {
			continue
		}
		numbers[dir] = true
		// Of what is read, changed or listed nothing is told: it costs a run nothing.
		wd, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVED_TO|unix.IN_MOVED_FROM|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW)
		if err == nil {
			w.folders[int32(wd)] = dir //nolint:gosec // the kernel numbers them so
		}
	}
	stop := context.AfterFunc(over, func() { _ = w.file.Close() })
	w.watch()
	if stop() {
		_ = w.file.Close()
	}
}

type watcher struct {
	file    *os.File
	folders map[int32]string
	masks   map[string]*Denial
	tell    func(Change)
}

func (w *watcher) watch() {
	buf := make([]byte, 16<<10)
	w.all() // what happened before there were watches
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(rest)) //nolint:gosec // it is one
			size := int(binary.NativeEndian.Uint32(rest[12:]))
			if size > len(rest)-unix.SizeofInotifyEvent {
				return
			}
			name := strings.TrimRight(string(rest[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size]), "\x00")
			rest = rest[unix.SizeofInotifyEvent+size:]
			if wd < 0 {
				w.all() // some were lost
				continue
			}
			w.look(filepath.Join(w.folders[wd], name))
		}
	}
}

func (w *watcher) all() {
	for path := range w.masks {
		w.look(path)
	}
}

// look tells if what a path leads to is not what was masked.
func (w *watcher) look(path string) {
	d, ok := w.masks[path]
	if !ok {
		return
	}
	info, err := os.Lstat(path)
	if err == nil && idOf(info) == d.ID || err != nil && d.made {
		return // as it was, or a placeholder that is cleared away
	}
	delete(w.masks, path)
	c := Change{Path: path, What: "was replaced from outside: the run may write it now", Cure: "end the run, or look at the file before any tool of yours does"}
	if d.Kind == Hide {
		c.What = "was replaced from outside: the run can read it now"
	}
	if err != nil {
		c.What = "was removed from outside: the run may make it anew"
	}
	w.tell(c)
}
