package main

import "postern/launcher/violation"

// onlooker notices denied system calls in what the command says (SPEC 95).
type onlooker struct {
	sink    *violation.Sink
	scanner *violation.Scanner
	adviser adviser
}

// onlook has the run looked on at, where somebody wants to know. Only a sandbox denies
// in our name: there is one here (SPEC 97).
func (l *launch) onlook() *onlooker {
	if l.Quiet && l.summary == nil {
		return nil
	}
	o := &onlooker{sink: violation.NewSink(l.refused.violated)}
	o.scanner = violation.NewScanner(o.sink)
	l.options.Observe = func(b []byte) {
		o.scanner.Observe(b)
		o.adviser.observe(b)
	}
	return o
}

// close ends the looking on, when the command has ended and said everything.
func (o *onlooker) close(say *talker) {
	if o != nil {
		o.scanner.Close()
		o.sink.Close()
		o.adviser.say(say)
	}
}
