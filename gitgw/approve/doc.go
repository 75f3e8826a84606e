// Package approve carries the questions of ask rules to whoever may say yes:
// over HTTP to a program on this host, or into a queue that a connected program
// reads.
//
// Whatever cannot be answered is denied: an approver that cannot be reached,
// answers nonsense, answers late or goes away.
package approve
