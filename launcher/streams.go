package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"postern/launcher/spec"
)

// pieceSize is how much of a command's output one event carries at most.
const pieceSize = 32 << 10

// streams are the pipes through which a command's output comes by here: to become
// events, or to be looked at on its way.
type streams struct {
	ours   []*os.File
	theirs []*os.File    // the command's ends
	gate   chan struct{} // closed when the command may be heard; nil: nothing is open
	group  sync.WaitGroup

	mu   sync.Mutex
	lost error
}

// open makes a pipe whose content is given to write, piece by piece and in order, and
// after that to observe. The pieces are what came at once: nothing waits for more. Where
// write fails the reading ends, as it would have with the far end itself: the command
// gets SIGPIPE.
func (s *streams) open(write func([]byte) error, observe func([]byte)) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	if s.gate == nil {
		s.gate = make(chan struct{})
	}
	gate := s.gate
	s.ours, s.theirs = append(s.ours, r), append(s.theirs, w)
	s.group.Go(func() {
		defer r.Close()
		<-gate
		buf := make([]byte, pieceSize)
		for {
			n, err := r.Read(buf)
			if n > 0 {
				if werr := write(buf[:n]); werr != nil {
					s.lose(werr)
					return
				}
				if observe != nil {
					observe(buf[:n])
				}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
					s.lose(err)
				}
				return
			}
		}
	})
	return w, nil
}

func (s *streams) lose(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		s.lost = err
	}
}

// handOver closes the command's ends here, once the command has them.
func (s *streams) handOver() {
	for _, f := range s.theirs {
		_ = f.Close()
	}
	s.theirs = nil
}

// release lets the command be heard: what it says comes behind the word that it runs.
func (s *streams) release() {
	if s.gate != nil {
		close(s.gate)
		s.gate = nil
	}
}

// wait ends when everything that was written has been passed on; the error is the first
// that kept something from it.
func (s *streams) wait() error {
	s.handOver()
	s.release()
	s.group.Wait()
	s.ours = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// cut ends the reading after a time, where a process that was left behind may hold the
// other end for ever.
func (s *streams) cut(after time.Duration) {
	deadline := time.Now().Add(after)
	for _, f := range s.ours {
		_ = f.SetReadDeadline(deadline)
	}
}

// tell writes pieces as events.
func tell(w *spec.Writer, kind spec.Kind) func([]byte) error {
	return func(piece []byte) error {
		e := spec.Event{Type: kind}
		e.SetBytes(piece)
		return w.Write(e)
	}
}
