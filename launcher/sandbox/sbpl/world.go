package sbpl

import (
	"path"
	"strings"
)

// World is the file system a profile is judged against: the kernel matches
// resolved paths, so the spelling a process used must be resolved first.
type World struct {
	Symlinks  map[string]string // path to absolute target, such as /tmp to /private/tmp
	Firmlinks map[string]string // canonical prefix, such as /System/Volumes/Data/Users to /Users
	Exists    map[string]string // path to vnode type; a path that is absent may still be created
}

// maxLinks bounds the symbolic links of one resolution, as MAXSYMLINKS does.
const maxLinks = 32

// Resolve returns the path the kernel matches: links followed in every component,
// firmlinks put back, ".." taken physically.
func (w World) Resolve(p string) string { return w.resolve(p, true, 0) }

// ResolveParent resolves all but the last component, as unlink and rename do.
func (w World) ResolveParent(p string) string { return w.resolve(p, false, 0) }

func (w World) resolve(p string, last bool, links int) string {
	out := "/"
	parts := strings.Split(strings.Trim(p, "/"), "/")
	for i, part := range parts {
		switch part {
		case "", ".":
			continue
		case "..":
			out = path.Dir(out)
			continue
		}
		out = path.Join(out, part)
		target, ok := w.Symlinks[out]
		if !ok || links >= maxLinks || (!last && i == len(parts)-1) {
			continue
		}
		rest := strings.Join(parts[i+1:], "/")
		if !strings.HasPrefix(target, "/") {
			target = path.Join(path.Dir(out), target)
		}
		return w.resolve(target+"/"+rest, last, links+1)
	}
	for from, to := range w.Firmlinks {
		if rest, ok := strings.CutPrefix(out, from); ok && (rest == "" || rest[0] == '/') {
			out = to + rest
		}
	}
	return out
}

func (w World) exists(p string) bool {
	_, ok := w.Exists[p]
	return ok
}

// all reports whether every operation is allowed.
func all(p *Profile, how Reading, qs ...Request) bool {
	for _, q := range qs {
		if ok, _ := p.Decide(q, how); !ok {
			return false
		}
	}
	return true
}

// Read is open(2) for reading.
func (w World) Read(p *Profile, how Reading, name string) bool {
	return all(p, how, Request{Op: "file-read-data", Path: w.Resolve(name)})
}

// Write is open(2) for writing, with O_CREAT: an existing file is written, a new
// one is created and written.
func (w World) Write(p *Profile, how Reading, name string) bool {
	at := w.Resolve(name)
	qs := []Request{{Op: "file-write-data", Path: at}}
	if !w.exists(at) {
		qs = append(qs, Request{Op: "file-write-create", Path: at})
	}
	return all(p, how, qs...)
}

// Mkdir is mkdir(2).
func (w World) Mkdir(p *Profile, how Reading, name string) bool {
	return all(p, how, Request{Op: "file-write-create", Path: w.ResolveParent(name), Vnode: "DIRECTORY"})
}

// Symlink is symlink(2): the target is only text.
func (w World) Symlink(p *Profile, how Reading, _, name string) bool {
	return all(p, how, Request{Op: "file-write-create", Path: w.ResolveParent(name), Vnode: "SYMLINK"})
}

// Unlink is unlink(2) and rmdir(2).
func (w World) Unlink(p *Profile, how Reading, name string) bool {
	return all(p, how, Request{Op: "file-write-unlink", Path: w.ResolveParent(name)})
}

// Rename is rename(2): an unlink of the source, a creation of the target, and an
// unlink of the target where it exists.
func (w World) Rename(p *Profile, how Reading, from, to string) bool {
	src, dst := w.ResolveParent(from), w.ResolveParent(to)
	qs := []Request{{Op: "file-write-unlink", Path: src}, {Op: "file-write-create", Path: dst}}
	if w.exists(dst) {
		qs = append(qs, Request{Op: "file-write-unlink", Path: dst})
	}
	return all(p, how, qs...)
}

// Swap is renamex_np(2) with RENAME_SWAP.
func (w World) Swap(p *Profile, how Reading, a, b string) bool {
	return w.Rename(p, how, a, b) && w.Rename(p, how, b, a)
}

// Link is link(2).
func (w World) Link(p *Profile, how Reading, from, to string) bool {
	return all(p, how,
		Request{Op: "file-link", Path: w.Resolve(from)},
		Request{Op: "file-write-create", Path: w.ResolveParent(to)})
}

// Clone is clonefile(2): it reads the source.
func (w World) Clone(p *Profile, how Reading, from, to string) bool {
	src := w.Resolve(from)
	return all(p, how,
		Request{Op: "file-read-data", Path: src}, Request{Op: "file-clone", Path: src},
		Request{Op: "file-write-create", Path: w.ResolveParent(to)})
}

// Chmod is chmod(2).
func (w World) Chmod(p *Profile, how Reading, name string) bool {
	return all(p, how, Request{Op: "file-write-mode", Path: w.Resolve(name)})
}

// Exec is execve(2) of name, and of its interpreter where it is a script.
func (w World) Exec(p *Profile, how Reading, name, interpreter string) bool {
	qs := []Request{{Op: "process-exec", Path: w.Resolve(name)}}
	if interpreter != "" {
		qs = append(qs, Request{Op: "process-exec-interpreter", Path: w.Resolve(interpreter)})
	}
	return all(p, how, qs...)
}

// Connect is connect(2) on a TCP or UDP socket that is not bound: its local end
// is there, with port 0.
func (w World) Connect(p *Profile, how Reading, remote Endpoint) bool {
	return all(p, how, Request{
		Op: "network-outbound", Remote: &remote,
		Local: &Endpoint{Proto: remote.Proto, IPv6: remote.IPv6, Host: "localhost"},
	})
}

// ConnectUnix is connect(2) on a Unix socket: a path filter, never an ip one.
func (w World) ConnectUnix(p *Profile, how Reading, name string) bool {
	return all(p, how, Request{Op: "network-outbound", Path: w.Resolve(name), Vnode: "SOCKET"})
}

// Listen is bind(2) and listen(2): bind alone is not enough.
func (w World) Listen(p *Profile, how Reading, local Endpoint) bool {
	return all(p, how,
		Request{Op: "network-bind", Local: &local}, Request{Op: "network-inbound", Local: &local})
}

// MachLookup is bootstrap_look_up.
func (w World) MachLookup(p *Profile, how Reading, service string) bool {
	return all(p, how, Request{Op: "mach-lookup", Name: service})
}
