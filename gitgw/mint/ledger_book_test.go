package mint

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"postern/gitgw"
)

// book is a minter that keeps account of its tokens.
type book struct {
	mu      sync.Mutex
	n       int
	live    map[string]bool
	revoked []string
	tries   int
	atOnce  int // revocations under way
	most    int // of them, ever

	life   time.Duration // of a token, 0: it does not say
	refuse func(value string) error
	slow   time.Duration
}

func newBook() *book { return &book{live: map[string]bool{}, life: time.Hour} }

func (b *book) Mint(_ context.Context, repo gitgw.Repo, access gitgw.Access) (gitgw.Token, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
	value := fmt.Sprintf("ghs_secret_%s_%s_%d", repo.Name(), access, b.n)
	b.live[value] = true
	expires := time.Time{}
	if b.life != 0 {
		expires = time.Now().Add(b.life)
	}
	return gitgw.NewToken(value, expires), nil
}

func (b *book) Revoke(ctx context.Context, t gitgw.Token) error {
	b.mu.Lock()
	b.tries++
	b.atOnce++
	b.most = max(b.most, b.atOnce)
	refuse, slow := b.refuse, b.slow
	b.mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.atOnce--
	if err := ctx.Err(); err != nil {
		return err
	}
	if refuse != nil {
		if err := refuse(t.Value()); err != nil {
			return err
		}
	}
	delete(b.live, t.Value())
	b.revoked = append(b.revoked, t.Value())
	return nil
}

func (b *book) alive() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.live)
}

func (b *book) tried() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tries
}

func (b *book) ended() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.revoked)
}

func (b *book) refusing(f func(string) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = f
}

// notes is a log that is looked at.
type notes struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.buf.Write(p)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.buf.String()
}

func (n *notes) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(n, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// openedAt opens the ledger of a process, with a minter for github.com.
func openedAt(t *testing.T, path string, m gitgw.Minter, alive func(string) bool) (*Ledger, gitgw.Minter, *notes) {
	t.Helper()
	log := &notes{}
	l := NewLedger(LedgerOptions{Path: path, Alive: alive, Log: log.logger()})
	if err := l.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, l.Wrap(m, "github.com"), log
}

// kill ends a ledger as the end of its process does: nothing is written any more.
func kill(l *Ledger) {
	l.mu.Lock()
	file, cancel := l.file, l.cancel
	l.file, l.closed = nil, true
	l.mu.Unlock()
	cancel()
	l.sweeps.Wait()
	_ = file.close()
}

func minted(t *testing.T, m gitgw.Minter, access gitgw.Access, holder string) gitgw.Token {
	t.Helper()
	ctx := t.Context()
	if holder != "" {
		ctx = WithHolder(ctx, holder)
	}
	token, err := m.Mint(ctx, app, access)
	if err != nil {
		t.Fatal(err)
	}
	return token
}
