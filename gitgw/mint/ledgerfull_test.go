package mint

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"postern/gitgw"
)

// On a disk that is full nothing is handed out that is not written down, what is
// handed out can be revoked, and what a former process left is revoked too. The
// limit is that of a process on its files, so that it needs no disk: writes end in
// the middle of a line, as on a full one.
func TestLedgerOnAFullDisk(t *testing.T) {
	const name = "tokens.ledger"
	if os.Getenv("LEDGER_FULL_ROOM") != "" {
		room, _ := strconv.ParseUint(os.Getenv("LEDGER_FULL_ROOM"), 10, 64)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: room, Max: room}); err != nil {
			t.Fatal(err)
		}
		onAFullDisk(t, name)
		return
	}
	path := filepath.Join(t.TempDir(), name)
	for _, room := range []int{1500, 1400, 400, 50, 0} {
		// Each finds what the one before left, which has less and less room.
		cmd := exec.Command(os.Args[0], "-test.run=^TestLedgerOnAFullDisk$")
		cmd.Env = append(os.Environ(), "LEDGER_FULL_ROOM="+strconv.Itoa(room))
		cmd.Dir = filepath.Dir(path)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("room for %d bytes: %v\n%s", room, err, out)
		}
	}
	b := newBook()
	l, _, _ := openedAt(t, path, b, nil)
	emptied(t, l)
	if text, err := os.ReadFile(path); err != nil || len(text) > 0 {
		t.Errorf("left: %q %v", text, err)
	}
}

func onAFullDisk(t *testing.T, path string) {
	t.Helper()
	b := newBook()
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	// Those of the former process live at the forge.
	left, _, err := parseLedger(strings.NewReader(string(before)))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range left {
		b.live[r.Token] = true
	}
	l, m, _ := openedAt(t, path, b, nil)
	emptied(t, l)
	if b.alive() != 0 {
		t.Errorf("%d tokens of the former process live", b.alive())
	}
	var handed []gitgw.Token
	for range 100 {
		token, err := m.Mint(t.Context(), app, gitgw.Write)
		if err != nil {
			var told *gitgw.MintError
			if !errors.As(err, &told) || told.Reason != "the token could not be recorded, and was given back" || !full(err) {
				t.Errorf("%v", err)
			}
			break
		}
		handed = append(handed, token)
	}
	if len(handed) > 90 {
		t.Error("the disk is not full")
	}
	if b.alive() != len(handed) {
		t.Errorf("%d live, %d were handed out", b.alive(), len(handed))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	known, _, err := parseLedger(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, r := range known {
		found[r.Token] = true
	}
	for _, token := range handed {
		if !found[token.Value()] {
			t.Errorf("%s was handed out and is not written down", token)
		}
	}
	// One is revoked, the others are left to the next process.
	if len(handed) > 0 {
		if err := m.Revoke(t.Context(), handed[0]); err != nil {
			t.Error(err)
		}
	}
	kill(l)
	fmt.Println(len(handed), "handed out")
}

// emptied waits until a ledger knows of no token.
func emptied(t *testing.T, l *Ledger) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		left := len(l.tokens)
		l.mu.Unlock()
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d tokens are left", left)
		}
	}
}
