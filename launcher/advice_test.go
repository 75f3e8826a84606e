package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestAdvice(t *testing.T) {
	line := "x\nerror: could not write config file .git/config: Device or resource busy\n"
	for size := 1; size <= len(line); size++ {
		var a adviser
		for rest := line; rest != ""; rest = rest[min(size, len(rest)):] {
			a.observe([]byte(rest[:min(size, len(rest))]))
		}
		if !a.seen {
			t.Errorf("not seen in chunks of %d", size)
		}
	}
	var a adviser
	a.observe([]byte(strings.Repeat("could not write ", 100)))
	a.observe([]byte("config file"))
	if !a.seen {
		t.Error("not seen across two chunks")
	}
	a = adviser{}
	a.observe([]byte("could not read config file"))
	var out bytes.Buffer
	if a.say(&talker{w: &out}); a.seen || out.Len() != 0 {
		t.Errorf("seen %t, said %q", a.seen, out.String())
	}
}
