package sandbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMessagesComeBack(t *testing.T) {
	argv, err := pack([]string{"sh", "-c", "", "a\xff\nb"})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []message{
		{Type: msgListeners},
		{Type: msgStart, Argv: argv, Dir: []byte("/w\xfe"), Verify: []expect{{Path: []byte("/w"), Dev: 1 << 63, Ino: 1<<64 - 1, ReadOnly: true}}},
		{Type: msgSignal, Signal: 15, Group: true},
		{Type: msgFailed, Code: 127, Reason: ReasonChanged, Detail: "x"},
	} {
		data, err := encode(&m, maxStart)
		if err != nil {
			t.Fatal(err)
		}
		// Byte by byte, as a stream may deliver it.
		r := io.MultiReader(iotestOneByte{bytes.NewReader(data)}, strings.NewReader("next"))
		got, err := decode(r, maxStart)
		if err != nil || !reflect.DeepEqual(*got, m) {
			t.Errorf("got %+v, %v; want %+v", got, err, m)
		}
		if rest, _ := io.ReadAll(r); string(rest) != "next" {
			t.Errorf("decode took what belongs to the next message; left %q", rest)
		}
	}
}

type iotestOneByte struct{ r io.Reader }

func (r iotestOneByte) Read(b []byte) (int, error) { return r.r.Read(b[:min(1, len(b))]) }

func TestDecodeRefuses(t *testing.T) {
	frame := func(body string) string {
		return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body
	}
	for _, tc := range []struct{ name, data string }{
		{"half a length", "\x00\x00"},
		{"nothing behind the length", "\x00\x00\x00\x05"},
		{"half a body", frame(`{"type":"exit"}`)[:10]},
		{"an empty body", "\x00\x00\x00\x00"},
		{"too much", "\x00\x01\x00\x01" + strings.Repeat("x", 70000)},
		{"a length of 4 GiB", "\xff\xff\xff\xff{}"},
		{"no JSON", frame("exit")},
		{"another kind of value", frame(`"exit"`)},
		{"a number that is text", frame(`{"code":"x"}`)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if m, err := decode(strings.NewReader(tc.data), maxInside); err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %+v, %v; want an error that is not a clean end", m, err)
			}
		})
	}
	if _, err := decode(strings.NewReader(""), maxInside); !errors.Is(err, io.EOF) {
		t.Errorf("a clean end gives %v", err)
	}
	if _, err := encode(&message{Type: msgFailed, Detail: strings.Repeat("x", maxInside)}, maxInside); err == nil {
		t.Error("a message longer than its limit was encoded")
	}
}

func TestPack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOf(rapid.Custom(func(t *rapid.T) string {
			return string(rapid.SliceOfN(rapid.ByteRange(1, 255), 0, 8).Draw(t, "text"))
		})).Draw(t, "texts")
		data, err := pack(texts)
		if err != nil {
			t.Fatal(err)
		}
		got, err := unpack(data)
		if err != nil || !slices.Equal(got, texts) {
			t.Fatalf("got %q, %v; want %q", got, err, texts)
		}
	})
	if _, err := pack([]string{"a", "b\x00c"}); err == nil {
		t.Error("a zero byte was packed")
	}
	if got, err := unpack([]byte("a")); err == nil {
		t.Errorf("a text without an end was taken: %q", got)
	}
}

// The launcher reads this from inside the sandbox.
func FuzzDecode(f *testing.F) {
	for _, m := range []message{{Type: msgListeners}, {Type: msgReady}, {Type: msgExit, Code: 7}, {Type: msgFailed, Code: 126, Detail: "x"}} {
		data, err := encode(&m, maxInside)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		m, err := decode(r, maxInside)
		if err != nil {
			return
		}
		again, err := encode(m, maxStart)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decode(bytes.NewReader(again), maxStart); err != nil || !reflect.DeepEqual(back, m) {
			t.Fatalf("%+v came back as %+v, %v", m, back, err)
		}
		_, _ = unpack(m.Argv)
	})
}

// What is written by hand is what the codec writes.
func TestPlainMessages(t *testing.T) {
	var want []byte
	types := []string{msgListeners, msgReady, msgStarted}
	for _, kind := range types {
		data, err := encode(&message{Type: kind}, maxInside)
		must(t, err)
		want = append(want, data...)
	}
	if got := plain(types...); !bytes.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
