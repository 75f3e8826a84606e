package mint

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"postern/gitgw"
)

const (
	// maxTokens bounds the tokens that live at a time, maxToken the bytes of one.
	maxTokens = 1024
	maxToken  = 8 << 10

	// unknownLife is how long a token is taken to live that does not say.
	unknownLife = 24 * time.Hour

	// unrecordedFor bounds the revocation of a token that could not be recorded.
	unrecordedFor = 5 * time.Second
)

// Ledger remembers on disk which tokens live, so that the end of the process,
// however it comes, is not the end of that knowledge: a token whose only record
// was the memory of a process that was killed would live out its hour. A minter
// that Wrap returns writes each token down before it hands it out, and strikes it
// out when it is revoked. What a former process left is revoked in the
// background, once Open has found it and Wrap has said by whom.
//
// The file is read to revoke and for nothing else: no token in it is used again,
// unless its holder hands it back (Adopt). A token is lost to it only when the
// process is killed between the forge's answer and the write that follows it.
//
// A Ledger is safe for concurrent use. It belongs to the process, not to a
// configuration, and no two processes have one file.
type Ledger struct {
	options LedgerOptions
	log     *slog.Logger

	mu      sync.Mutex
	file    *ledgerFile // nil: not open
	closed  bool
	tokens  map[string]*entry // by Token.ID
	minters []source          // oldest first

	wake   chan struct{} // the sweeper should look again
	cancel context.CancelFunc
	sweeps sync.WaitGroup
}

// LedgerOptions configure a Ledger.
type LedgerOptions struct {
	// Path is the file, in a folder that this user alone may enter. Beside it are
	// PATH.lock, which is held while the ledger is open, and for moments PATH.new.
	Path string

	// Alive reports whether a holder (see WithHolder) still lives; nil means that
	// none does.
	Alive func(holder string) bool

	// Log says what was left behind and what became of it. nil discards.
	Log *slog.Logger
}

// entry is one token that lives, as far as is known.
type entry struct {
	record
	token gitgw.Token

	// orphan is set when nobody in this process is going to revoke the token: a
	// former process left it, or revoking it has failed.
	orphan bool
	minter gitgw.Minter // who made it; nil when a former process did
	tries  int
	next   time.Time // of the next attempt at an orphan
}

// source is a minter and the hosts whose tokens it can revoke.
type source struct {
	gitgw.Minter
	hosts []string
}

// errLedgerClosed says that nothing can be recorded, so nothing is minted.
var errLedgerClosed = errors.New("the ledger of tokens is not open")

// NewLedger makes a ledger that is not open: it touches no file.
func NewLedger(o LedgerOptions) *Ledger {
	l := &Ledger{options: o, log: o.Log, tokens: map[string]*entry{}, wake: make(chan struct{}, 1)}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	return l
}

// Open takes the file for this process and begins to revoke what a former one
// left. A second call does nothing. Lines that do not parse are left out, with a
// warning. It is an error when another process has the file, when it belongs to
// another user, or when others may read it: then somebody else may have written
// what is in it, or have read it.
func (l *Ledger) Open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return errLedgerClosed
	case l.file != nil:
		return nil
	}
	file, left, err := openLedger(l.options.Path, l.log)
	if err != nil {
		return err
	}
	for _, r := range left {
		e := &entry{record: r, token: gitgw.NewToken(r.Token, r.Expires), orphan: true}
		l.tokens[e.token.ID()] = e
	}
	l.file = file
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.sweeps.Go(func() { l.sweep(ctx) })
	return nil
}

// Close stops the background work and lets go of the file. Tokens that live stay
// in it for the next process; those minted here can still be revoked.
func (l *Ledger) Close() error {
	l.mu.Lock()
	file, cancel := l.file, l.cancel
	l.closed, l.file = true, nil
	l.mu.Unlock()
	if file == nil {
		return nil
	}
	cancel()
	l.sweeps.Wait()
	return file.close()
}

// Wrap returns a minter that mints and revokes as m does and records it. hosts
// are the forges whose tokens m can revoke, those of a former process too; of
// several minters for a host the newest is asked. A minter that never revokes
// comes back as it is: its tokens are the operator's, and belong in no file of
// ours.
func (l *Ledger) Wrap(m gitgw.Minter, hosts ...string) gitgw.Minter {
	if _, fixed := m.(*Static); fixed {
		return m
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// One that goes for all of an older one's hosts takes its place.
	l.minters = slices.DeleteFunc(l.minters, func(s source) bool {
		return !slices.ContainsFunc(s.hosts, func(h string) bool { return !slices.Contains(hosts, h) })
	})
	l.minters = append(l.minters, source{m, slices.Clone(hosts)})
	l.rouse()
	return &recorded{ledger: l, minter: m}
}

// room refuses to mint what could not be recorded.
func (l *Ledger) room() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.file == nil:
		return &gitgw.MintError{Reason: "the ledger of tokens is closed", Err: errLedgerClosed}
	case len(l.tokens) >= maxTokens:
		return &gitgw.MintError{Reason: "too many tokens live already; wait until some have ended"}
	}
	return nil
}

// add records a token. On an error the file may hold it all the same, which does
// no harm: it is going to be revoked.
func (l *Ledger) add(e *entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.file == nil:
		return errLedgerClosed
	case len(l.tokens) >= maxTokens:
		return errors.New("record token: the ledger is full")
	case len(e.Token) > maxToken:
		return errors.New("record token: it is too long")
	}
	if err := l.file.add(e.record); err != nil {
		return err
	}
	l.tokens[e.token.ID()] = e
	return nil
}

// remove strikes out a token that is dead.
func (l *Ledger) remove(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tokens[id] == nil {
		return
	}
	delete(l.tokens, id)
	if l.file == nil {
		return // the next process revokes it once more, which does no harm
	}
	if err := l.file.remove(id, l.standing); err != nil {
		l.log.Warn("token not struck out of the ledger", slog.String("token_id", id), slog.Any("error", err))
	}
}

// standing are the records of the tokens that live, for a file that is written
// anew. mu is held.
func (l *Ledger) standing() []record {
	all := make([]record, 0, len(l.tokens))
	for _, e := range l.tokens {
		all = append(all, e.record)
	}
	return all
}

// orphan notes that a token lives on although it should not.
func (l *Ledger) orphan(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.tokens[id]; e != nil && !e.orphan {
		// Whoever failed may try again himself for some seconds.
		e.orphan, e.Holder, e.tries, e.next = true, "", 1, time.Now().Add(firstAgain)
		l.rouse()
	}
}

// rouse makes the sweeper look again.
func (l *Ledger) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Interface guards.
var (
	_ gitgw.Minter = (*recorded)(nil)
	_ Adopter      = (*recorded)(nil)
)
