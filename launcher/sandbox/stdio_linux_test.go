package sandbox

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// withStdio runs a script with the given descriptors.
func withStdio(tb testing.TB, stdin, stdout, stderr *os.File, text string) (Status, error) {
	tb.Helper()
	needBwrap(tb)
	w := newWorld(tb)
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	p, err := Start(ctx, gather(tb, w.profile()), Options{Stdin: stdin, Stdout: stdout, Stderr: stderr, Timeout: 30 * time.Second})
	if err != nil {
		return Status{}, err
	}
	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	if err := p.Exec(Command{Argv: []string{"/bin/bash", "-c", text}, Env: []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}}); err != nil {
		p.Close()
		return Status{}, err
	}
	return p.Wait()
}

func opened(tb testing.TB, path string, flag int) *os.File {
	tb.Helper()
	f, err := os.OpenFile(path, flag, 0o600)
	must(tb, err)
	tb.Cleanup(func() { _ = f.Close() })
	return f
}

// A log that a run inherits can be added to, and neither read, emptied nor rewritten.
func TestStdioCannotBeReopened(t *testing.T) {
	dir := tempDir(t)
	log := filepath.Join(dir, "host.log")
	write(t, log, "AUDIT token\n")
	in := filepath.Join(dir, "in")
	write(t, in, "input\n")
	out := capture(t)
	status, err := withStdio(t, opened(t, in, os.O_RDONLY), out, opened(t, log, os.O_WRONLY|os.O_APPEND),
		`timeout 1 cat /proc/self/fd/2; timeout 1 bash -c ': > /proc/self/fd/2; echo said >&2'; timeout 1 bash -c 'echo forged > /proc/self/fd/0'; timeout 1 truncate -s 0 /proc/self/fd/0 2>/dev/null; exit 3`)
	must(t, err)
	if status.Code != 3 {
		t.Errorf("status %+v", status)
	}
	if got := slurp(t, out); strings.Contains(got, "token") {
		t.Errorf("the log was read: %q", got)
	}
	if got := read(t, log); !strings.HasPrefix(got, "AUDIT token\n") || !strings.Contains(got, "said\n") {
		t.Errorf("the log is now %q", got)
	}
	if got := read(t, in); got != "input\n" {
		t.Errorf("the input is now %q", got)
	}
}

func TestStdioThatIsRefused(t *testing.T) {
	home := opened(t, tempDir(t), os.O_RDONLY)
	null := devNull(t)
	for name, files := range map[string][3]*os.File{
		"stdin": {home, null, null}, "stdout": {null, home, null}, "stderr": {null, null, home},
	} {
		_, err := withStdio(t, files[0], files[1], files[2], "true")
		refusal(t, err, ReasonStdio)
		if !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "folder") {
			t.Errorf("%v does not say %s", err, name)
		}
	}
	closed := opened(t, os.DevNull, os.O_RDONLY)
	must(t, closed.Close())
	_, err := withStdio(t, closed, null, null, "true")
	refusal(t, err, ReasonStdio)
}

// Everything that is written arrives, in order, also from both at once and when the
// command is gone at once; and all of the input can be read.
func TestStdioIsWhole(t *testing.T) {
	dir := tempDir(t)
	data := bytes.Repeat([]byte("0123456789abcde\n"), 1<<18) // 4 MiB
	in := filepath.Join(dir, "in")
	write(t, in, string(data))
	t.Run("through", func(t *testing.T) {
		out := capture(t)
		began := time.Now()
		_, err := withStdio(t, opened(t, in, os.O_RDONLY), out, devNull(t), "cat")
		must(t, err)
		if got := slurp(t, out); got != string(data) {
			t.Errorf("%d bytes of %d", len(got), len(data))
		}
		t.Logf("%d bytes in %s", len(data), time.Since(began))
	})
	t.Run("input that is not read", func(t *testing.T) {
		out := capture(t)
		_, err := withStdio(t, opened(t, in, os.O_RDONLY), out, devNull(t), "head -c 4")
		must(t, err)
		if got := slurp(t, out); got != "0123" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("one file for both", func(t *testing.T) {
		out := opened(t, filepath.Join(dir, "both"), os.O_WRONLY|os.O_CREATE)
		_, err := withStdio(t, devNull(t), out, out, "for i in {1..500}; do echo out $i; echo err $i >&2; done")
		must(t, err)
		all := lines("%s", slurp(t, out))
		for i := 0; i+1 < len(all); i += 2 {
			if !strings.HasPrefix(all[i], "out ") || strings.TrimPrefix(all[i], "out ") != strings.TrimPrefix(all[i+1], "err ") {
				t.Fatalf("line %d: %q after %q", i, all[i+1], all[i])
			}
		}
		if len(all) != 1000 {
			t.Errorf("%d lines", len(all))
		}
	})
	t.Run("at an offset, after what is there", func(t *testing.T) {
		out := opened(t, filepath.Join(dir, "offset"), os.O_WRONLY|os.O_CREATE)
		_, err := out.WriteString("first\n")
		must(t, err)
		_, err = withStdio(t, devNull(t), out, devNull(t), "echo second; (sleep 1000; echo never) & exit 0")
		must(t, err)
		if got := slurp(t, out); got != "first\nsecond\n" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("pipes are handed on", func(t *testing.T) {
		r, w, err := os.Pipe()
		must(t, err)
		defer r.Close()
		_, err = withStdio(t, devNull(t), w, w, "echo x; readlink /proc/self/fd/1 | cut -d: -f1 >&2")
		must(t, err)
		must(t, w.Close())
		got, err := io.ReadAll(r)
		must(t, err)
		if string(got) != "x\npipe\n" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a file that cannot be written", func(t *testing.T) {
		if _, err := withStdio(t, devNull(t), opened(t, in, os.O_RDONLY), devNull(t), "echo x; sleep 0.2; echo y"); err == nil {
			t.Error("output was lost without a word")
		}
	})
}
