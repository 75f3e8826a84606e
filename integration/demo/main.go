// The demo command runs Postern's main job for real and prints what happened:
// one sandboxed run whose allowed request passes, whose denied request is refused
// with a reason, whose push to an agent branch lands on a real git server with a
// token the run never saw, and whose push to main is refused in git's own words.
//
// Nothing is mocked but the far side: the appliance and the launcher are the
// binaries of bin/, the sandbox is bubblewrap, the client is git; the forge is a
// git server with GitHub's App API on loopback. It ends with 0 only if all
// outcomes were as promised.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := demo(); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return run(ctx)
}

func run(ctx context.Context) error {
	w, err := newWorld(ctx)
	if err != nil {
		return err
	}
	defer w.close()
	for _, step := range steps(w) {
		if err := step.run(ctx, w); err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(step.title), err)
		}
	}
	if err := tokensStayedOut(w); err != nil {
		return err
	}
	if err := w.end(); err != nil {
		return err
	}
	return nothingLives(w)
}
