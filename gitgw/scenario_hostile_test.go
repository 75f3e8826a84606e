package gitgw_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"postern/gitgw"
	"postern/integration/fakegithub"
)

// hostile posts a body and checks that it was refused as malformed, in full and
// without a word to the forge.
func (w *world) hostile(t *testing.T, body string, want ...string) string {
	t.Helper()
	resp := w.post(body, nil)
	got := readAll(t, resp)
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %d", resp.StatusCode)
	}
	for _, part := range append(want, "malformed push") {
		if !strings.Contains(got, part) {
			t.Errorf("answer lacks %q: %q", part, got)
		}
	}
	if !strings.HasSuffix(got, "0000") {
		t.Errorf("answer is not finished: %q", got)
	}
	w.untouched()
	return got
}

// TestG replays the hostile command lists. One world serves them all, as the
// forge must see none of them.
func TestG(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	id, main := w.head("main"), w.refs("acme/app")["refs/heads/main"]
	pack := w.pack()
	first := func(ref string) string { return pkt(zero + " " + id + " " + ref + "\x00" + rawCaps) }
	next := func(ref string) string { return pkt(zero + " " + id + " " + ref) }
	ok := "refs/heads/ok"
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"G01 NUL in the second command": {
			first(ok) + pkt(main+" "+id+" refs/heads/main\x00x") + "0000" + pack,
			[]string{"command 2: a NUL byte", "ng refs/heads/ok "},
		},
		"G01 two NULs in the first":   {pkt(zero+" "+id+" "+ok+"\x00"+rawCaps+"\x00x") + "0000" + pack, []string{"control characters"}},
		"G05 invalid UTF-8":           {first("refs/heads/x\xff\xfe") + "0000" + pack, []string{"not valid UTF-8"}},
		"G07 the same ref twice":      {first(ok) + next(ok) + "0000" + pack, []string{"named twice"}},
		"G08 no flush":                {first(ok) + next("refs/heads/b"), []string{"ends before its flush", "ng refs/heads/ok", "ng refs/heads/b"}},
		"G09 double space":            {pkt(zero+"  "+id+" "+ok+"\x00"+rawCaps) + "0000" + pack, []string{"malformed ids"}},
		"G09 tab":                     {pkt(zero+"\t"+id+"\t"+ok+"\x00"+rawCaps) + "0000" + pack, []string{"one space between"}},
		"G12 length fff5":             {first(ok) + "fff5" + pack, []string{"malformed packet length"}},
		"G12 length zzzz":             {first(ok) + "zzzz" + pack, []string{"malformed packet length"}},
		"G12 length 0001":             {first(ok) + "0001" + pack, []string{"malformed packet length"}},
		"G12 length 0004":             {first(ok) + "0004" + pack, []string{"malformed packet length"}},
		"G13 upper-case id":           {pkt(zero+" "+strings.ToUpper(id)+" "+ok+"\x00"+rawCaps) + "0000" + pack, []string{"want lower-case hex"}},
		"G14 dot dot":                 {first("refs/heads/../heads/main") + "0000" + pack, []string{"holds .."}},
		"G14 empty component":         {first("refs/heads//main") + "0000" + pack, []string{"empty component"}},
		"G14 HEAD":                    {first("HEAD") + "0000" + pack, []string{"does not begin with refs/"}},
		"G14 refs":                    {first("refs") + "0000" + pack, []string{"does not begin with refs/"}},
		"G14 leading dot":             {first("refs/heads/.x") + "0000" + pack, []string{"dot"}},
		"G14 .lock":                   {first("refs/heads/x.lock") + "0000" + pack, []string{".lock"}},
		"G14 @{":                      {first("refs/heads/x@{1}") + "0000" + pack, []string{"@{"}},
		"G15 sha256 with short ids":   {pkt(zero+" "+id+" "+ok+"\x00 report-status side-band-64k object-format=sha256") + "0000" + pack, []string{"do not fit object-format sha256"}},
		"G16 a body in mid pack":      {pack[20:], []string{"malformed packet length"}},
		"a pack alone":                {pack, []string{"malformed packet length"}},
		"no-break space":              {first("refs/heads/main\u00a0x") + "0000" + pack, []string{"invisible"}},
		"em space":                    {first("refs/heads/x\u2003y") + "0000" + pack, []string{"invisible"}},
		"zero-width space":            {first("refs/heads/ma\u200bin") + "0000" + pack, []string{"invisible"}},
		"F09 a certificate":           {pkt("push-cert\x00"+rawCaps) + pkt("certificate version 0.1\n") + pkt("push-cert-end\n") + "0000" + pack, []string{"signed pushes"}},
		"no capabilities":             {pkt(zero+" "+id+" "+ok) + "0000" + pack, []string{"no capabilities"}},
		"zero to zero":                {pkt(zero+" "+zero+" "+ok+"\x00"+rawCaps) + "0000" + pack, []string{"neither an old nor a new id"}},
		"shallow after commands":      {first(ok) + pkt("shallow "+id+"\n") + "0000" + pack, []string{"after the commands"}},
		"shallow with a bad id":       {pkt("shallow "+id+"x\n") + first(ok) + "0000" + pack, []string{"shallow line with a malformed id"}},
		"an ERR line":                 {pkt("ERR no") + first(ok) + "0000" + pack, []string{"ERR line"}},
		"nothing":                     {"", []string{"ends before its flush"}},
		"a push option with a CR":     {pkt(zero+" "+id+" "+ok+"\x00"+rawCaps+" push-options") + "0000" + pkt("a\rb") + "0000" + pack, []string{"malformed push option"}},
		"no pack":                     {first(ok) + "0000", []string{"no pack follows"}},
		"not a pack":                  {first(ok) + "0000" + "PICKLE IN A JAR", []string{"no pack follows"}},
		"push options without an end": {pkt(zero+" "+id+" "+ok+"\x00"+rawCaps+" push-options") + "0000" + pack, []string{"malformed packet length"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.hostile(t, c.body, c.want...)
			if strings.Contains(got, "\ufffd") {
				t.Errorf("a replacement character: %q", got)
			}
		})
	}
	w.wantRef("refs/heads/main", main)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.records {
		if r.Outcome != gitgw.Malformed {
			t.Errorf("record: %+v", r)
		}
	}
}

// G02: one trailing LF is git's own habit in other commands and is dropped; the
// rules see the name without it.
func TestG02(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	body := func(second string) string {
		return pkt(zero+" "+w.head("main")+" refs/heads/t6\x00"+rawCaps) + pkt(zero+" "+w.head("main")+" "+second+"\n") + "0000" + w.pack()
	}
	if got := readAll(t, w.post(body("refs/heads/t7"), nil)); !strings.Contains(got, "ok refs/heads/t7\n") {
		t.Errorf("%q", got)
	}
	w.wantRef("refs/heads/t7", w.head("main"))
	if got := readAll(t, w.post(body("refs/heads/main"), nil)); !strings.Contains(got, "ng refs/heads/main Control Center policy: push to main is denied (rule 3)") {
		t.Errorf("%q", got)
	}
}

// G10 and G11: heads without end are read to their limit, then thrown away as
// they come.
func TestG10(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	id := w.head("main")
	for name, c := range map[string]struct {
		n    int
		line func(int) string
		want string
	}{
		"G10 many commands": {200_000, func(i int) string { return fmt.Sprintf("refs/heads/many/branch-%07d", i) }, "more than 5000 refs in one push"},
		"G11 long names":    {3000, func(i int) string { return "refs/heads/" + strings.Repeat("x", 65000) + fmt.Sprint(i) }, "longer than 1024 bytes"},
		"many shallows":     {200_000, func(int) string { return "" }, "more than 10000 shallow lines"},
	} {
		t.Run(name, func(t *testing.T) {
			pr, pw := io.Pipe()
			go func() {
				// In large pieces: each has to change hands.
				out := bufio.NewWriterSize(pw, 64<<10)
				for i := range c.n {
					line := "shallow " + id + "\n"
					if ref := c.line(i); ref != "" {
						line = zero + " " + id + " " + ref
					}
					if i == 0 && c.line(0) != "" {
						line += "\x00" + rawCaps
					}
					if _, err := out.WriteString(pkt(line)); err != nil {
						return
					}
				}
				_, _ = out.WriteString("0000")
				_ = out.Flush()
				_ = pw.Close()
			}()
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"github.com/acme/app.git/git-receive-pack", pr)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			if got := readAll(t, resp); !strings.Contains(got, c.want) || !strings.HasSuffix(got, "0000") {
				t.Errorf("%.300q", got)
			}
			w.untouched()
		})
	}
}

// A gzip body may not inflate without end, neither in its head nor in its pack.
func TestGzipBomb(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	bomb := func(plain string) string {
		var body bytes.Buffer
		zw, _ := gzip.NewWriterLevel(&body, gzip.BestSpeed)
		_, _ = io.WriteString(zw, plain)
		_ = zw.Close()
		return body.String()
	}
	header := http.Header{"Content-Encoding": {"gzip"}}
	head := pkt(zero+" "+w.head("main")+" refs/heads/bomb\x00"+rawCaps+" push-options") + "0000" + strings.Repeat(pkt(strings.Repeat("a", 65000)), 90)
	got := readAll(t, w.post(bomb(head), header))
	if !strings.Contains(got, "the command list is larger than 4194304 bytes") || !strings.HasSuffix(got, "0000") {
		t.Errorf("head: %.200q", got)
	}
	w.untouched()
	// A real pack whose one blob is 24 MB of zeros, stored: 24 KB on the wire.
	if err := os.WriteFile(w.clone+"/zeros", make([]byte, 24<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	w.mustGit(w.clone, "config", "core.compression", "0")
	w.mustGit(w.clone, "add", "zeros")
	w.mustGit(w.clone, "commit", "-qm", "zeros")
	start := w.creation("refs/heads/bomb")
	got = readAll(t, w.post(bomb(start), header))
	if !strings.Contains(got, "ng refs/heads/bomb Control Center: malformed push: the gzip body inflates too far") || !strings.HasSuffix(got, "0000") {
		t.Errorf("pack: %.200q", got)
	}
	w.wantRef("refs/heads/bomb", "")
	for _, p := range w.hub.Pushes() {
		if p.Received > 64<<20 {
			t.Errorf("forge got %d bytes", p.Received)
		}
	}
	if got := readAll(t, w.post("0000", http.Header{"Content-Encoding": {"br"}})); !strings.Contains(got, "content encoding") {
		t.Errorf("%q", got)
	}
	if got := readAll(t, w.post("not gzip at all", header)); !strings.Contains(got, "malformed gzip body") {
		t.Errorf("%q", got)
	}
}

// C03: an empty pack after a deletion, as some clients send it, is not passed
// on.
func TestC03(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.git("push", "-q", "origin", "main:b1").want(t, 0)
	w.hub.ForgetRequests()
	empty := "PACK\x00\x00\x00\x02\x00\x00\x00\x00\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7\x5c\x82\x3c\xfd\x3e\xd3\x1e"
	got := readAll(t, w.post(pkt(w.head("main")+" "+zero+" refs/heads/b1\x00"+rawCaps)+"0000"+empty, nil))
	if !strings.Contains(got, "unpack ok\n") || !strings.Contains(got, "ok refs/heads/b1\n") {
		t.Errorf("%q", got)
	}
	w.wantRef("refs/heads/b1", "")
}

// D07 and D08: what a command claims of the old value is checked by the forge.
func TestD07(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	stale := w.head("main~2")
	before := w.refs("acme/app")["refs/heads/main"]
	got := readAll(t, w.post(pkt(stale+" "+w.head("main")+" refs/heads/main\x00"+rawCaps)+"0000"+w.pack(), nil))
	if !strings.Contains(got, "ng refs/heads/main ") {
		t.Errorf("%q", got)
	}
	w.wantRef("refs/heads/main", before)
	if r := w.record(); r.Outcome != gitgw.Failed || r.Refs[0].Result != "ng" {
		t.Errorf("record: %+v", r)
	}
}

func TestD08(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rules("push ** create"))
	before := w.refs("acme/app")["refs/heads/main"]
	got := readAll(t, w.post(w.creation("refs/heads/main"), nil))
	if !strings.Contains(got, "ng refs/heads/main ") {
		t.Errorf("%q", got)
	}
	w.wantRef("refs/heads/main", before)
}

// I06: the decision does not need the GET before it.
func TestI06(t *testing.T) {
	t.Parallel()
	w := newWorld(t, denyMain)
	if got := readAll(t, w.post(w.creation("refs/heads/main"), nil)); !strings.Contains(got, "ng refs/heads/main Control Center policy: push to main is denied (rule 3)\n") {
		t.Errorf("%q", got)
	}
	w.untouched()
}

// A client that sends eight bytes at a time is served like any other.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	conn, err := net.Dial("tcp", strings.Trim(strings.TrimPrefix(w.url, "http://"), "/"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	body := w.creation("refs/heads/slow")
	request := fmt.Sprintf("POST /github.com/acme/app.git/git-receive-pack HTTP/1.1\r\nHost: git.internal\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	for len(request) > 0 {
		n := min(8, len(request))
		if _, err := io.WriteString(conn, request[:n]); err != nil {
			t.Fatal(err)
		}
		request = request[n:]
		time.Sleep(100 * time.Microsecond)
	}
	got, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(got), "ok refs/heads/slow\n") {
		t.Errorf("%v: %q", err, got)
	}
	w.wantRef("refs/heads/slow", w.head("main"))
}

// A client that stops in the middle of its pack is given up after the stall
// limit; the forge gets no push and no token lives on.
func TestStalledClient(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		cut  func(string) int
	}{
		{"head", func(string) int { return 30 }},
		{"pack", func(body string) int { return len(body) - 40 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, allowAll, func(w *world) { w.gateway.Limits.Stall = 500 * time.Millisecond })
			conn := w.half(c.cut)
			defer func() { _ = conn.Close() }()
			started := time.Now()
			_, _ = io.ReadAll(conn)
			if took := time.Since(started); took > 10*time.Second {
				t.Errorf("took %s", took)
			}
			if r := w.waitRecord(); r.Outcome != gitgw.Aborted {
				t.Errorf("record: %+v", r)
			}
			w.wantRef("refs/heads/half", "")
		})
	}
}

// A client that dies in the middle of its pack.
func TestDeadClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	conn := w.half(func(body string) int { return len(body) - 40 })
	_ = conn.Close()
	if r := w.waitRecord(); r.Outcome != gitgw.Aborted || !r.ClientGone {
		t.Errorf("record: %+v", r)
	}
	w.wantRef("refs/heads/half", "")
}

// half sends a push up to a point and leaves the connection as it is.
func (w *world) half(cut func(string) int) net.Conn {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.Trim(strings.TrimPrefix(w.url, "http://"), "/"))
	if err != nil {
		w.t.Fatal(err)
	}
	body := w.creation("refs/heads/half")
	_, err = fmt.Fprintf(conn, "POST /github.com/acme/app.git/git-receive-pack HTTP/1.1\r\nHost: git.internal\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:cut(body)])
	if err != nil {
		w.t.Fatal(err)
	}
	return conn
}

// A client that leaves after its last byte does not undo the push, and the
// record says what became of it.
func TestClientLeavesAfterLastByte(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowAll)
	w.hub.SetFaults(fakegithub.Faults{SlowReport: 2 * time.Second})
	conn := w.half(func(body string) int { return len(body) })
	for deadline := time.Now().Add(20 * time.Second); w.refs("acme/app")["refs/heads/half"] == "" && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	_ = conn.Close()
	if r := w.waitRecord(); r.Outcome != gitgw.Accepted || !r.Revoked {
		t.Errorf("record: %+v", r)
	}
	w.wantRef("refs/heads/half", w.head("main"))
}
