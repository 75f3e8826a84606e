package sandbox

import (
	"fmt"
	"testing"
)

// No signal from inside ends PID 1, and the run with it: those that Go dies of by itself
// are the kernel's to drop, and nobody can send what cannot be caught.
func TestSignalsDoNotEndPID1(t *testing.T) {
	out := script(t, newWorld(t).profile(), `
		for n in $(seq 31); do
			case $n in 4|7|8|11) continue;; esac # a fault of its own: those it would die of
			kill -$n 1 || exit 3
		done
		sleep 0.2; echo alive; exit 7`)
	if out.stdout != "alive\n" || out.status.Code != 7 {
		t.Errorf("got %q, %q, %+v", out.stdout, out.stderr, out.status)
	}
}

// The child that is gone is not signalled: its number may be another process's.
func TestChildIsNotKilledTwice(t *testing.T) {
	p, _ := standing(t)
	if name := read(t, fmt.Sprintf("/proc/%d/comm", p.PID())); name != "bwrap\n" {
		t.Errorf("the process is %q", name)
	}
	execute(t, p, "/bin/true")
	if status, err := p.Wait(); err != nil || status.Code != 0 {
		t.Fatalf("%+v, %v", status, err)
	}
	if p.child.kill(); !p.child.reaped {
		t.Error("it counts as alive")
	}
}
