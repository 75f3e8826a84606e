package lease

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// startOf reads when a process started, in clock ticks since boot: field 22 of
// /proc/PID/stat, proc_pid_stat(5).
func startOf(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	switch {
	case errors.Is(err, syscall.ESRCH): // it ended while we read
		return 0, errNoProcess
	case errors.Is(err, fs.ErrNotExist):
		// Without /proc no process has a file there, our own included.
		if _, err := os.Stat("/proc/self/stat"); err != nil {
			return 0, fmt.Errorf("read start of process %d: %w", pid, err)
		}
		return 0, errNoProcess
	case err != nil:
		return 0, fmt.Errorf("read start of process %d: %w", pid, err)
	}
	return parseStat(stat)
}

// parseStat finds the start in the line. The second field is the command's name
// in parentheses, and may hold spaces and parentheses itself.
func parseStat(stat []byte) (uint64, error) {
	const state, start = 0, 19 // counted from the field after the name
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= start {
		return 0, errors.New("read start of process: the line is too short")
	}
	if s := string(fields[state]); s == "Z" || s == "X" {
		return 0, errNoProcess
	}
	ticks, err := strconv.ParseUint(string(fields[start]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read start of process: %w", err)
	}
	return ticks, nil
}
