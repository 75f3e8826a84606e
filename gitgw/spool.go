package gitgw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// keptPack is a pack in a file that has no name any more: it is gone with its
// descriptor, whatever becomes of the process. Its room in the spool is given back
// with it.
type keptPack struct {
	file   *os.File
	size   int64
	most   int64 // that it may have
	run    string
	limits Limits
	n      *Inspections

	mu    sync.Mutex // the transport may still read when the push is over
	taken int64      // room in the spool
}

// spoolStep is how much room is taken at a time.
const spoolStep = 1 << 20

// spoolError says that a pack finds no room.
type spoolError struct{ code Code }

func (e *spoolError) Error() string { return spoolWords[e.code] }

var spoolWords = map[Code]string{
	CodeSpoolRun:  "this run's other pushes take its room to be looked into",
	CodeSpoolAll:  "other runs' pushes take the room to be looked into",
	CodeSpoolFull: "no room to keep it",
}

// Write puts bytes at the end of the file, when there is room for them.
func (k *keptPack) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// First what no other push could make room for.
	if k.size+int64(len(b)) > k.most {
		return 0, packSizeError{k.most}
	}
	if need := k.size + int64(len(b)) - k.taken; need > 0 {
		step := max(need, min(spoolStep, k.limits.SpoolRun-k.taken))
		if code := k.n.grow(k.run, step, k.limits.Spool, k.limits.SpoolRun); code != "" {
			if step = need; k.n.grow(k.run, step, k.limits.Spool, k.limits.SpoolRun) != "" {
				return 0, &spoolError{code}
			}
		}
		k.taken += step
		if free, size, known := freeSpace(k.file); known && free < min(k.limits.SpoolFree, size/8)+step {
			return 0, &spoolError{CodeSpoolFull}
		}
	}
	n, err := k.file.Write(b)
	k.size += int64(n)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = errors.Join(&spoolError{CodeSpoolFull}, err)
	}
	return n, err
}

// close may be called again.
func (k *keptPack) close() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = k.file.Close()
	if k.taken > 0 {
		k.n.shrink(k.run, k.taken)
		k.taken = 0
	}
}

// CheckSpool reports why packs cannot be kept in dir: it has to be a folder that
// nobody else reads, in which files can be made.
func CheckSpool(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("keep pushes in %s: there is no such folder; make it with: mkdir -m 700 %[1]s", dir)
	case err != nil:
		return fmt.Errorf("keep pushes in %s: %w; name another folder", dir, err)
	case !info.IsDir():
		return fmt.Errorf("keep pushes in %s: it is no folder; name one", dir)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("keep pushes in %s: others may look into it (mode %#o); run: chmod 700 %[1]s", dir, info.Mode().Perm())
	}
	f, err := unnamedFile(dir)
	if err != nil {
		return fmt.Errorf("keep pushes in %s: no file can be made there: %w; give the folder to the user of the appliance (chown), or name another", dir, err)
	}
	return f.Close()
}

// spoolFile makes the file for one pack.
func (g *Gateway) spoolFile() (*os.File, error) {
	dir := orDefault(g.SpoolDir, os.TempDir())
	f, err := unnamedFile(dir)
	if g.SpoolMake && errors.Is(err, fs.ErrNotExist) {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		return unnamedFile(dir)
	}
	return f, err
}

// removedFile makes a file and takes its name away.
func removedFile(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "postern-push-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// packSizeError says that a pack exceeds the limit of its rule.
type packSizeError struct{ most int64 }

func (e packSizeError) Error() string { return "push is larger than " + bytesText(e.most) }

// spool puts the pack into a file. When ok is false the push is over.
func (p *push) spool(ctx context.Context) (sound, ok bool) {
	file, err := p.g.spoolFile()
	if err != nil {
		p.g.log().Error("no file for a push", p.attrs(err)...)
		return p.fail(Refused, CodeSpoolMissing, p.g.policy("push cannot be judged: no file to keep it in")), false
	}
	// What could never have room is too large, and not to be pushed again later.
	most := least(p.packLimit(), min(p.limits.Kept, p.limits.SpoolRun, p.limits.Spool))
	p.kept = &keptPack{file: file, most: most, run: p.caller.Session, limits: p.limits, n: p.g.inspections()}
	var lost error // the client's side of the copy
	from := readerFunc(func(b []byte) (int, error) {
		// A client that sends a byte a minute does not stall, and holds its room.
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := p.body.Read(b)
		if err != nil && !errors.Is(err, io.EOF) {
			lost = err
		}
		return n, err
	})
	_, err = io.Copy(p.kept, from)
	var large packSizeError
	var full *spoolError
	switch {
	case err == nil:
		return true, true
	case errors.As(err, &large) && large.most != p.packLimit():
		return p.fail(Refused, CodeSpoolLarge, p.g.policy(large.Error()+", the most that is looked into")), false
	case errors.As(err, &large):
		return p.fail(Refused, CodePackLarge, p.g.policy(large.Error())), false
	case errors.As(err, &full):
		p.g.log().Warn("push not kept", p.attrs(err)...)
		return p.fail(Refused, full.code, p.g.policy("push cannot be judged: "+full.Error())), false
	case p.body.err() != nil:
		p.end(Aborted, p.body.err().Error())
		return false, false
	case ctx.Err() != nil:
		return p.giveUp(&stopped{p.whyOver(ctx)}), false
	case lost != nil:
		return p.fail(Malformed, CodePackMalformed, p.g.notice("malformed push: "+lost.Error())), false
	}
	p.g.log().Error("push not kept", p.attrs(err)...)
	return p.fail(Refused, CodeSpoolFull, p.g.policy("push cannot be judged: "+spoolWords[CodeSpoolFull])), false
}

// packLimit is the most bytes of this push's pack, 0 for no limit.
func (p *push) packLimit() int64 { return p.asked.conditions.MaxPack }

// limited reads a pack that is streamed, and fails where it exceeds its limit: the
// upload then breaks off, and the forge changes nothing.
type limited struct {
	r    io.Reader
	left int64
	over func()
	most int64
}

func (l *limited) Read(b []byte) (int, error) {
	n, err := l.r.Read(b)
	if l.left -= int64(n); l.left < 0 {
		l.over()
		return 0, packSizeError{l.most}
	}
	return n, err
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
