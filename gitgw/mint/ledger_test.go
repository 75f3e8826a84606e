package mint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"postern/gitgw"
)

var app = func() gitgw.Repo {
	r, err := gitgw.ParseRepo("github.com/acme/app")
	if err != nil {
		panic(err)
	}
	return r
}()

// A token that is revoked leaves nothing behind.
func TestLedgerOfAGoodLife(t *testing.T) {
	b, path := newBook(), filepath.Join(t.TempDir(), "tokens.ledger")
	l, m, log := openedAt(t, path, b, nil)
	read, write := minted(t, m, gitgw.Read, "7@1"), minted(t, m, gitgw.Write, "")
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), read.Value()) || !strings.Contains(string(text), write.Value()) {
		t.Fatalf("not written down when it is handed out: %v\n%s", err, text)
	}
	for _, token := range []gitgw.Token{read, write} {
		if err := m.Revoke(t.Context(), token); err != nil {
			t.Error(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error("closed again:", err)
	}
	other := newBook()
	_, _, again := openedAt(t, path, other, nil)
	text, err = os.ReadFile(path)
	if err != nil || len(text) != 0 {
		t.Errorf("the next process finds %q, %v", text, err)
	}
	if other.tried() != 0 || b.tried() != 2 {
		t.Errorf("%d revocations, then %d", b.tried(), other.tried())
	}
	for _, text := range []string{log.String(), again.String()} {
		if strings.Contains(text, "ghs_") {
			t.Errorf("a token stands in the log: %s", text)
		}
	}
}

// What a process that was killed leaves is revoked by the next one, in whatever
// state it was; what has come back with its holder is not.
func TestLedgerAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, path := newBook(), filepath.Join(t.TempDir(), "tokens.ledger")
		l, m, _ := openedAt(t, path, b, nil)
		push := minted(t, m, gitgw.Write, "")
		look := minted(t, m, gitgw.Look, "")
		gone := minted(t, m, gitgw.Read, "gone")
		stays := minted(t, m, gitgw.Read, "stays")
		waits := minted(t, m, gitgw.Read, "waits")
		done := minted(t, m, gitgw.Write, "")
		if err := m.Revoke(t.Context(), done); err != nil {
			t.Fatal(err)
		}
		kill(l)

		var mu sync.Mutex
		living := map[string]bool{"stays": true, "waits": true}
		alive := func(holder string) bool {
			mu.Lock()
			defer mu.Unlock()
			return living[holder]
		}
		_, m, log := openedAt(t, path, b, alive)
		back := gitgw.NewToken(stays.Value(), time.Time{}) // a launcher does not say until when
		if err := m.(Adopter).Adopt(t.Context(), back); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		live := func(tokens ...gitgw.Token) {
			t.Helper()
			want := map[string]bool{}
			for _, token := range tokens {
				want[token.Value()] = true
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if fmt.Sprint(b.live) != fmt.Sprint(want) {
				t.Errorf("%v live, want %v", b.live, want)
			}
		}
		live(stays, waits)

		// A holder that never comes back takes its token along.
		mu.Lock()
		clear(living)
		mu.Unlock()
		time.Sleep(holderEvery)
		synctest.Wait()
		live(stays)
		if err := m.Revoke(t.Context(), back); err != nil {
			t.Error(err)
		}
		live()
		text, err := os.ReadFile(path)
		left, bad, _ := parseLedger(bytes.NewReader(text))
		if err != nil || len(left) != 0 || len(bad) != 0 {
			t.Errorf("left in the file: %v %v %v", left, bad, err)
		}
		for _, token := range []gitgw.Token{push, look, gone, waits} {
			if !strings.Contains(log.String(), token.ID()) {
				t.Errorf("nothing is said of %s", token)
			}
		}
		if strings.Contains(log.String(), "ghs_") {
			t.Errorf("a token stands in the log: %s", log)
		}
	})
}

// A forge that does not let go is asked again, ever less often, until the token is
// dead by itself.
func TestLedgerIsPatient(t *testing.T) {
	for _, c := range []struct {
		name  string
		life  time.Duration
		works time.Duration // after what time the forge answers, 0: never
		tries int
		alive int
	}{
		{"at the first attempt", time.Hour, time.Nanosecond, 1, 0},
		{"after a while", time.Hour, 5 * time.Minute, 1 + 6, 0},
		{"not before it expires", 10 * time.Minute, 0, 1 + 7, 1},
		{"never, and it does not say when it expires", 0, 0, 723, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, path := newBook(), filepath.Join(t.TempDir(), "tokens.ledger")
				b.life = c.life
				l, m, log := openedAt(t, path, b, nil)
				token := minted(t, m, gitgw.Write, "")
				start := time.Now()
				b.refusing(func(string) error {
					if c.works != 0 && time.Since(start) >= c.works {
						return nil
					}
					return errors.New("502")
				})
				time.Sleep(time.Nanosecond)
				if err := m.Revoke(t.Context(), token); (err == nil) != (c.works == time.Nanosecond) {
					t.Errorf("revoke: %v", err)
				}
				time.Sleep(30 * time.Hour)
				synctest.Wait()
				if b.tried() != c.tries || b.alive() != c.alive {
					t.Errorf("%d tries, %d alive; want %d and %d", b.tried(), b.alive(), c.tries, c.alive)
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				if len(l.tokens) != 0 {
					t.Error("it is still kept")
				}
				if strings.Contains(log.String(), "ghs_") {
					t.Errorf("a token stands in the log: %s", log)
				}
			})
		})
	}
}

// Whoever could not revoke his token and does so later has done it: nobody goes
// on.
func TestLedgerRevokedAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		_, m, _ := openedAt(t, filepath.Join(t.TempDir(), "tokens.ledger"), b, nil)
		token := minted(t, m, gitgw.Read, "")
		b.refusing(func(string) error { return errors.New("502") })
		if m.Revoke(t.Context(), token) == nil {
			t.Fatal("revoked")
		}
		b.refusing(nil)
		if err := m.Revoke(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if b.tried() != 2 {
			t.Errorf("%d tries", b.tried())
		}
	})
}

// Many are revoked a few at a time, and a minter that comes later takes what is
// its.
func TestLedgerManyOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, path := newBook(), filepath.Join(t.TempDir(), "tokens.ledger")
		l, m, _ := openedAt(t, path, b, nil)
		const n = 100
		for range n {
			minted(t, m, gitgw.Write, "")
		}
		kill(l)
		b.slow = 100 * time.Millisecond

		next := NewLedger(LedgerOptions{Path: path})
		if err := next.Open(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = next.Close() }()
		elsewhere := newBook()
		next.Wrap(elsewhere, "ghe.example")
		time.Sleep(time.Minute)
		if b.tried() != 0 || elsewhere.tried() != 0 {
			t.Error("revoked by a minter that has nothing to do with them")
		}
		next.Wrap(b, "github.com")
		time.Sleep(n / orphansAtOnce * b.slow * 3 / 2)
		if b.alive() != 0 || b.most != orphansAtOnce {
			t.Errorf("%d alive; %d at a time, want %d", b.alive(), b.most, orphansAtOnce)
		}
		if b.tried() != n {
			t.Errorf("%d tries for %d", b.tried(), n)
		}
	})
}

// A token that cannot be written down does not live.
func TestLedgerFailsClosed(t *testing.T) {
	told := func(t *testing.T, m gitgw.Minter, want string) {
		t.Helper()
		token, err := m.Mint(t.Context(), app, gitgw.Write)
		var reason *gitgw.MintError
		if !errors.As(err, &reason) || !strings.Contains(reason.Reason, want) || !token.IsZero() {
			t.Errorf("got %v, %v; want %q", token, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "ghs_") {
			t.Errorf("the token stands in the error: %v", err)
		}
	}
	t.Run("not open", func(t *testing.T) {
		b := newBook()
		l := NewLedger(LedgerOptions{Path: filepath.Join(t.TempDir(), "tokens.ledger")})
		told(t, l.Wrap(b, "github.com"), "is closed")
		if b.n != 0 {
			t.Error("minted")
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if l.Open() == nil {
			t.Error("opened after it was closed")
		}
	})
	t.Run("closed", func(t *testing.T) {
		b := newBook()
		l, m, _ := openedAt(t, filepath.Join(t.TempDir(), "tokens.ledger"), b, nil)
		token := minted(t, m, gitgw.Read, "")
		_ = l.Close()
		told(t, m, "is closed")
		if err := m.Revoke(t.Context(), token); err != nil || b.alive() != 0 {
			t.Errorf("what lives cannot be revoked: %v", err)
		}
	})
	t.Run("full", func(t *testing.T) {
		b := newBook()
		_, m, _ := openedAt(t, filepath.Join(t.TempDir(), "tokens.ledger"), b, nil)
		var last gitgw.Token
		for range maxTokens {
			last = minted(t, m, gitgw.Look, "")
		}
		told(t, m, "too many tokens")
		if err := m.Revoke(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		minted(t, m, gitgw.Look, "")
		if err := m.(Adopter).Adopt(t.Context(), gitgw.NewToken("ghs_foreign", time.Time{})); err == nil {
			t.Error("adopted one more")
		}
	})
	t.Run("cannot be written", func(t *testing.T) {
		b := newBook()
		l, m, _ := openedAt(t, filepath.Join(t.TempDir(), "tokens.ledger"), b, nil)
		good := l.file.file
		l.file.file, _ = os.Open(os.DevNull) // not open for writing
		told(t, m, "could not be recorded")
		if b.n != 1 || b.alive() != 0 {
			t.Errorf("%d minted, %d live", b.n, b.alive())
		}
		_ = l.file.file.Close()
		l.file.file = good
		minted(t, m, gitgw.Write, "")
	})
	t.Run("too long", func(t *testing.T) {
		l, _, _ := openedAt(t, filepath.Join(t.TempDir(), "tokens.ledger"), newBook(), nil)
		long := l.Wrap(long{}, "github.com")
		told(t, long, "could not be recorded")
	})
	t.Run("the minter fails", func(t *testing.T) {
		l, _, _ := openedAt(t, filepath.Join(t.TempDir(), "tokens.ledger"), newBook(), nil)
		told(t, l.Wrap(broken{}, "github.com"), "no such repository")
	})
}

// long mints a token that is longer than any forge's.
type long struct{ broken }

func (long) Mint(context.Context, gitgw.Repo, gitgw.Access) (gitgw.Token, error) {
	return gitgw.NewToken(strings.Repeat("x", maxToken+1), time.Time{}), nil
}

type broken struct{}

func (broken) Mint(context.Context, gitgw.Repo, gitgw.Access) (gitgw.Token, error) {
	return gitgw.Token{}, &gitgw.MintError{Reason: "no such repository"}
}
func (broken) Revoke(context.Context, gitgw.Token) error { return nil }

// An operator's own token is written into no file.
func TestLedgerLeavesStaticTokensAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.ledger")
	static := NewStatic("pat-write", "pat-read")
	_, m, _ := openedAt(t, path, static, nil)
	if m != gitgw.Minter(static) {
		t.Errorf("wrapped as %T", m)
	}
	minted(t, m, gitgw.Write, "")
	if text, err := os.ReadFile(path); err != nil || len(text) > 0 {
		t.Errorf("the file holds %q, %v", text, err)
	}
}

// A token that nobody knows is adopted all the same: the process was killed before
// it stood in the file.
func TestLedgerAdoptsTheUnknown(t *testing.T) {
	b, path := newBook(), filepath.Join(t.TempDir(), "tokens.ledger")
	l, m, _ := openedAt(t, path, b, nil)
	token := gitgw.NewToken("ghs_unknown", time.Time{})
	if err := m.(Adopter).Adopt(WithHolder(t.Context(), "7@1"), token); err != nil {
		t.Fatal(err)
	}
	kill(l)
	// Its host is not known, so that any minter has to do.
	next, _, _ := openedAt(t, path, b, func(string) bool { return false })
	deadline := time.Now().Add(10 * time.Second)
	for b.tried() == 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	_ = next.Close()
	if ended := b.ended(); len(ended) != 1 || ended[0] != "ghs_unknown" {
		t.Errorf("revoked %q", ended)
	}
}

// Reloads make new minters; the old ones are forgotten when nothing is theirs.
func TestLedgerMintersOverReloads(t *testing.T) {
	l := NewLedger(LedgerOptions{})
	for range 100 {
		l.Wrap(newBook(), "github.com", "ghe.example")
		l.Wrap(newBook(), "ghe.example")
	}
	if len(l.minters) != 2 {
		t.Errorf("%d minters are kept", len(l.minters))
	}
}

// Everything at once.
func TestLedgerAtOnce(t *testing.T) {
	b, path := newBook(), filepath.Join(t.TempDir(), "tokens.ledger")
	l, m, _ := openedAt(t, path, b, nil)
	var n int
	b.refusing(func(string) error { // mu of the book is held
		if n++; n%5 == 0 {
			return errors.New("502")
		}
		return nil
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				token, err := m.Mint(context.Background(), app, gitgw.Write)
				if err != nil {
					t.Error(err)
					return
				}
				_ = m.Revoke(context.Background(), token)
			}
		})
	}
	all.Wait()
	_ = l.Close()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	left, bad, err := parseLedger(bytes.NewReader(text))
	if err != nil || len(bad) > 0 || len(left) != b.alive() {
		t.Errorf("%d in the file, %d live, bad lines %v, %v", len(left), b.alive(), bad, err)
	}
	if len(text) > 3*maxGarbage {
		t.Errorf("the file has grown to %d bytes", len(text))
	}
}
