package sandbox

import (
	"fmt"
	"strconv"
)

// Op is one kind of mount operation, named as bubblewrap names it.
type Op string

// The operations that plans use.
const (
	OpRoBind    Op = "--ro-bind"
	OpBind      Op = "--bind"
	OpTmpfs     Op = "--tmpfs"
	OpDir       Op = "--dir"
	OpProc      Op = "--proc"
	OpDev       Op = "--dev"
	OpSymlink   Op = "--symlink"
	OpFile      Op = "--file"
	OpRemountRO Op = "--remount-ro"
)

// Mount is one operation of a plan.
type Mount struct {
	Op     Op
	Source string // host path, or the text of a symlink; empty where Op has none, or Data
	Target string
	Perms  string // octal, for a directory or file that is made
	Data   string // content, for OpFile

	// role says why it is there; the order and the properties of a plan speak of
	// roles.
	role role
}

type role uint8

const (
	roleBase  role = iota // the system, and the private trees
	roleRoot              // a folder the run was given
	rolePin               // an ancestor that may not be renamed away
	roleGuard             // a denial: protected or hidden
	roleSeal              // makes a private tree read-only at last
)

// descriptors hands out numbers for content that bubblewrap reads.
type descriptors interface {
	data(content string) (fd int, err error)
	file(path string) (fd int, err error)
}

// args writes a plan as bubblewrap options.
func args(plan []Mount, fds descriptors) ([]string, error) {
	var out []string
	for _, m := range plan {
		if m.Perms != "" {
			out = append(out, "--perms", m.Perms)
		}
		switch m.Op {
		case OpRoBind, OpBind, OpSymlink:
			out = append(out, string(m.Op), m.Source, m.Target)
		case OpFile:
			fd, err := m.content(fds)
			if err != nil {
				return nil, fmt.Errorf("prepare %s: %w", m.Target, err)
			}
			out = append(out, string(m.Op), strconv.Itoa(fd), m.Target)
		case OpTmpfs, OpDir, OpProc, OpDev, OpRemountRO:
			out = append(out, string(m.Op), m.Target)
		default:
			return nil, fmt.Errorf("write plan: unknown operation %q", m.Op)
		}
	}
	return out, nil
}

func (m *Mount) content(fds descriptors) (int, error) {
	if m.Source != "" {
		return fds.file(m.Source)
	}
	return fds.data(m.Data)
}
