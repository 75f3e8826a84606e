package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// tokensStayedOut looks for every write token the forge ever made in all that
// the run could see and all that was logged: its worktree with the environment
// and the trace it wrote there, its output, the appliance's logs.
func tokensStayedOut(w *world) error {
	fmt.Println("\n== The write token appears in no environment, file or log of the run")
	var files int
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path == w.forgeDir {
			return filepath.SkipDir // the far side keeps its own books
		}
		if !d.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("search for tokens: %w", err)
		}
		files++
		return w.search(path, content)
	})
	if err != nil {
		return err
	}
	if err := w.search("the output of the runs", w.transcript.Bytes()); err != nil {
		return err
	}
	for _, name := range []string{"env.txt", "trace.txt"} {
		if info, err := os.Stat(filepath.Join(w.worktree, name)); err != nil || info.Size() == 0 {
			return fmt.Errorf("the run left no %s to search", name)
		}
	}
	env, err := os.ReadFile(filepath.Join(w.worktree, "env.txt"))
	if err != nil {
		return fmt.Errorf("read the run's environment: %w", err)
	}
	if !bytes.Contains(env, []byte("GH_TOKEN=")) {
		return errors.New("the run had no read token; the search proves nothing")
	}
	fmt.Printf("  (searched %d files, the run's environment, git's wire trace and all output)\n", files)
	return nil
}

func (w *world) search(where string, content []byte) error {
	for _, t := range w.forge.WriteTokens() {
		if bytes.Contains(content, []byte(t.Value)) {
			return fmt.Errorf("a write token is in %s", where)
		}
	}
	return nil
}

// nothingLives asks the forge's ledger after the last run has ended.
func nothingLives(w *world) error {
	fmt.Println("\n== When a run ends its own token is revoked as well")
	if live := w.forge.Live(); len(live) > 0 {
		return fmt.Errorf("%d tokens still work", len(live))
	}
	fmt.Printf("  (%d tokens were made in all; none works any more)\n", len(w.forge.Tokens()))
	return nil
}
