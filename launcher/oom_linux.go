package main

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// oomKills is how often the kernel killed a process of this process's own memory cgroup
// for want of memory; ok is false where that cannot be known. A run's processes are in
// the same cgroup, for nothing in a sandbox can leave it: a command that died by a KILL
// that nobody here sent, while the number grew, died of that. root is "/".
//
// The kernel's log would say more, and is for administrators.
func oomKills(root string) (n uint64, ok bool) {
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0, false
	}
	mounts := filepath.Join(root, "sys/fs/cgroup")
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var file string
		switch {
		case parts[0] == "0" && parts[1] == "":
			file = filepath.Join(mounts, parts[2], "memory.events")
		case hasController(parts[1], "memory"):
			file = filepath.Join(mounts, "memory", parts[2], "memory.oom_control")
		default:
			continue
		}
		if n, ok := readCounter(file, "oom_kill"); ok {
			return n, true
		}
	}
	return 0, false
}

func hasController(list, name string) bool {
	for c := range strings.SplitSeq(list, ",") {
		if c == name {
			return true
		}
	}
	return false
}

// readCounter reads the line "NAME NUMBER" of a file.
func readCounter(path, name string) (uint64, bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), name+" "); found {
			n, err := strconv.ParseUint(text, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
