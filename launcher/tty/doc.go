// Package tty handles the caller's terminal while a command runs at a pseudo-terminal
// of its own.
//
// For that time the caller's terminal must be raw: what is typed belongs to the
// command's terminal, which echoes it, edits it and makes signals of it. However the
// launcher ends, and whenever it is stopped, the terminal gets its own modes back.
package tty
