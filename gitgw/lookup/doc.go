// Package lookup asks a program on this host what may be pushed: the rules that an
// agent host keeps itself. Local rules can only narrow its answer, and without an
// answer nothing is pushed.
package lookup
