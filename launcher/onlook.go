package main

import (
	"runtime"

	"postern/launcher/nameguard"
	"postern/launcher/sandbox"
	"postern/launcher/violation"
)

// onlooker notices denied system calls, for the end of a run.
type onlooker struct {
	sink    *violation.Sink
	end     func()
	adviser adviser
}

// onlook has the run looked on at, where somebody wants to know.
func (l *launch) onlook() *onlooker {
	if l.Quiet && l.summary == nil {
		return nil
	}
	o := &onlooker{sink: violation.NewSink(l.refused.violated)}
	var observe func([]byte)
	observe, o.end = lookFor(&l.options, o.sink)
	l.options.Observe = func(b []byte) {
		if observe != nil {
			observe(b)
		}
		o.adviser.observe(b)
	}
	return o
}

// close ends the looking on, when the command has ended and said everything.
func (o *onlooker) close(say *talker) {
	if o != nil {
		o.end()
		o.sink.Close()
		o.adviser.say(say)
	}
}

// lookFor has the violations of one run given to sink: on macOS those that the system's
// log tells (SPEC 91), elsewhere those of rules about names, and of the rest what the
// command says of them (SPEC 95), for which observe is to see it. It is for what a sandbox wraps and nothing else (SPEC 97): there
// nobody else denies in our name.
func lookFor(o *sandbox.Options, sink *violation.Sink) (observe func([]byte), end func()) {
	if runtime.GOOS == "darwin" {
		// A tag of this run and no other, whatever its id (SPEC 96).
		o.Tag = "postern-" + newID()
		return nil, violation.StartTap(violation.LogExe, o.Tag, sink).Close
	}
	o.Violated = sandbox.Violated{
		Notice: func(v nameguard.Violation) { sink.Cover(v.Target) },
		Report: func(v nameguard.Violation) {
			sink.Add(violation.Named(v))
		},
	}
	scanner := violation.NewScanner(sink)
	return scanner.Observe, scanner.Close
}
