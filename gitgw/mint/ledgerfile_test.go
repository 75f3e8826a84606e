package mint

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"postern/gitgw"
)

// line is one that stands in a file.
func line(value string) string {
	data, err := encodeRecord(record{Token: value, Host: "github.com", Repository: "acme/app", Access: "write", Time: time.Now()})
	if err != nil {
		panic(err)
	}
	return string(data)
}

func struck(value string) string {
	return fmt.Sprintf("{\"gone\":%q}\n", gitgw.NewToken(value, time.Time{}).ID())
}

func TestParseLedger(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
		bad        []int
	}{
		{"empty", "", nil, nil},
		{"two", line("a") + line("b"), []string{"a", "b"}, nil},
		{"one is gone", line("a") + line("b") + struck("a"), []string{"b"}, nil},
		{"the other is gone", line("a") + line("b") + struck("b"), []string{"a"}, nil},
		{"gone before it came", struck("a") + line("a"), []string{"a"}, nil},
		{"gone, and back", line("a") + struck("a") + line("a"), []string{"a"}, nil},
		{"written twice", line("a") + line("a"), []string{"a"}, nil},
		{"written twice, and gone", line("a") + line("a") + struck("a"), nil, nil},
		{"empty lines", "\n\n" + line("a") + "\n", []string{"a"}, nil},
		{"garbage between", line("a") + "{\"token\":\"half\n" + line("b"), []string{"a", "b"}, []int{2}},
		{"the end is missing", line("a") + strings.TrimSuffix(line("b"), "\n"), []string{"a"}, []int{2}},
		{"no token", "{}\n" + line("a"), []string{"a"}, []int{1}},
		{"no time", "{\"token\":\"x\"}\n", nil, []int{1}},
		{"another form", "[\"x\"]\nnull\n7\n", nil, []int{1, 2, 3}},
		{"too long a token", line(strings.Repeat("x", maxToken+1)) + line("a"), []string{"a"}, []int{1}},
		{"zeros", strings.Repeat("\x00", 4096) + "\n" + line("a"), []string{"a"}, []int{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			left, bad, err := parseLedger(strings.NewReader(c.text))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range left {
				got = append(got, r.Token)
			}
			if !slices.Equal(got, c.want) || !slices.Equal(bad, c.bad) {
				t.Errorf("got %q, bad lines %v; want %q, %v", got, bad, c.want, c.bad)
			}
		})
	}
	if _, _, err := parseLedger(strings.NewReader(strings.Repeat("x", maxLedger+1))); err == nil {
		t.Error("a file that is too long was read")
	}
	many := strings.Repeat("x\n", 5000)
	if _, bad, err := parseLedger(strings.NewReader(many)); err != nil || len(bad) != 100 {
		t.Errorf("%d bad lines are listed, %v", len(bad), err)
	}
}

// Whatever stands in the file, it is read without harm, and what is read is
// written and read again as the same.
func FuzzParseLedger(f *testing.F) {
	f.Add([]byte(line("a") + line("b") + struck("a")))
	f.Add([]byte(line("a") + "{\"token\":\"half\n"))
	f.Add([]byte("{\"gone\":\"\"}\n{\"token\":\"x\",\"time\":\"2026-01-01T00:00:00Z\",\"gone\":\"y\"}\n"))
	f.Add([]byte("{\"token\":\"\\ud800\",\"time\":\"2026-01-01T00:00:00Z\"}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		left, _, err := parseLedger(bytes.NewReader(data))
		if err != nil {
			t.Skip()
		}
		var text bytes.Buffer
		for _, r := range left {
			data, err := encodeRecord(r)
			if err != nil {
				t.Skip() // a time that JSON has no form for
			}
			text.Write(data)
		}
		again, bad, err := parseLedger(&text)
		if err != nil || len(bad) > 0 || len(again) != len(left) {
			t.Fatalf("%d become %d, bad lines %v, %v", len(left), len(again), bad, err)
		}
		for i := range left {
			if again[i].Token != left[i].Token {
				t.Errorf("%q becomes %q", left[i].Token, again[i].Token)
			}
		}
	})
}

// Whatever is added and removed, in whatever order, and however often the file is
// written anew: what it holds is what stands.
func TestLedgerFileHoldsWhatStands(t *testing.T) {
	dir := t.TempDir()
	if memory, err := os.MkdirTemp("/dev/shm", "ledger"); err == nil { //nolint:usetesting // in memory
		// As a run directory mostly is: syncing a disk takes the test's time.
		t.Cleanup(func() { _ = os.RemoveAll(memory) })
		dir = memory
	}
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprint(n))
		f, left, err := openLedger(path, slog.New(slog.DiscardHandler))
		if err != nil || len(left) != 0 {
			t.Fatal(left, err)
		}
		stands := map[string]record{}
		standing := func() []record {
			var all []record
			for _, r := range stands {
				all = append(all, r)
			}
			return all
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				r := record{Token: rapid.StringMatching(`[a-d]{1,2}`).Draw(t, "token"), Time: time.Unix(1, 0).UTC()}
				// Long enough for the file to be written anew now and then.
				r.Repository = strings.Repeat("r", rapid.IntRange(0, maxGarbage/4).Draw(t, "length"))
				if err := f.add(r); err != nil {
					t.Fatal(err)
				}
				stands[r.Token] = r
			},
			"remove": func(t *rapid.T) {
				value := rapid.StringMatching(`[a-d]{1,2}`).Draw(t, "token")
				if _, there := stands[value]; !there {
					t.Skip()
				}
				delete(stands, value)
				if err := f.remove(gitgw.NewToken(value, time.Time{}).ID(), standing); err != nil {
					t.Fatal(err)
				}
			},
			"half a line": func(t *rapid.T) {
				if _, err := f.file.WriteString(`{"token":"hal`); err != nil {
					t.Fatal(err)
				}
				f.damaged = true
			},
			"reopen": func(t *rapid.T) {
				if err := f.close(); err != nil {
					t.Fatal(err)
				}
				if f, left, err = openLedger(path, slog.New(slog.DiscardHandler)); err != nil {
					t.Fatal(err)
				}
				if len(left) != len(stands) {
					t.Fatalf("%d stand, %d are found", len(stands), len(left))
				}
				for _, r := range left {
					if stands[r.Token] != r {
						t.Fatalf("%v stands, %v is found", stands[r.Token], r)
					}
				}
			},
			"": func(t *rapid.T) {
				info, err := os.Stat(path)
				if err != nil || info.Mode().Perm() != 0o600 {
					t.Fatal(info, err)
				}
			},
		})
		if err := f.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A file that somebody else may have written, or read, is refused; nothing is
// written through a link.
func TestLedgerFileIsPrivate(t *testing.T) {
	for _, c := range []struct {
		name, want string
		make       func(path string) error
	}{
		{"readable by the group", "lets other users in", func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Chmod(path, 0o640)
		}},
		{"writable by all", "lets other users in", func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Chmod(path, 0o602)
		}},
		{"a folder", "not a regular file", func(path string) error { return os.Mkdir(path, 0o700) }},
		{"a pipe", "not a regular file", func(path string) error { return syscall.Mkfifo(path, 0o600) }},
		{"a link", "symbolic link", func(path string) error {
			if err := os.WriteFile(path+".target", nil, 0o600); err != nil {
				return err
			}
			return os.Symlink(path+".target", path)
		}},
		{"a link to nothing", "symbolic link", func(path string) error { return os.Symlink(path+".target", path) }},
		{"a second name", "another name", func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Link(path, path+".other")
		}},
		{"another user's", "belongs to another user", func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Chown(path, 12345, -1)
		}},
	} {
		for _, suffix := range []string{"", ".lock"} {
			t.Run(c.name+suffix, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "tokens.ledger")
				if err := c.make(path + suffix); errors.Is(err, syscall.EPERM) && os.Geteuid() != 0 {
					t.Skip("root alone can make it")
				} else if err != nil {
					t.Fatal(err)
				}
				l := NewLedger(LedgerOptions{Path: path})
				err := l.Open()
				if suffix == ".lock" && c.name == "a folder" && errors.Is(err, syscall.EISDIR) {
					return // it cannot even be opened
				}
				if err == nil {
					_ = l.Close()
					t.Fatal("opened")
				}
				if !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if _, err := os.Stat(path + suffix + ".target"); c.name == "a link to nothing" && err == nil {
					t.Error("written through the link")
				}
			})
		}
	}
}

// A failure to open leaves no lock behind, and one process at a time has the file.
func TestLedgerHasOneProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.ledger")
	first := NewLedger(LedgerOptions{Path: path})
	if err := first.Open(); err != nil {
		t.Fatal(err)
	}
	if err := first.Open(); err != nil {
		t.Error("opened again:", err)
	}
	second := NewLedger(LedgerOptions{Path: path})
	if err := second.Open(); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("shared: %v", err)
	}
	_ = first.Close()
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if second.Open() == nil {
		t.Error("a file that others may read was opened")
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := second.Open(); err != nil {
		t.Errorf("after a failure: %v", err)
	}
	_ = second.Close()
}

// A warning tells the line and never what stands in it.
func TestLedgerWarnsOfLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.ledger")
	if err := os.WriteFile(path, []byte(line("good")+"{\"token\":\"ghs_halfatoken\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// As of a process that was killed while it wrote anew.
	if err := os.WriteFile(path+".new", []byte("rest"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, _, log := openedAt(t, path, newBook(), nil)
	_ = l.Close() // the good one's revocation writes anew as well
	if text := log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "line=2") || strings.Contains(text, "ghs_") {
		t.Errorf("log: %s", text)
	}
	if _, err := os.Stat(path + ".new"); err == nil {
		t.Error("what a killed process left is still there")
	}
}

// The process is really killed, again and again, while it mints: whatever it had
// handed out, the next one knows.
func TestLedgerSurvivesSIGKILL(t *testing.T) {
	if os.Getenv("LEDGER_PATH") != "" {
		mintForEver(os.Getenv("LEDGER_PATH"))
		return
	}
	path := filepath.Join(t.TempDir(), "tokens.ledger")
	known := 0
	for round := range 5 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestLedgerSurvivesSIGKILL$")
		cmd.Env = append(os.Environ(), "LEDGER_PATH="+path)
		out := &notes{}
		cmd.Stdout = out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		want := 20 * (round + 1)
		for end := time.Now().Add(20 * time.Second); strings.Count(out.String(), "\n") < want && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()

		b := newBook()
		l, _, log := openedAt(t, path, b, nil)
		l.mu.Lock()
		for value := range strings.Lines(out.String()) {
			value = strings.TrimSpace(value)
			if !strings.HasPrefix(value, "tok-") || !strings.HasSuffix(value, ".") {
				continue // a line that the kill cut off, or the test's own
			}
			known++
			id := gitgw.NewToken(value, time.Time{}).ID()
			if l.tokens[id] == nil && !slices.Contains(b.ended(), value) && !strings.Contains(log.String(), id) {
				t.Errorf("round %d: %s was handed out and is not known", round, value)
			}
		}
		l.mu.Unlock()
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			l.mu.Lock()
			left := len(l.tokens)
			l.mu.Unlock()
			if left == 0 {
				break
			}
		}
		_ = l.Close()
	}
	if known < 5*20 {
		t.Errorf("only %d tokens were handed out", known)
	}
	text, err := os.ReadFile(path)
	if left, bad, _ := parseLedger(bytes.NewReader(text)); err != nil || len(left) > 0 || len(bad) > 0 {
		t.Errorf("%d are left, bad lines %v, %v", len(left), bad, err)
	}
}

// mintForEver prints each token when it has been handed out.
func mintForEver(path string) {
	l := NewLedger(LedgerOptions{Path: path})
	if err := l.Open(); err != nil {
		fmt.Println(err)
		return
	}
	for i := 0; ; i++ {
		value := fmt.Sprintf("tok-%d-%d.", os.Getpid(), i)
		e := &entry{token: gitgw.NewToken(value, time.Time{}), record: record{Token: value, Host: "github.com", Time: time.Now()}}
		if err := l.add(e); err != nil {
			fmt.Println(err)
			return
		}
		if i%3 == 0 {
			l.remove(e.token.ID())
		} else {
			fmt.Println(value)
		}
		if i == maxTokens {
			return
		}
	}
}

// A token that was taken out is in no file any more, also while others stand.
func TestLedgerKeepsNothingDead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	f, _, err := openLedger(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	dead, alive := record{Token: "ghs_dead", Time: time.Now()}, record{Token: "ghs_alive", Time: time.Now()}
	for _, r := range []record{dead, alive} {
		if err := f.add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.remove(gitgw.NewToken(dead.Token, time.Time{}).ID(), func() []record { return []record{alive} }); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || bytes.Contains(text, []byte(dead.Token)) || !bytes.Contains(text, []byte(alive.Token)) {
		t.Errorf("the file holds %s, %v", text, err)
	}
}
