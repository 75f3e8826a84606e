package sandbox

import (
	"strings"

	"postern/launcher/mountinfo"
)

// mountPoint is one line of mountinfo (proc(5)): what of which file system is where.
type mountPoint struct {
	device string // major:minor
	root   string // inside the file system
	at     string
}

// readMounts reads mountinfo, and leaves out what it does not understand: such a line
// names no folder.
func readMounts(info string) []mountPoint {
	var out []mountPoint
	for line := range strings.Lines(info) {
		fields := strings.Fields(line)
		if len(fields) < 6 {
			continue
		}
		m := mountPoint{device: fields[2], root: mountinfo.Unescape(fields[3]), at: mountinfo.Unescape(fields[4])}
		if strings.HasPrefix(m.root, "/") && strings.HasPrefix(m.at, "/") {
			out = append(out, m)
		}
	}
	return out
}

// otherNames are where else path, which has no symlinks, can be seen: through a bind
// mount, a second mount of the same file system, a subvolume. Parts are where something
// in it is mounted.
func otherNames(mounts []mountPoint, path string) (names, parts []string) {
	var home mountPoint
	for _, m := range mounts { // the last at one place hides those before it
		if contains(m.at, path) && len(m.at) >= len(home.at) {
			home = m
		}
	}
	if home.at == "" {
		return nil, nil
	}
	inside := join(home.root, strings.TrimPrefix(path, strings.TrimSuffix(home.at, "/")))
	for _, m := range mounts {
		switch {
		case m.device != home.device:
		case contains(m.root, inside):
			if name := join(m.at, strings.TrimPrefix(inside, strings.TrimSuffix(m.root, "/"))); !contains(path, name) {
				names = append(names, name)
			}
		case contains(inside, m.root) && !contains(path, m.at):
			parts = append(parts, m.at)
		}
	}
	return names, parts
}

// join appends rest, which is empty or begins with a slash, to a clean path.
func join(dir, rest string) string {
	switch {
	case rest == "":
		return dir
	case dir == "/":
		return rest
	}
	return dir + rest
}
