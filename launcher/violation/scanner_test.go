package violation

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// seen scans what is written in the given pieces and gives what was told.
func seen(pieces ...string) []Report {
	var out []Report
	sink := NewSink(func(r Report) { out = append(out, r) })
	s := NewScanner(sink)
	for _, p := range pieces {
		s.Observe([]byte(p))
	}
	s.Close()
	sink.Close()
	return out
}

// TestSPEC94Names is what programs write when a call is denied, one line each: what was
// tried, and on what.
func TestSPEC94Names(t *testing.T) {
	for _, tc := range []struct{ line, action, target string }{
		{"touch: cannot touch 'x': Permission denied", "touch", "x"},
		{"mkdir: cannot create directory ‘/opt/x y’: Permission denied", "create directory", "/opt/x y"},
		{"rm: cannot remove '/w/.git/hooks': Operation not permitted", "remove", "/w/.git/hooks"},
		{"mv: cannot move 'a' to 'b': Permission denied", "move", "a"},
		{"cat: /root/.ssh/id: Permission denied", "access", "/root/.ssh/id"},
		{"ls: cannot open directory '/root': Permission denied", "open directory", "/root"},
		{"bash: line 1: /etc/x: Permission denied", "access", "/etc/x"},
		{"bash: x: Permission denied", "access", "x"},
		{"sh: 1: cannot create /etc/x: Permission denied", "create", "/etc/x"},
		{"/bin/sh: 1: ./run.sh: Permission denied", "access", "./run.sh"},
		{"zsh:1: permission denied: /etc/x", "access", "/etc/x"},
		{"fatal: could not create work tree dir 'app': Permission denied", "create work tree dir", "app"},
		{"fatal: Unable to create '/w/.git/index.lock': Permission denied", "create", "/w/.git/index.lock"},
		{"error: could not lock config file .git/config: Permission denied", "lock config file", ".git/config"},
		{"error: open(\"a.txt\"): Permission denied", "open", "a.txt"},
		{"Error: EACCES: permission denied, open '/etc/x'", "open", "/etc/x"},
		{"[Error: EPERM: operation not permitted, unlink 'a b'] {", "unlink", "a b"},
		{"npm error Error: EACCES: permission denied, mkdir '/usr/lib/node_modules'", "mkdir", "/usr/lib/node_modules"},
		{"{ errno: -1, code: 'EPERM', syscall: 'open', path: '/etc/x' }", "open", "/etc/x"},
		{"PermissionError: [Errno 13] Permission denied: '/etc/x'", "access", "/etc/x"},
		{"PermissionError: [Errno 1] Operation not permitted: 'a' -> 'b'", "access", "a"},
		{"open /etc/x: permission denied", "open", "/etc/x"},
		{"panic: mkdir /opt/y: permission denied", "mkdir", "/opt/y"},
		{"fork/exec ./tool: permission denied", "exec", "./tool"},
		{"dial tcp 10.0.0.1:443: connect: operation not permitted", "connect", "10.0.0.1:443"},
		{"Error: Permission denied (os error 13)", "access", ""},
		{"error: failed to open: /w/x: Permission denied (os error 13)", "access", "/w/x"},
		{"a.rb:1:in `initialize': Permission denied @ rb_sysopen - /etc/x (Errno::EACCES)", "access", "/etc/x"},
		{"java.io.FileNotFoundException: /etc/x (Permission denied)", "access", "/etc/x"},
		{`openat(AT_FDCWD, "/etc/x", O_RDWR) = -1 EPERM (Operation not permitted)`, "openat", "/etc/x"},
		{"ping: socket: Operation not permitted", "socket", ""},
		{"mount: /mnt: permission denied.", "access", "/mnt"},
		{"EPERM", "access", ""},
		{"\x1b[31mtouch: cannot touch 'x': \x1b[1mPermission\x1b[0m denied\x1b[0m", "touch", "x"},
		{"50%\r 75%\rcp: cannot create regular file '/opt/a': Permission denied\r", "create regular file", "/opt/a"},
		{"\x1b]0;a title\x07cat: b: Permission denied", "access", "b"},
		{"cat: \xff\xfe: Permission denied", "access", "?"},
	} {
		got := seen(tc.line + "\n")
		if len(got) != 1 || got[0].Action != tc.action || got[0].Target != tc.target {
			t.Errorf("%q: got %+v, want %s of %q", tc.line, got, tc.action, tc.target)
			continue
		}
		if got[0].Raw == "" || strings.ContainsAny(got[0].Raw, "\x1b\r\n") {
			t.Errorf("%q: raw %q", tc.line, got[0].Raw)
		}
	}
}

// TestSPEC95OtherLines is what no violation is: the three texts, and nothing else.
func TestSPEC95OtherLines(t *testing.T) {
	for _, line := range []string{
		"", "all is well", "error: could not lock config file .git/config: Device or resource busy",
		"permissions of x are too open", "Read-only file system", "access denied", "403 Forbidden", "ERPERM", "EPERMS", "xEPERM", "EACCES",
		"permission was denied", "operation is not permitted", "PERMISSION DENIED BY LAW",
		"curl: (56) CONNECT tunnel failed, response 403", " ! [remote rejected] main -> main (policy: no rule allows push)",
		// A server's refusal of a login is no system call.
		"git@github.com: Permission denied (publickey).", "me@host: Permission denied (publickey,password).", "Permission denied, please try again.",
		// The property of an object whose message was told.
		"  code: 'EPERM',", "  code: \"EPERM\"",
		// Not text.
		"\x7fELF\x00\x00Permission denied\x00",
	} {
		if got := seen(line + "\n"); len(got) != 0 {
			t.Errorf("%q: got %+v", line, got)
		}
	}
}

// TestAnyCut splits a stream everywhere: what is found does not hang on the chunks.
func TestAnyCut(t *testing.T) {
	const stream = "one\ntouch: cannot touch 'x': Permission denied\nterminal, determine, permit\r\nopen /y: permission denied\nEPERM"
	want := fmt.Sprint(seen(stream))
	if len(seen(stream)) != 3 {
		t.Fatalf("found %s", want)
	}
	for i := range len(stream) {
		for j := i; j <= len(stream); j += 7 {
			if got := fmt.Sprint(seen(stream[:i], stream[i:j], stream[j:])); got != want {
				t.Fatalf("cut at %d and %d: got %s, want %s", i, j, got, want)
			}
		}
	}
	bytewise := strings.Split(stream, "")
	if got := fmt.Sprint(seen(bytewise...)); got != want {
		t.Errorf("byte by byte: got %s, want %s", got, want)
	}
}

// TestVeryLongLine holds little of a line without an end, and finds what is in it.
func TestVeryLongLine(t *testing.T) {
	const text = " cat: /secret: Permission denied "
	for _, before := range []int{0, 100, maxLine - 20, maxLine, 3*maxLine + 17, 10 * maxLine} {
		line := strings.Repeat("x", before) + text + strings.Repeat("y", 2*maxLine)
		for _, pieces := range [][]string{{line}, {line + "\n"}, strings.SplitAfter(line, "x"), {line[:before+10], line[before+10:]}} {
			got := seen(pieces...)
			if len(got) != 1 || len(got[0].Raw) > maxRaw {
				t.Fatalf("%d bytes before, %d pieces: %+v", before, len(pieces), got)
			}
		}
	}
	s := NewScanner(NewSink(func(Report) {}))
	for range 100 {
		s.Observe(bytes.Repeat([]byte("z"), 100_000))
	}
	if cap(s.line) > 4*maxLine {
		t.Errorf("holds %d bytes", cap(s.line))
	}
}

// TestChunkIsNotKept changes a chunk after it was looked at, as a reader does who uses
// its buffer again.
func TestChunkIsNotKept(t *testing.T) {
	var got []Report
	sink := NewSink(func(r Report) { got = append(got, r) })
	s := NewScanner(sink)
	b := []byte("touch: cannot touch 'x': Perm")
	before := string(b)
	s.Observe(b)
	if string(b) != before {
		t.Fatal("the chunk was changed")
	}
	copy(b, bytes.Repeat([]byte("!"), len(b)))
	s.Observe([]byte("ission denied\n"))
	if len(got) != 1 || got[0].Target != "x" {
		t.Errorf("got %+v", got)
	}
}

func FuzzScanner(f *testing.F) {
	f.Add([]byte("touch: cannot touch 'x': Permission denied\n"), uint8(3))
	f.Add([]byte("\x1b[\x1b]EPERM\xff\rPermission\x1b[0m denied: \n"), uint8(1))
	f.Add([]byte("f(\"a\") = -1 EPERM (Operation not permitted)\n{ code: 'EPERM', path: ''\n"), uint8(5))
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		kept := bytes.Clone(data)
		whole := seen(string(data))
		for _, r := range whole {
			if len(r.Raw) > maxRaw || len(r.Target) > maxTarget || len(r.Action) > maxAction || r.Action == "" || r.Count == 0 ||
				!utf8.ValidString(r.Raw+r.Target+r.Action) || strings.ContainsAny(r.Raw+r.Target+r.Action, "\x1b\x00\n\r\a") {
				t.Fatalf("told %+v", r)
			}
		}
		var pieces []string
		for rest := string(data); rest != ""; {
			n := min(len(rest), int(size)+1)
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		// Of lines that are longer than what is held, other parts are seen.
		if longest(data) < maxLine && bytes.Count(data, []byte("\n")) < maxHits && fmt.Sprint(seen(pieces...)) != fmt.Sprint(whole) {
			t.Fatalf("in pieces of %d: %+v, as one: %+v", size, seen(pieces...), whole)
		}
		if !bytes.Equal(kept, data) {
			t.Fatal("the stream was changed")
		}
	})
}

func longest(data []byte) (n int) {
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		n = max(n, len(line))
	}
	return n
}

// BenchmarkScanner is the cost of output without a hit, beside copying it.
func BenchmarkScanner(b *testing.B) {
	var log bytes.Buffer
	r := rand.New(rand.NewPCG(1, 2))
	for log.Len() < 1<<20 {
		fmt.Fprintf(&log, "2026-01-02T03:04:05Z INFO compile unit %d of terminal emulator, took %d ms (EXIT %d)\n", r.IntN(1e6), r.IntN(1e4), r.IntN(9))
	}
	random := make([]byte, 1<<20)
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	for name, data := range map[string][]byte{"log": log.Bytes(), "binary": random, "no line ends": bytes.Repeat([]byte("0123456789abcdef"), 1<<16)} {
		b.Run(name, func(b *testing.B) {
			s := NewScanner(NewSink(func(Report) {}))
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				for rest := data; len(rest) > 0; {
					n := min(len(rest), 256<<10)
					s.Observe(rest[:n])
					rest = rest[n:]
				}
			}
		})
	}
	b.Run("floor: copy", func(b *testing.B) {
		to := make([]byte, log.Len())
		b.SetBytes(int64(log.Len()))
		for b.Loop() {
			copy(to, log.Bytes())
		}
	})
}

// clock is a time that a test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }
