package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// setExe finds the binary that becomes PID 1.
func (f *Facts) setExe(exe string) (err error) {
	if exe == "" {
		if exe, err = os.Executable(); err != nil {
			return fmt.Errorf("find own binary: %w", err)
		}
	}
	if f.Exe, err = filepath.EvalSymlinks(exe); err != nil {
		return fmt.Errorf("find own binary: %w", err)
	}
	return nil
}

// makeGitFile makes the file that is mounted as git's configuration. It is filled in
// later, through the descriptor: what belongs into it is known when the appliance
// has answered, and mounts cannot be made then. It has no name any more as soon as
// it is mounted.
func (f *Facts) makeGitFile() (*os.File, error) {
	if f.GitDir == "" {
		return nil, nil //nolint:nilnil // a run without git configuration
	}
	sweep(f.GitDir)
	file, err := os.CreateTemp(f.GitDir, gitFilePattern)
	if err != nil {
		return nil, fmt.Errorf("make git configuration: %w", err)
	}
	f.GitFile = file.Name()
	return file, nil
}

// sweep removes the files of launchers that were killed in the few milliseconds in
// which such a file has a name.
func sweep(dir string) {
	stale, _ := filepath.Glob(filepath.Join(dir, gitFilePattern))
	for _, path := range stale {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > time.Minute {
			_ = os.Remove(path)
		}
	}
}
