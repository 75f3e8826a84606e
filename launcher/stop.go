package main

import (
	"sync"
	"syscall"
	"time"

	"postern/launcher/spec"
)

// How long a command has between TERM and KILL.
const (
	timeoutGrace = 2 * time.Second
	stopGrace    = 3 * time.Second
)

// exitTimeout is the status of a run that took too long, as timeout(1) has it.
const exitTimeout = 124

// target is what can be ended.
type target interface {
	Signal(sig syscall.Signal, group bool) error
	Kill()
}

// stopper ends a command on behalf of its host, and knows why it did.
type stopper struct {
	to target

	mu    sync.Mutex
	over  bool // the command has ended: nothing is to be stopped any more
	cause spec.Cause
	kill  *time.Timer
	limit *time.Timer
}

// watch stops the command after a time; 0 means never.
func (s *stopper) watch(timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if timeout > 0 && !s.over {
		s.limit = time.AfterFunc(timeout, func() { s.stop(spec.Timeout, timeoutGrace) })
	}
}

// stop asks the command's whole group to end, and ends it when the grace is over. Asked
// a second time by somebody, it does not wait for that; the first cause stays.
func (s *stopper) stop(cause spec.Cause, grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
	case s.cause == "":
		s.cause = cause
		_ = s.to.Signal(syscall.SIGTERM, true)
		s.kill = time.AfterFunc(grace, s.to.Kill)
	case cause == spec.Stopped:
		s.to.Kill()
	}
}

// ended is told that the command has ended, and says what ended it: nothing if it did
// so by itself.
func (s *stopper) ended() spec.Cause {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, t := range []*time.Timer{s.kill, s.limit} {
		if t != nil {
			t.Stop()
		}
	}
	return s.cause
}
