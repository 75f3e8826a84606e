package gitgw

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"pgregory.net/rapid"
)

// newTestReporter writes into a recorder.
func newTestReporter(c Capabilities) (*reporter, *httptest.ResponseRecorder) {
	rec := httptest.NewRecorder()
	r := newReporter(rec, http.NewResponseController(rec), time.Second)
	r.shape(c)
	return r, rec
}

func TestReportBytes(t *testing.T) {
	const ng = "ng refs/heads/main Control Center policy: no"
	inner := pkt("unpack ok\n") + pkt(ng+"\n") + "0000"
	for _, c := range []struct {
		name string
		caps Capabilities
		want string
	}{
		{"side-band-64k", Capabilities{ReportStatusV2: true, SideBand64k: true}, pkt("\x02hint\n") + pkt("\x01"+inner) + "0000"},
		{"side-band", Capabilities{ReportStatus: true, SideBand: true}, pkt("\x02hint\n") + pkt("\x01"+inner) + "0000"},
		{"none", Capabilities{ReportStatus: true}, inner},
		{"no report", Capabilities{SideBand64k: true}, pkt("\x02hint\n") + "0000"},
		{"nothing", Capabilities{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, rec := newTestReporter(c.caps)
			r.progress("hint\n")
			r.line("unpack ok")
			r.line(ng)
			r.end()
			if got := rec.Body.String(); got != c.want {
				t.Errorf("%q\nwant %q", got, c.want)
			}
			if rec.Code != 200 || rec.Header().Get("Content-Type") != "application/x-git-receive-pack-result" || !r.done {
				t.Errorf("%d %v", rec.Code, rec.Header())
			}
		})
	}
}

// split reads a multiplexed answer: what each band held, and the sizes of its
// packets. It is written apart from the code it checks.
func split(t interface{ Fatalf(string, ...any) }, b []byte) (bands [4][]byte, largest int) {
	for {
		if len(b) < 4 {
			t.Fatalf("no outer flush: %q", b)
		}
		var n int
		for _, c := range b[:4] {
			n = n*16 + strings.IndexByte("0123456789abcdef", c)
		}
		if n == 0 {
			if len(b) > 4 {
				t.Fatalf("after the flush: %q", b[4:])
			}
			return bands, largest
		}
		if n < 5 || n > len(b) || b[4] < 1 || b[4] > 3 {
			t.Fatalf("bad packet %q", b[:min(len(b), 20)])
		}
		bands[b[4]] = append(bands[b[4]], b[5:n]...)
		largest = max(largest, n)
		b = b[n:]
	}
}

// Reports of any size keep to git's packet sizes, 1000 and 65520 bytes in all,
// and come out as they went in.
func TestReportSplits(t *testing.T) {
	for _, c := range []struct {
		caps  Capabilities
		limit int
	}{
		{Capabilities{ReportStatus: true, SideBand: true}, 1000},
		{Capabilities{ReportStatus: true, SideBand64k: true}, 65520},
	} {
		r, rec := newTestReporter(c.caps)
		var lines []string
		for i := range 3000 {
			lines = append(lines, "ng refs/heads/many/"+long(60+i%50)+" no")
			r.line(lines[i])
			if i%1000 == 0 {
				r.progress(strings.Repeat("p", 70000) + "\n")
			}
		}
		r.end()
		bands, largest := split(t, rec.Body.Bytes())
		if largest != c.limit {
			t.Errorf("largest packet is %d bytes, want %d", largest, c.limit)
		}
		if got := linesOf(t, bands[1]); !reflect.DeepEqual(got, lines) {
			t.Errorf("%d lines came out, want %d", len(got), len(lines))
		}
		if len(bands[2]) != 3*70001 {
			t.Errorf("%d bytes of progress", len(bands[2]))
		}
	}
}

// linesOf reads a report's lines.
func linesOf(t interface{ Fatalf(string, ...any) }, report []byte) (lines []string) {
	scan := pktline.NewScanner(bytes.NewReader(report))
	for scan.Scan() {
		if len(scan.Bytes()) == 0 {
			return lines
		}
		lines = append(lines, strings.TrimSuffix(string(scan.Bytes()), "\n"))
	}
	t.Fatalf("no inner flush: %v", scan.Err())
	return nil
}

// FuzzReport holds that any lines and progress, in any order and shape, come
// out as they went in: through our encoder, through our decoder and out again.
func FuzzReport(f *testing.F) {
	f.Add("refs/heads/main", "no such thing", "Counting objects\n", byte(0))
	f.Add("refs/heads/a", "x", "50%\r100%\ndone", byte(1))
	f.Add("refs/heads/ä", "", "", byte(2))
	f.Add("r", "ghs_0123456789abcdefghij", "token ghs_0123456789abcdefghij\n", byte(3))
	f.Fuzz(func(t *testing.T, ref, reason, progress string, shape byte) {
		if !echoable(ref) || strings.ContainsAny(reason, "\n\x00") || len(reason) > 1000 || len(progress) > 100_000 {
			return
		}
		caps := Capabilities{ReportStatus: true, SideBand64k: shape&1 == 0, SideBand: shape&1 == 1}
		up, answer := newTestReporter(caps)
		up.progress(progress)
		up.line("unpack ok")
		up.line("ng " + ref + " " + reason)
		up.end()

		down, out := newTestReporter(Capabilities{ReportStatus: true, SideBand64k: shape&2 == 0})
		refs := []PushedRef{{RefVerdict: RefVerdict{Ref: ref}}}
		y := newRelay(down, &redactor{}, iotest.HalfReader(answer.Body), true, false, refs)
		if err := y.run(); err != nil {
			t.Fatalf("relay: %v", err)
		}
		down.end()
		report := out.Body.Bytes()
		if shape&2 == 0 {
			bands, _ := split(t, report)
			if want := (&redactor{}).text(progress); tokenShapes.MatchString(string(bands[2])) || !tokenShapes.MatchString(progress) && string(bands[2]) != want {
				t.Fatalf("progress %q, want %q", bands[2], want)
			}
			report = bands[1]
		}
		lines := linesOf(t, report)
		want := strings.TrimSuffix("ng "+ref+" "+(&redactor{}).text(reason), "\n")
		if len(lines) != 2 || lines[0] != "unpack ok" || !tokenShapes.MatchString(ref) && lines[1] != want {
			t.Fatalf("lines %q, want %q", lines, want)
		}
		if refs[0].Result != "ng" {
			t.Fatalf("noted %+v", refs[0])
		}
	})
}

// relayed runs an answer of a forge through a relay to a client that reads
// side-band-64k and version 2.
func relayed(t *testing.T, answer io.Reader, side bool, refs ...string) (out string, noted []PushedRef, err error) {
	t.Helper()
	rep, rec := newTestReporter(Capabilities{ReportStatusV2: true, SideBand64k: true})
	for _, ref := range refs {
		noted = append(noted, PushedRef{RefVerdict: RefVerdict{Ref: ref}})
	}
	red := &redactor{}
	red.know(NewToken("secret-of-the-push", time.Time{}))
	y := newRelay(rep, red, answer, side, true, noted)
	if err = y.run(); err == nil {
		rep.end()
	}
	return rec.Body.String(), noted, err
}

func TestRelay(t *testing.T) {
	inner := pkt("unpack ok\n") + pkt("ok refs/heads/a\n") + pkt("option forced-update\n") + pkt("ng refs/heads/b pre-receive hook declined\n") + "0000"
	for _, c := range []struct {
		name, answer string
		side         bool
	}{
		{"one packet", pkt("\x01"+inner) + "0000", true},
		{"cut inside a line", pkt("\x01"+inner[:20]) + pkt("\x02remote\n") + pkt("\x01"+inner[20:]) + "0000", true},
		{"keep-alives", pkt("\x01") + pkt("\x01"+inner) + pkt("\x01") + "0000", true},
		{"bare", inner, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, reader := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.DataErrReader} {
				out, noted, err := relayed(t, reader(strings.NewReader(c.answer)), c.side, "refs/heads/a", "refs/heads/b")
				if err != nil {
					t.Fatal(err)
				}
				bands, _ := split(t, []byte(out))
				if string(bands[1]) != inner {
					t.Errorf("report %q, want %q", bands[1], inner)
				}
				if noted[0].Result != "ok" || noted[1].Result != "ng" || noted[1].Message != "pre-receive hook declined" {
					t.Errorf("noted %+v", noted)
				}
			}
		})
	}
}

// Progress after the report, as post-receive hooks make it, is passed on.
func TestRelayTailProgress(t *testing.T) {
	inner := pkt("unpack ok\n") + pkt("ok refs/heads/a\n") + "0000"
	out, _, err := relayed(t, strings.NewReader(pkt("\x02before\n")+pkt("\x01"+inner)+pkt("\x02after\n")+"0000"), true, "refs/heads/a")
	if err != nil {
		t.Fatal(err)
	}
	if bands, _ := split(t, []byte(out)); string(bands[2]) != "before\nafter\n" || string(bands[1]) != inner {
		t.Errorf("%q", out)
	}
}

func TestRelayBroken(t *testing.T) {
	good := pkt("unpack ok\n") + pkt("ok refs/heads/a\n")
	for name, answer := range map[string]string{
		"nothing":                 "",
		"no inner flush":          pkt("\x01"+good) + "0000",
		"no outer flush":          pkt("\x01" + good + "0000"),
		"in mid packet":           pkt("\x01" + good + "0000")[:20],
		"flush only":              "0000",
		"bad length":              "zzzz",
		"unknown band":            pkt("\x07x") + "0000",
		"fatal":                   pkt("\x02hi\n") + pkt("\x03fatal: no\n"),
		"no unpack line":          pkt("\x01"+pkt("ok refs/heads/a\n")+"0000") + "0000",
		"garbage line":            pkt("\x01"+pkt("unpack ok\n")+pkt("hello\n")+"0000") + "0000",
		"two lines in one packet": pkt("\x01"+pkt("unpack ok\n")+pkt("ok refs/heads/a\nng refs/heads/b x\n")+"0000") + "0000",
		"a web page":              "<html>",
	} {
		if out, _, err := relayed(t, strings.NewReader(answer), true, "refs/heads/a"); err == nil {
			t.Errorf("%s: no error; wrote %q", name, out)
		}
	}
	broken := errors.New("reset")
	a := &answerReader{r: io.MultiReader(strings.NewReader(pkt("\x01"+good)), iotest.ErrReader(broken)), touch: func() {}}
	if _, _, err := relayed(t, a, true, "refs/heads/a"); err == nil || !errors.Is(a.cut, broken) {
		t.Errorf("%v, cut %v", err, a.cut)
	}
}

// A forge that echoes a credential does not get it past the relay, not even in
// two packets, in the report or in an unknown ref.
func TestRelayRedacts(t *testing.T) {
	const shaped = "ghs_abcdefghijklmnopqrstuvwxyz0123456789"
	inner := pkt("unpack ok\n") + pkt("ng refs/heads/a bad token "+shaped+"\n") + pkt("ok refs/heads/secret-of-the-push\n") + "0000"
	answer := pkt("\x02using secret-of-") + pkt("\x02the-push and gh") + pkt("\x02s_abcdefghijklmnop") + pkt("\x01") + pkt("\x02qrstuvwxyz\n") + pkt("\x01"+inner) + "0000"
	out, noted, err := relayed(t, strings.NewReader(answer), true, "refs/heads/a")
	if err != nil {
		t.Fatal(err)
	}
	bands, _ := split(t, []byte(out))
	if got := string(bands[2]); got != "using [redacted] and [redacted]\n" {
		t.Errorf("progress %q", got)
	}
	if strings.Contains(out, "secret-of-the-push") || strings.Contains(out, shaped) || noted[0].Message != "bad token [redacted]" {
		t.Errorf("%q, %+v", out, noted)
	}
}

// A version 1 client gets no option lines.
func TestRelayOptions(t *testing.T) {
	rep, rec := newTestReporter(Capabilities{ReportStatus: true})
	y := newRelay(rep, &redactor{}, strings.NewReader(pkt("unpack ok\n")+pkt("ok r\n")+pkt("option refname x\n")+"0000"), false, false, []PushedRef{{RefVerdict: RefVerdict{Ref: "r"}}})
	if err := y.run(); err != nil {
		t.Fatal(err)
	}
	rep.end()
	if got := rec.Body.String(); got != pkt("unpack ok\n")+pkt("ok r\n")+"0000" {
		t.Errorf("%q", got)
	}
}

// However progress is cut into packets, it comes out whole and in order.
func TestProgressIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`([a-z ]{0,30}[\r\n])*[a-z]{0,10}`).Draw(t, "text")
		var answer strings.Builder
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			answer.WriteString(pkt("\x02" + rest[:n]))
			rest = rest[n:]
		}
		answer.WriteString(pkt("\x01"+pkt("unpack ok\n")+"0000") + "0000")
		rep, rec := newTestReporter(Capabilities{ReportStatus: true, SideBand64k: true})
		y := newRelay(rep, &redactor{}, strings.NewReader(answer.String()), true, false, nil)
		if err := y.run(); err != nil {
			t.Fatalf("%v", err)
		}
		rep.end()
		if bands, _ := split(t, rec.Body.Bytes()); string(bands[2]) != text {
			t.Fatalf("%q, want %q", bands[2], text)
		}
	})
}

// failingWriter is a client that is gone.
type failingWriter struct{ header http.Header }

func (f failingWriter) Header() http.Header       { return f.header }
func (f failingWriter) WriteHeader(int)           {}
func (f failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestReporterLosesClient(t *testing.T) {
	w := failingWriter{http.Header{}}
	r := newReporter(w, http.NewResponseController(w), time.Second)
	r.shape(Capabilities{ReportStatus: true, SideBand64k: true})
	r.progress("waiting\n")
	if err := r.flush(); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("flush: %v", err)
	}
	r.alive()
	r.line("unpack ok")
	r.end()
	if !errors.Is(r.lost, io.ErrClosedPipe) {
		t.Errorf("lost: %v", r.lost)
	}
}

func TestReporterSaysNothingBeforeItBegins(t *testing.T) {
	r, rec := newTestReporter(Capabilities{ReportStatus: true, SideBand64k: true})
	if err := r.flush(); err != nil || rec.Flushed || rec.Body.Len() != 0 {
		t.Errorf("%v %v", err, rec)
	}
}
