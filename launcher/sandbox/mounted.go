package sandbox

import (
	"strings"

	"postern/launcher/mountinfo"
)

// readMounts reads mountinfo, and leaves out what it does not understand: such a line
// names no folder.
func readMounts(info string) []mountinfo.Mount {
	var out []mountinfo.Mount
	for line := range strings.Lines(info) {
		m, err := mountinfo.ParseLine(strings.TrimSuffix(line, "\n"))
		if err == nil && strings.HasPrefix(m.Root, "/") && strings.HasPrefix(m.At, "/") {
			out = append(out, m)
		}
	}
	return out
}

// otherNames are where else path, which has no symlinks, can be seen: through a bind
// mount, a second mount of the same file system, a subvolume. Parts are where something
// in it is mounted.
func otherNames(mounts []mountinfo.Mount, path string) (names, parts []string) {
	var home mountinfo.Mount
	for _, m := range mounts { // the last at one place hides those before it
		if contains(m.At, path) && len(m.At) >= len(home.At) {
			home = m
		}
	}
	if home.At == "" {
		return nil, nil
	}
	inside := join(home.Root, strings.TrimPrefix(path, strings.TrimSuffix(home.At, "/")))
	for _, m := range mounts {
		switch {
		case m.Device != home.Device:
		case contains(m.Root, inside):
			if name := join(m.At, strings.TrimPrefix(inside, strings.TrimSuffix(m.Root, "/"))); !contains(path, name) {
				names = append(names, name)
			}
		case contains(inside, m.Root) && !contains(path, m.At):
			parts = append(parts, m.At)
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
