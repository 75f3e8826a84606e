package nameguard

import "golang.org/x/sys/unix"

// verdict is what becomes of a call.
type verdict struct {
	kind kind
	err  unix.Errno // of failing
	val  int64      // of done
}

type kind uint8

const (
	going   kind = iota // not decided yet
	done                // the broker did it
	failing             // it fails with err
	passing             // the kernel is to do it, where Landlock lets it
	parked              // answered later, by the retry thread
	gone                // nobody waits for it any more
	sent                // it is answered already
)

func fail(e unix.Errno) verdict { return verdict{kind: failing, err: e} }

// result is what a call of ours came to.
func result(e unix.Errno) verdict {
	if e != 0 {
		return fail(e)
	}
	return verdict{kind: done}
}

// answer tells the kernel. Whoever waited may be gone by now, which is no failure.
func (w *worker) answer(v verdict) { _ = w.send(v) }

// send is the same, and says what came of it.
func (w *worker) send(v verdict) unix.Errno {
	w.reply = reply{id: w.note.id}
	switch v.kind {
	case done:
		w.reply.val = v.val
	case failing:
		w.reply.err = -int32(v.err) //nolint:gosec // error numbers are small
	case passing:
		w.reply.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
	case parked, gone, sent:
		return 0
	case going:
		w.reply.err = -int32(unix.EIO) // a way that decides nothing decides against it
	}
	return w.b.listener.send(&w.reply)
}
