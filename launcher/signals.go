package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// forwarded are the signals the command gets in our place. Those that a terminal
// sends to a whole process group go to the command's whole group.
var forwarded = map[syscall.Signal]bool{
	syscall.SIGINT:   true,
	syscall.SIGQUIT:  true,
	syscall.SIGHUP:   true,
	syscall.SIGWINCH: true,
	syscall.SIGTERM:  false,
	syscall.SIGUSR1:  false,
	syscall.SIGUSR2:  false,
	syscall.SIGCONT:  true,
	syscall.SIGTSTP:  true,
}

// signals catches what is for the command. Until the command runs, the first one
// that would end it ends the start.
type signals struct {
	ch     chan os.Signal
	armed  chan struct{} // closed when they are caught
	done   chan struct{}
	ended  sync.WaitGroup
	mu     sync.Mutex
	sig    syscall.Signal // the first that came before the command ran
	cancel context.CancelFunc
	to     func(syscall.Signal, bool)
	pause  func()
	missed []syscall.Signal // what ends nothing, and came before the command ran
	ready  chan struct{}    // closed when there is a command to forward to

	stops sync.Mutex    // one stop at a time
	turn  chan struct{} // closed when this process is continued; guarded by mu
}

// catchSignals begins to catch signals. What comes before context returns ends the
// process as it would any other: it has started nothing.
func catchSignals() *signals {
	s := &signals{
		ch: make(chan os.Signal, 16), armed: make(chan struct{}), done: make(chan struct{}),
		ready: make(chan struct{}), turn: make(chan struct{}),
	}
	// Each costs a turn of another thread, during which there is other work.
	s.ended.Go(func() {
		s.arm()
		close(s.armed)
		s.pump()
	})
	return s
}

func (s *signals) arm() {
	for sig := range forwarded {
		// What the caller had ignored, as nohup does, stays ignored, here and for
		// the command, which inherits that.
		if !signal.Ignored(sig) {
			signal.Notify(s.ch, sig)
		}
	}
	// Taken and dropped: a reader of our stderr that went away must not end the run.
	// Not ignored, for the command would inherit that.
	signal.Notify(s.ch, syscall.SIGPIPE)
}

func (s *signals) stop() {
	<-s.armed
	signal.Stop(s.ch)
	close(s.done)
	s.ended.Wait()
}

func (s *signals) pump() {
	for {
		select {
		case <-s.done:
			return
		case sig := <-s.ch:
			if sig, ok := sig.(syscall.Signal); ok {
				s.take(sig)
			}
		}
	}
}

func (s *signals) take(sig syscall.Signal) {
	if _, known := forwarded[sig]; !known {
		return
	}
	s.mu.Lock()
	to, cancel := s.to, s.cancel
	ends := sig != syscall.SIGWINCH && sig != syscall.SIGCONT && sig != syscall.SIGTSTP
	turn := s.turn
	if to == nil && ends && s.sig == 0 {
		s.sig = sig
	}
	if to == nil && !ends && sig != syscall.SIGTSTP && !slices.Contains(s.missed, sig) {
		s.missed = append(s.missed, sig)
	}
	s.mu.Unlock()
	switch {
	case sig == syscall.SIGTSTP:
		s.ended.Go(func() { s.stopAll(turn) })
	case to != nil:
		to(sig, forwarded[sig])
	case ends && cancel != nil:
		cancel()
	}
	if sig == syscall.SIGCONT {
		s.mu.Lock()
		close(s.turn)
		s.turn = make(chan struct{})
		s.mu.Unlock()
	}
}

// context ends with the first signal that comes before forward is called.
func (s *signals) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	<-s.armed
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
	if s.sig != 0 {
		cancel()
	}
	return ctx, cancel
}

// forward sends what comes from now on to the command, and what came too late to
// stop its start. Before this process is stopped, pause is called, unless
// it is nil.
func (s *signals) forward(to func(sig syscall.Signal, group bool), pause func()) {
	s.mu.Lock()
	s.to, s.pause = to, pause
	close(s.ready)
	late, missed := s.sig, s.missed
	s.mu.Unlock()
	for _, sig := range missed {
		to(sig, forwarded[sig]) // the size may be another, say
	}
	if late != 0 {
		to(late, forwarded[late])
	}
}

// first is the signal that ended the start, or 0.
func (s *signals) first() syscall.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sig
}
