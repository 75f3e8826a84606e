package main

import (
	"bytes"
	"slices"
)

// configWords are what git says when it may not write a configuration. It says so in
// passing (push -u and checkout --track succeed all the same) and does not say why.
var configWords = [][]byte{[]byte("could not write config file"), []byte("could not lock config file")}

// configAdvice is what a person, or an agent, can do about it.
const configAdvice = "git could not write a configuration: a run reads .git/config and cannot change it, for it can name programs that run outside; " +
	"what else the command did stands, a push too. Outside of the run: git config NAME VALUE, git branch --set-upstream-to=origin/BRANCH; for one command inside: git -c NAME=VALUE"

// adviser notices what the command says that needs a word of explanation.
type adviser struct {
	tail []byte // the end of the last chunk: words may lie across two
	seen bool
}

// observe looks at the next chunk of the command's errors.
func (a *adviser) observe(b []byte) {
	const longest = 64
	if a.seen {
		return
	}
	across := slices.Concat(a.tail, b[:min(len(b), longest)])
	for _, words := range configWords {
		a.seen = a.seen || bytes.Contains(across, words) || bytes.Contains(b, words)
	}
	if len(b) >= longest {
		across = b
	}
	a.tail = slices.Clone(across[max(0, len(across)-longest):])
}

// say prints it, once, when the command has ended.
func (a *adviser) say(t *talker) {
	if a.seen {
		t.warn("%s", configAdvice)
	}
}
