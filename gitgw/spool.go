package gitgw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// keptPack is a pack in a file that has no name any more: it is gone with its
// descriptor, whatever becomes of the process.
type keptPack struct {
	file *os.File
	size int64
}

func (k *keptPack) close() {
	if k != nil {
		_ = k.file.Close()
	}
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
	file, err := unnamedFile(p.g.SpoolDir)
	if err != nil {
		p.g.log().Error("no file for a push", p.attrs(err)...)
		return p.fail(Refused, p.g.policy("push cannot be judged: no file to keep it in")), false
	}
	p.kept = &keptPack{file: file}
	var lost error // the client's side of the copy
	from := readerFunc(func(b []byte) (int, error) {
		n, err := p.body.Read(b)
		if err != nil && !errors.Is(err, io.EOF) {
			lost = err
		}
		return n, err
	})
	p.kept.size, err = copyPack(file, from, least(p.packLimit(), p.limits.Kept))
	var large packSizeError
	switch {
	case err == nil:
		return true, true
	case errors.As(err, &large):
		return p.fail(Refused, p.g.policy(large.Error())), false
	case p.body.err() != nil || ctx.Err() != nil:
		if err = p.body.err(); err == nil {
			err = p.whyGone()
		}
		p.end(Aborted, err.Error())
		return false, false
	case lost != nil:
		return p.fail(Malformed, p.g.notice("malformed push: "+lost.Error())), false
	}
	p.g.log().Error("push not kept", p.attrs(err)...)
	return p.fail(Refused, p.g.policy("push cannot be judged: no room to keep it")), false
}

// packLimit is the most bytes of this push's pack, 0 for no limit.
func (p *push) packLimit() int64 { return p.asked.conditions.MaxPack }

// copyPack copies until the end, or until there is more than most bytes.
func copyPack(to io.Writer, from io.Reader, most int64) (int64, error) {
	if most <= 0 {
		n, err := io.Copy(to, from)
		if err != nil {
			return n, fmt.Errorf("keep the pack: %w", err)
		}
		return n, nil
	}
	n, err := io.Copy(to, io.LimitReader(from, most+1))
	switch {
	case err != nil:
		return n, fmt.Errorf("keep the pack: %w", err)
	case n > most:
		return n, packSizeError{most}
	}
	return n, nil
}

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
