package gitgw

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

const (
	zero40 = "0000000000000000000000000000000000000000"
	idA    = "1111111111111111111111111111111111111111"
	idB    = "2222222222222222222222222222222222222222"
	id256  = "3333333333333333333333333333333333333333333333333333333333333333"
)

func pkt(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }

func TestReadHead(t *testing.T) {
	caps := "\x00 report-status-v2 side-band-64k quiet object-format=sha1 agent=git/2.39.5"
	full := Capabilities{ReportStatusV2: true, SideBand64k: true, Quiet: true, ObjectFormat: "sha1", Agent: "git/2.39.5"}
	for _, c := range []struct {
		name string
		in   string
		want Head
	}{
		{"create", pkt(zero40+" "+idA+" refs/heads/x"+caps) + "0000", Head{
			Updates: []Update{{"refs/heads/x", zero40, idA, ActionCreate, 0}}, Capabilities: full,
		}},
		{"three actions", pkt(zero40+" "+idA+" refs/heads/x"+caps) + pkt(idA+" "+idB+" refs/heads/y") + pkt(idB+" "+zero40+" refs/tags/z\n") + "0000", Head{
			Updates: []Update{
				{"refs/heads/x", zero40, idA, ActionCreate, 0},
				{"refs/heads/y", idA, idB, ActionUpdate, 0},
				{"refs/tags/z", idB, zero40, ActionDelete, 0},
			}, Capabilities: full,
		}},
		{"shallow", pkt("shallow "+idA+"\n") + pkt("shallow "+idB) + pkt(idA+" "+idB+" refs/heads/y"+caps+"\n") + "0000", Head{
			Updates: []Update{{"refs/heads/y", idA, idB, ActionUpdate, 0}}, Capabilities: full, Shallow: []string{idA, idB},
		}},
		{"options", pkt(idA+" "+idB+" refs/heads/y\x00report-status push-options atomic") + "0000" + pkt("ci.skip\n") + pkt("a=b c") + "0000", Head{
			Updates:      []Update{{"refs/heads/y", idA, idB, ActionUpdate, 0}},
			Capabilities: Capabilities{ReportStatus: true, PushOptions: true, Atomic: true}, Options: []string{"ci.skip", "a=b c"},
		}},
		{"options without any", pkt(idA+" "+idB+" refs/heads/y\x00push-options") + "00000000", Head{
			Updates: []Update{{"refs/heads/y", idA, idB, ActionUpdate, 0}}, Capabilities: Capabilities{PushOptions: true},
		}},
		{"sha256", pkt(strings.Repeat("0", 64)+" "+id256+" refs/heads/x\x00object-format=sha256") + "0000", Head{
			Updates:      []Update{{"refs/heads/x", strings.Repeat("0", 64), id256, ActionCreate, 0}},
			Capabilities: Capabilities{ObjectFormat: "sha256"},
		}},
		{"probe", "0000", Head{}},
		{"shallow and nothing to push", pkt("shallow "+id256+"\n") + "0000", Head{Shallow: []string{id256}}},
		{"unknown capabilities are dropped", pkt(idA+" "+idB+" refs/heads/y\x00 report-status x-new x=y session-id=a-b agent=") + "0000", Head{
			Updates: []Update{{"refs/heads/y", idA, idB, ActionUpdate, 0}}, Capabilities: Capabilities{ReportStatus: true},
		}},
		{"non-ASCII name", pkt(idA+" "+idB+" refs/heads/größe-日本\x00 report-status") + "0000", Head{
			Updates: []Update{{"refs/heads/größe-日本", idA, idB, ActionUpdate, 0}}, Capabilities: Capabilities{ReportStatus: true},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Not a byte of the pack is read, whatever the pieces it comes in.
			for _, reader := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.DataErrReader} {
				in := reader(strings.NewReader(c.in + "PACK…"))
				got, err := ReadHead(in)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(*got, c.want) {
					t.Errorf("got  %+v\nwant %+v", *got, c.want)
				}
				if rest, _ := io.ReadAll(in); string(rest) != "PACK…" {
					t.Errorf("left %q", rest)
				}
				roundTrip(t, got)
			}
		})
	}
}

// roundTrip holds that what the forge reads is what was judged.
func roundTrip(t interface{ Fatalf(string, ...any) }, head *Head) {
	var buf bytes.Buffer
	if err := head.Encode(&buf); err != nil {
		t.Fatalf("encode: %v", err)
	}
	again, err := ReadHead(&buf)
	if err != nil {
		t.Fatalf("read what was encoded: %v", err)
	}
	if !reflect.DeepEqual(again, head) || buf.Len() != 0 {
		t.Fatalf("encoded %+v, read %+v, left %d", head, again, buf.Len())
	}
}

func TestReadHeadErrors(t *testing.T) {
	caps := "\x00 report-status side-band-64k"
	first := pkt(zero40 + " " + idA + " refs/heads/ok" + caps)
	for _, c := range []struct {
		name, in, reason string
		refs             string // reported on, joined
	}{
		{"nothing", "", "the request ends before its flush", ""},
		{"half a length", "00", "malformed packet length", ""},
		{"half a packet", "0099abc", "the request ends before its flush", ""},
		{"no flush", first, "the request ends before its flush", "refs/heads/ok"},
		{"length 0003", first + "0003", "malformed packet length", "refs/heads/ok"},
		{"length fff5", first + "fff5", "malformed packet length", "refs/heads/ok"},
		{"NUL in a later command", first + pkt(idA+" "+idB+" refs/heads/main\x00x") + "0000", "command 2: a NUL byte after the first command", "refs/heads/ok"},
		{"NUL in the capabilities", pkt(zero40+" "+idA+" refs/heads/ok\x00a\x00b") + "0000", "control characters among the capabilities", "refs/heads/ok"},
		{"LF in the capabilities", pkt(zero40+" "+idA+" refs/heads/ok\x00a\nb") + "0000", "control characters among the capabilities", "refs/heads/ok"},
		{"no capabilities", pkt(zero40+" "+idA+" refs/heads/ok") + "0000", "the first command carries no capabilities", "refs/heads/ok"},
		{"unknown hash", pkt(zero40+" "+idA+" refs/heads/ok\x00object-format=md5") + "0000", `unknown object-format "md5"`, "refs/heads/ok"},
		{"two hashes", pkt(zero40+" "+idA+" refs/heads/ok\x00object-format=sha1 object-format=sha256") + "0000", "two object-formats", "refs/heads/ok"},
		{"two LFs", first + pkt(idA+" "+idB+" refs/heads/b\n\n") + "0000", "command 2: ref \"refs/heads/b\\n\" holds a space", "refs/heads/ok"},
		{"space in a name", first + pkt(idA+" "+idB+" refs/heads/a b") + "0000", "command 2: ref", "refs/heads/ok"},
		{"no-break space", first + pkt(idA+" "+idB+" refs/heads/a\u00a0b") + "0000", "invisible character", "refs/heads/ok refs/heads/a\u00a0b"},
		{"upper case", pkt(zero40+" "+strings.Repeat("A", 40)+" refs/heads/ok"+caps) + "0000", "want lower-case hex", "refs/heads/ok"},
		{"short id", pkt(zero40+" "+idA[1:]+" refs/heads/ok"+caps) + "0000", "malformed ids", "refs/heads/ok"},
		{"mixed ids", pkt(zero40+" "+id256+" refs/heads/ok"+caps) + "0000", "do not fit object-format sha1", "refs/heads/ok"},
		{"long ids without a format", pkt(id256+" "+id256+" refs/heads/ok"+caps) + "0000", "do not fit object-format sha1", "refs/heads/ok"},
		{"mixed shallow", pkt("shallow "+id256) + first + "0000", "shallow id", "refs/heads/ok"},
		{"nothing to nothing", pkt(zero40+" "+zero40+" refs/heads/ok"+caps) + "0000", "neither an old nor a new id", "refs/heads/ok"},
		{"twice", first + pkt(idA+" "+idB+" refs/heads/ok") + "0000", "named twice", "refs/heads/ok"},
		{"certificate", pkt("push-cert\x00report-status") + "0000", "signed pushes are not accepted here", ""},
		{"late shallow", first + pkt("shallow "+idA) + "0000", "a shallow line after the commands", "refs/heads/ok"},
		{"ERR", first + pkt("ERR x") + "0000", "an ERR line where commands belong", "refs/heads/ok"},
		{"long name", first + pkt(idA+" "+idB+" refs/heads/"+long(2000)) + "0000", "longer than 1024 bytes", "refs/heads/ok"},
		{"option with ESC", pkt(idA+" "+idB+" refs/heads/ok\x00push-options") + "0000" + pkt("\x1b[m") + "0000", "malformed push option", "refs/heads/ok"},
		{"empty option", pkt(idA+" "+idB+" refs/heads/ok\x00push-options") + "0000" + pkt("\n") + "0000", "malformed push option", "refs/heads/ok"},
		{"options without flush", pkt(idA+" "+idB+" refs/heads/ok\x00push-options") + "0000" + pkt("a"), "the request ends before its flush", "refs/heads/ok"},
	} {
		t.Run(c.name, func(t *testing.T) {
			head, err := ReadHead(strings.NewReader(c.in))
			var bad *HeadError
			if !errors.As(err, &bad) || head != nil {
				t.Fatalf("%v, %v; want a HeadError", head, err)
			}
			if !strings.Contains(bad.Reason, c.reason) {
				t.Errorf("reason %q, want %q", bad.Reason, c.reason)
			}
			if got := strings.Join(bad.Refs, " "); got != c.refs {
				t.Errorf("reports on %q, want %q", got, c.refs)
			}
			if bad.Head == nil {
				t.Error("no partial head")
			}
		})
	}
}

// The capabilities are known even when the first command is bad, so that the
// refusal has the right shape.
func TestHeadErrorKeepsCapabilities(t *testing.T) {
	_, err := ReadHead(strings.NewReader(pkt(zero40+" "+idA+" HEAD\x00 report-status side-band-64k agent=x") + "0000"))
	var bad *HeadError
	if !errors.As(err, &bad) || !bad.Head.Capabilities.SideBand64k || !bad.Head.Capabilities.ReportStatus || bad.Refs[0] != "HEAD" {
		t.Errorf("%+v", err)
	}
}

// A dead connection is not malformed input.
func TestReadHeadReaderError(t *testing.T) {
	broken := errors.New("connection reset")
	in := io.MultiReader(strings.NewReader(pkt(zero40+" "+idA+" refs/heads/ok\x00 report-status")+"00"), iotest.ErrReader(broken))
	_, err := ReadHead(in)
	var bad *HeadError
	if !errors.Is(err, broken) || errors.As(err, &bad) {
		t.Errorf("%v", err)
	}
}

func TestHeadLimits(t *testing.T) {
	limits := Limits{HeadBytes: 2000, Commands: 3, ShallowLines: 2, PushOptions: 2}.withDefaults()
	command := func(i int) string {
		caps := ""
		if i == 0 {
			caps = "\x00 push-options"
		}
		return pkt(zero40 + " " + idA + " refs/heads/" + fmt.Sprint(i) + caps)
	}
	many := func(n int) (s string) {
		for i := range n {
			s += command(i)
		}
		return s
	}
	for name, c := range map[string]struct{ in, want string }{
		"commands at the limit":   {many(3) + "00000000", ""},
		"commands":                {many(4) + "00000000", "more than 3 refs in one push"},
		"shallow at the limit":    {strings.Repeat(pkt("shallow "+idA), 2) + many(1) + "00000000", ""},
		"shallow":                 {strings.Repeat(pkt("shallow "+idA), 3) + many(1) + "00000000", "more than 2 shallow lines"},
		"options at the limit":    {many(1) + "0000" + pkt("a") + pkt("b") + "0000", ""},
		"options":                 {many(1) + "0000" + pkt("a") + pkt("b") + pkt("c") + "0000", "more than 2 push options"},
		"bytes":                   {many(1) + "0000" + pkt(long(1500)) + pkt(long(1000)) + "0000", "larger than 2000 bytes"},
		"bytes exactly":           {many(1) + "0000" + pkt(long(2000-len(many(1))-4-4-4)) + "0000", ""},
		"one byte more":           {many(1) + "0000" + pkt(long(2001-len(many(1))-4-4-4)) + "0000", "larger than 2000 bytes"},
		"a limit is no end":       {many(1) + "0000" + pkt(long(1900)) + "0000", "larger than 2000 bytes"},
		"bytes before the parser": {pkt(long(3000)), "larger than 2000 bytes"},
	} {
		_, err := readHead(strings.NewReader(c.in), limits)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// FuzzReadHead holds that whatever is accepted is well formed by the rules that
// the rule matcher relies on, and survives its own encoding.
func FuzzReadHead(f *testing.F) {
	seeds, _ := filepath.Glob("testdata/heads/*")
	if len(seeds) == 0 {
		f.Fatal("no recorded pushes in testdata/heads")
	}
	for _, name := range seeds {
		seed, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	caps := "\x00 report-status side-band-64k push-options"
	for _, seed := range []string{
		"0000", pkt("shallow "+idA+"\n") + "0000", pkt(zero40+" "+idA+" refs/heads/x"+caps) + pkt(idA+" "+idB+" refs/heads/main\x00x") + "0000",
		pkt(zero40+" "+idA+" refs/heads/x"+caps) + "0000" + pkt("opt") + "0000PACK", pkt("push-cert\x00x") + "0000",
		pkt(zero40+"  "+idA+" refs/heads/x"+caps) + "0000", pkt(zero40+" "+idA+" refs/heads/x\u00a0y"+caps) + "0000", "0004", "fff5", "PACK",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		head, err := ReadHead(bytes.NewReader(in))
		if err != nil {
			var bad *HeadError
			if !errors.As(err, &bad) {
				t.Fatalf("not a HeadError: %v", err)
			}
			for _, ref := range bad.Refs {
				if strings.ContainsAny(ref, " \n\x00\x1b\r") {
					t.Fatalf("unfit to report: %q", ref)
				}
			}
			return
		}
		seen := map[string]bool{}
		for _, u := range head.Updates {
			if seen[u.Ref] || checkRef(u.Ref) != nil || !validID(u.Old) || !validID(u.New) || len(u.Old) != len(u.New) {
				t.Fatalf("accepted %+v", u)
			}
			seen[u.Ref] = true
		}
		roundTrip(t, head)
	})
}

// Whatever head is made can be encoded and read.
func TestHeadRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hexID := rapid.StringMatching(`[1-9a-f][0-9a-f]{39}`)
		h := &Head{Capabilities: Capabilities{
			ReportStatus: rapid.Bool().Draw(t, "rs"), ReportStatusV2: rapid.Bool().Draw(t, "v2"), SideBand64k: rapid.Bool().Draw(t, "sb"),
			Atomic: rapid.Bool().Draw(t, "atomic"), PushOptions: rapid.Bool().Draw(t, "po"), Agent: rapid.StringMatching(`[!-~]{0,20}`).Draw(t, "agent"),
		}}
		for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9]{1,8}(/[a-zé]{1,4}){0,2}`), 1, 20, func(s string) string { return s }).Draw(t, "names") {
			u := Update{Ref: "refs/heads/" + name, Old: zero40, New: hexID.Draw(t, "new"), Action: ActionCreate}
			if rapid.Bool().Draw(t, "update") {
				u.Old, u.Action = hexID.Draw(t, "old"), ActionUpdate
			}
			h.Updates = append(h.Updates, u)
		}
		if rapid.Bool().Draw(t, "shallow") {
			h.Shallow = rapid.SliceOfN(hexID, 1, 5).Draw(t, "boundaries")
		}
		if h.Capabilities.PushOptions && rapid.Bool().Draw(t, "options") {
			h.Options = rapid.SliceOfN(rapid.StringMatching(`[ -~é]{1,20}`), 1, 4).Draw(t, "values")
		}
		roundTrip(t, h)
	})
}

func TestDeletesOnly(t *testing.T) {
	create, gone := Update{Action: ActionCreate}, Update{Action: ActionDelete}
	for _, c := range []struct {
		updates []Update
		want    bool
	}{{nil, false}, {[]Update{gone}, true}, {[]Update{gone, gone}, true}, {[]Update{gone, create}, false}} {
		if got := (&Head{Updates: c.updates}).DeletesOnly(); got != c.want {
			t.Errorf("%v: %v", c.updates, got)
		}
	}
}
