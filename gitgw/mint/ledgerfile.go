package mint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"postern/gitgw"
)

const (
	// maxLedger bounds the file that is read: more than maxTokens of the longest
	// tokens, and the lines that were struck out of them.
	maxLedger = 2*maxTokens*maxToken + maxGarbage

	// maxGarbage is room for lines that no longer count: there are some only where
	// the file could not be written anew.
	maxGarbage = 64 << 10
)

// record is one line of the file: a token, or that one is gone.
type record struct {
	// Gone is the ID of a token that an earlier line holds. The other fields are
	// empty then.
	Gone string `json:"gone,omitempty"`

	Token      string    `json:"token,omitempty"`
	Host       string    `json:"host,omitempty"`
	Repository string    `json:"repository,omitempty"`
	Access     string    `json:"access,omitempty"`
	Holder     string    `json:"holder,omitempty"`
	Time       time.Time `json:"time,omitzero"`
	Expires    time.Time `json:"expires,omitzero"`
}

// end is when the token is dead by itself.
func (r record) end() time.Time {
	if r.Expires.IsZero() {
		return r.Time.Add(unknownLife)
	}
	return r.Expires
}

// ledgerFile is the file, open and locked. Its methods are not safe for
// concurrent use.
type ledgerFile struct {
	path    string
	lock    *os.File
	file    *os.File
	damaged bool // half a line may be out
}

// openLedger locks and reads the file, and writes it anew without what is gone.
func openLedger(path string, log *slog.Logger) (*ledgerFile, []record, error) {
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, nil, err
	}
	left, err := readLedger(path, log)
	f := &ledgerFile{path: path, lock: lock}
	if err == nil {
		// Anew even when nothing is gone: the last line may lack its end, and the
		// next one must not be glued to it.
		err = f.rewrite(left)
		if full(err) {
			// What it holds can be revoked all the same, and nothing is handed out that
			// it has no room for.
			log.Warn("no room to write the ledger of tokens anew", slog.String("file", path), slog.Any("error", err))
			f.damaged = true // its last line may lack its end
			f.file, err = openPrivate(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	return f, left, nil
}

// full reports whether an error says that there is no room on the disk, or none for
// this user.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// lockFile makes sure that one process at a time has the ledger. The lock goes
// with the process, however it ends. It is a file of its own, since the ledger
// itself is replaced.
func lockFile(path string) (*os.File, error) {
	f, err := openPrivate(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errors.New("another process has the ledger of tokens")
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// openPrivate opens a file that is this user's and nobody else's. A link is not
// followed: it would say where tokens are written.
func openPrivate(path string, flag int) (*os.File, error) {
	// Not blocking: a pipe in the file's place would hold the start up for ever.
	f, err := os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open ledger of tokens: %w", err)
	}
	info, err := f.Stat()
	if err == nil {
		err = checkPrivate(info)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open ledger of tokens %s: %w; remove it when you know what it is", path, err), f.Close())
	}
	return f, nil
}

func checkPrivate(info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return errors.New("it is not a regular file")
	case !ok || int(stat.Uid) != os.Geteuid():
		return errors.New("it belongs to another user")
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("its mode %04o lets other users in", info.Mode().Perm())
	case stat.Nlink > 1:
		return errors.New("it has another name elsewhere")
	}
	return nil
}

// readLedger returns the tokens of the file that are not gone. A file that is not
// there holds none.
func readLedger(path string, log *slog.Logger) ([]record, error) {
	f, err := openPrivate(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	left, bad, err := parseLedger(io.LimitReader(f, maxLedger+1))
	if err != nil {
		return nil, fmt.Errorf("read ledger of tokens %s: %w", path, err)
	}
	for _, line := range bad {
		// Not its text: it may hold a token, or a part of one.
		log.Warn("line of the ledger of tokens is not understood", slog.String("file", path), slog.Int("line", line))
	}
	return left, nil
}

// parseLedger reads lines, and returns the numbers of those it does not
// understand. The error is the reader's, or that there is too much of it.
func parseLedger(r io.Reader) (left []record, bad []int, err error) {
	const maxBad = 100 // numbers are of no use in a file that is not ours
	index := map[string]record{}
	var order []string
	total := 0
	br := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := br.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, nil, err
		}
		if total += len(line); total > maxLedger {
			return nil, nil, fmt.Errorf("it is longer than %d bytes", maxLedger)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			var one record
			// A line without its end may lack more than that: half a token has
			// another ID. It was never handed out, for it was never synced.
			whole := bytes.HasSuffix(line, []byte("\n"))
			switch known := json.Unmarshal(line, &one) == nil && whole; {
			case known && one.Gone != "":
				delete(index, one.Gone)
			case known && one.Token != "" && len(one.Token) <= maxToken && !one.Time.IsZero():
				id := gitgw.NewToken(one.Token, time.Time{}).ID()
				if _, twice := index[id]; !twice {
					order = append(order, id)
				}
				index[id] = one
			case len(bad) < maxBad:
				bad = append(bad, n)
			}
		}
		if err != nil {
			break
		}
	}
	for _, id := range order {
		if one, there := index[id]; there && len(left) < maxTokens {
			left = append(left, one)
			delete(index, id) // once, though it was recorded again after it was gone
		}
	}
	return left, bad, nil
}

// add writes a token down. When it returns nil, the line survives the process,
// and where the folder is on a disk the machine too.
func (f *ledgerFile) add(r record) error {
	line, err := encodeRecord(r)
	if err != nil {
		return err
	}
	return f.append(line, true)
}

// remove takes a token out. standing says what the file is to hold from now on: it
// is written anew, as a secret that is dead has no business on a disk. Where that
// cannot be done the token is struck out by a line of its own.
func (f *ledgerFile) remove(id string, standing func() []record) error {
	err := f.rewrite(standing())
	if err == nil {
		return nil
	}
	line, encodeErr := encodeRecord(record{Gone: id})
	if encodeErr != nil {
		return errors.Join(err, encodeErr)
	}
	return errors.Join(err, f.append(line, false))
}

func (f *ledgerFile) append(line []byte, synced bool) error {
	if f.damaged {
		// What follows half a line would be lost with it: end it first.
		line = append([]byte("\n"), line...)
	}
	n, err := f.file.Write(line)
	if err != nil {
		f.damaged = f.damaged || n > 0
		return fmt.Errorf("write ledger of tokens: %w", err)
	}
	f.damaged = false
	if synced {
		if err := f.file.Sync(); err != nil {
			return fmt.Errorf("sync ledger of tokens: %w", err)
		}
	}
	return nil
}

// rewrite replaces the file by one that holds exactly all. The old one stays
// until the new one is whole.
func (f *ledgerFile) rewrite(all []record) error {
	temporary := f.path + ".new"
	// One that is there is of a process that was killed while it wrote.
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write ledger of tokens anew: %w", err)
	}
	file, err := openPrivate(temporary, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND)
	if err != nil {
		return err
	}
	next := &ledgerFile{file: file}
	err = next.fill(all)
	if err == nil {
		err = os.Rename(temporary, f.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write ledger of tokens anew: %w", err), file.Close(), os.Remove(temporary))
	}
	if dir, err := os.Open(filepath.Dir(f.path)); err == nil {
		// Some file systems cannot sync a folder; the rename is then as durable as
		// they make it.
		_ = dir.Sync()
		_ = dir.Close()
	}
	if f.file != nil {
		_ = f.file.Close()
	}
	f.file, f.damaged = file, false
	return nil
}

func (f *ledgerFile) fill(all []record) error {
	w := bufio.NewWriter(f.file)
	for _, r := range all {
		line, err := encodeRecord(r)
		if err != nil {
			return err
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.file.Sync()
}

func (f *ledgerFile) close() error {
	return errors.Join(f.file.Close(), f.lock.Close())
}

// encodeRecord makes one line. JSON escapes line breaks, so its only one is its
// last byte.
func encodeRecord(r record) ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record of a token: %w", err)
	}
	return append(data, '\n'), nil
}
