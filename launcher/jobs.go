package main

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"postern/launcher/sandbox"
	"postern/launcher/tty"
)

// A job of a shell is stopped and continued as one: the command by Ctrl-Z, the launcher
// with it, so that the shell notices, and the other way round.

// openTerminal has the command run at a terminal of its own, where that is asked for.
// What is returned gives the caller's terminal back.
func (l *launch) openTerminal() (restore func()) {
	o := &l.options
	if !sandbox.Terminals {
		return func() {} // flags.go has refused to promise one
	}
	if o.Terminal = l.TTY.Open(os.Stdin, os.Stdout); o.Terminal == nil {
		return func() {}
	}
	o.Stopped = l.signals.stopped
	if tty.Is(os.Stderr) {
		l.say.w = o.Terminal.Writer(l.say.w)
	}
	return o.Terminal.Restore
}

// stopped is for when the command was stopped at its terminal: by whoever sits there,
// who wants the shell back.
func (s *signals) stopped(still func() bool) {
	s.mu.Lock()
	turn := s.turn
	s.mu.Unlock()
	// In this order: a turn ends after what is stopped in it was continued.
	if still() {
		s.stopSelf(0, turn)
	}
}

// aboutToRun is how long a command takes to run that is as good as started.
const aboutToRun = 300 * time.Millisecond

// stopAll is for when this process was asked to stop: so is the command.
func (s *signals) stopAll(turn <-chan struct{}) {
	select {
	case <-s.ready:
	case <-s.done:
	case <-time.After(aboutToRun): // it waits for an appliance, say
	}
	s.mu.Lock()
	to, pause := s.to, s.pause
	s.mu.Unlock()
	if pause != nil {
		pause()
	}
	if to != nil {
		to(syscall.SIGTSTP, true)
	}
	// The others of the job were asked as well, if it was the terminal that did.
	s.stopSelf(os.Getpid(), turn)
}

// stopSelf stops this process, or for 0 the whole of its job, as the terminal would have
// done. It returns when it was continued, and with it the command: turn is closed then.
//
// SIGSTOP, because Go keeps a handler for SIGTSTP that it has once had.
func (s *signals) stopSelf(pid int, turn <-chan struct{}) {
	s.stops.Lock()
	defer s.stops.Unlock()
	select {
	case <-turn:
		return // by the same stop, of which we hear twice
	default:
	}
	if !continuable() {
		s.take(syscall.SIGCONT)
		return
	}
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	select {
	case <-turn:
	case <-s.done:
	}
}

// continuable reports whether there is a shell that would continue this job, by the
// kernel's own rule: of the processes that wait for one of the job, one is in the same
// session and not in the job. Where there is none, the kernel heeds no Ctrl-Z, and we
// must not either: nothing would ever go on.
func continuable() bool {
	group := syscall.Getpgrp()
	session, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	for pid := os.Getppid(); pid > 0; pid = parentOf(pid) {
		of, err := syscall.Getpgid(pid)
		if err != nil {
			return false
		}
		if of != group {
			theirs, err := unix.Getsid(pid)
			return err == nil && theirs == session
		}
	}
	return false
}

// parentOf is who waits for a process; 0 where the system does not say.
func parentOf(pid int) int {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	// The name may hold anything, blanks and parentheses included.
	_, rest, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	if fields := bytes.Fields(rest); len(fields) > 1 {
		parent, _ := strconv.Atoi(string(fields[1]))
		return parent
	}
	return 0
}
