package lease

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func contextWith(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}

func logTo(w io.Writer, a Answer, r Resume) {
	log := slog.New(slog.NewJSONHandler(w, nil))
	log.LogAttrs(context.Background(), slog.LevelInfo, "x", slog.Any("answer", a), slog.Any("resume", r))
}

func TestDecodeSpec(t *testing.T) {
	long := strings.Repeat("a", 65)
	for _, c := range []struct{ name, in, say string }{
		{"smallest", `{"id":"a"}`, ""},
		{"all fields", `{"id":"A_z-9","policy":"agent.v2","networkEnabled":true,"egressAllowlist":["x.example 443"],"repository":"github.com/acme/app.js","linkedRepositories":["ghe.example/a/b"],"agent":"Claude Code","workspace":"büro","listen":{"network":"tcp","http":"127.0.0.1:20001","socks":"127.0.0.1:20002"}}`, ""},
		{"unix", `{"id":"a","listen":{"network":"unix","http":"/run/x/h.sock"}}`, ""},
		{"space around", " {\"id\":\"a\"}\n", ""},

		{"nothing", ``, "incomplete"},
		{"null", `null`, "not an object"},
		{"array", `[{"id":"a"}]`, "not an object"},
		{"text", `"a"`, "not an object"},
		{"half", `{"id":"a"`, "incomplete"},
		{"two values", `{"id":"a"}{"id":"b"}`, "more than one"},
		{"trailing rubbish", `{"id":"a"} x`, "more than one"},
		{"unknown field", `{"id":"a","egress":[]}`, `unknown field "egress"`},
		{"unknown field below", `{"id":"a","listen":{"network":"tcp","port":1}}`, `unknown field "port"`},
		{"known field in the wrong place", `{"id":"a","http":"127.0.0.1:1"}`, `unknown field "http"`},
		{"other case", `{"ID":"a"}`, `unknown field "ID"`},
		{"twice", `{"id":"a","id":"a"}`, `"id" is given twice`},
		{"escaped twice", `{"id":"a","\u0069d":"b"}`, `"id" is given twice`},
		{"null field", `{"id":"a","networkEnabled":null}`, `"networkEnabled" is null`},
		{"null element", `{"id":"a","egressAllowlist":[null]}`, `"egressAllowlist" is null`},
		{"wrong type", `{"id":"a","networkEnabled":"false"}`, "networkEnabled"},
		{"number as id", `{"id":1}`, "id"},
		{"broken UTF-8", "{\"id\":\"a\",\"agent\":\"\xff\"}", "UTF-8"},
		{"deep", `{"id":"a","listen":` + strings.Repeat(`[`, 100) + strings.Repeat(`]`, 100) + `}`, "deeper"},

		{"no id", `{}`, "session id"},
		{"empty id", `{"id":""}`, "session id"},
		{"long id", `{"id":"` + long + `"}`, "session id"},
		{"slash in id", `{"id":"a/b"}`, "session id"},
		{"dot in id", `{"id":".."}`, "session id"},
		{"newline in id", `{"id":"a\nb"}`, "session id"},
		{"NUL in id", `{"id":"a\u0000"}`, "session id"},
		{"umlaut in id", `{"id":"ä"}`, "session id"},
		{"bad policy", `{"id":"a","policy":"a b"}`, "policy"},
		{"empty rule", `{"id":"a","egressAllowlist":["  "]}`, "egressAllowlist[0]"},
		{"newline in rule", `{"id":"a","egressAllowlist":["a.example\nb.example"]}`, "control"},
		{"long rule", `{"id":"a","egressAllowlist":["` + strings.Repeat("a", 513) + `"]}`, "513 bytes"},
		{"repository of two parts", `{"id":"a","repository":"acme/app"}`, "host/owner/name"},
		{"repository that climbs", `{"id":"a","repository":"github.com/../app"}`, "host/owner/name"},
		{"repository with scheme", `{"id":"a","repository":"https://github.com/acme/app"}`, "host/owner/name"},
		{"linked repository", `{"id":"a","linkedRepositories":["github.com/a/b","x"]}`, "linkedRepositories[1]"},
		{"escape in agent", `{"id":"a","agent":"\u001b[31m"}`, "control"},
		{"listen without network", `{"id":"a","listen":{}}`, "listen.network"},
		{"listen on UDP", `{"id":"a","listen":{"network":"udp"}}`, "listen.network"},
		{"listen on every address", `{"id":"a","listen":{"network":"tcp","http":"0.0.0.0:20001"}}`, "listen.http"},
		{"listen on 127.0.0.2", `{"id":"a","listen":{"network":"tcp","http":"127.0.0.2:20001"}}`, "listen.http"},
		{"listen on a name", `{"id":"a","listen":{"network":"tcp","socks":"localhost:20001"}}`, "listen.socks"},
		{"port 0", `{"id":"a","listen":{"network":"tcp","http":"127.0.0.1:0"}}`, "listen.http"},
		{"port with zero", `{"id":"a","listen":{"network":"tcp","http":"127.0.0.1:020001"}}`, "listen.http"},
		{"mapped address", `{"id":"a","listen":{"network":"tcp","http":"[::ffff:127.0.0.1]:20001"}}`, "listen.http"},
		{"one port for both", `{"id":"a","listen":{"network":"tcp","http":"127.0.0.1:20001","socks":"127.0.0.1:20001"}}`, "both name"},
		{"relative path", `{"id":"a","listen":{"network":"unix","http":"h.sock"}}`, "listen.http"},
		{"climbing path", `{"id":"a","listen":{"network":"unix","http":"/run/../h.sock"}}`, "listen.http"},
		{"abstract socket", `{"id":"a","listen":{"network":"unix","http":"@h"}}`, "listen.http"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := DecodeSpec(strings.NewReader(c.in))
			switch {
			case c.say == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.say != "" && err == nil:
				t.Error("taken")
			case c.say != "" && !strings.Contains(err.Error(), c.say):
				t.Errorf("error %q does not say %q", err, c.say)
			}
		})
	}
}

func TestDecodeSpecIsBounded(t *testing.T) {
	r := &counter{r: io.MultiReader(strings.NewReader(`{"id":"a","agent":"`), endless{})}
	if _, err := DecodeSpec(r); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("got %v", err)
	}
	if r.n > MaxMessage+1 {
		t.Errorf("%d bytes were read", r.n)
	}
	broken := errors.New("broken")
	if _, err := DecodeSpec(io.MultiReader(strings.NewReader(`{`), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("got %v, want the reader's error", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

type counter struct {
	r io.Reader
	n int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

func TestNetworkDefaultsToOn(t *testing.T) {
	on, off := true, false
	for _, c := range []struct {
		s    Spec
		want bool
	}{{Spec{}, true}, {Spec{NetworkEnabled: &on}, true}, {Spec{NetworkEnabled: &off}, false}} {
		if c.s.Network() != c.want {
			t.Errorf("%+v: %v", c.s, c.s.Network())
		}
	}
}

// The largest valid spec must fit a hello, or the bounds contradict each other
// without anybody noticing.
func TestValidSpecsRoundTrip(t *testing.T) {
	id := rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`)
	part := `[A-Za-z0-9_-]{1,20}`
	repo := rapid.StringMatching(part + "/" + part + "/" + part)
	text := rapid.StringMatching(`[ -~äß日]{0,40}`)
	rapid.Check(t, func(t *rapid.T) {
		s := Spec{
			ID:                 id.Draw(t, "id"),
			Policy:             rapid.StringMatching(`[A-Za-z0-9_.-]{0,64}`).Draw(t, "policy"),
			EgressAllowlist:    rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,20}\.example 443`), 0, 5).Draw(t, "rules"),
			Repository:         repo.Draw(t, "repo"),
			LinkedRepositories: rapid.SliceOfN(repo, 0, 5).Draw(t, "linked"),
			Agent:              text.Draw(t, "agent"),
			Workspace:          text.Draw(t, "workspace"),
		}
		if rapid.Bool().Draw(t, "has network") {
			b := rapid.Bool().Draw(t, "network")
			s.NetworkEnabled = &b
		}
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeSpec(bytes.NewReader(data))
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		again, _ := json.Marshal(back)
		if !bytes.Equal(data, again) {
			t.Fatalf("%s became %s", data, again)
		}
	})
}

func TestEventIsFlat(t *testing.T) {
	e := Event{Time: time.Unix(1700000000, 0).UTC(), Type: EventDenied, Session: "a", Fields: map[string]any{"zeta": 1, "code": "not_allowed", "type": "violation", "session": "b"}}
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"time":"2023-11-14T22:13:20Z","type":"denied","session":"a","code":"not_allowed","zeta":1}`
	if string(data) != want {
		t.Errorf("got  %s\nwant %s", data, want)
	}
	var back Event
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, Event{Time: e.Time, Type: e.Type, Session: "a", Fields: map[string]any{"zeta": 1.0, "code": "not_allowed"}}) {
		t.Errorf("came back as %+v", back)
	}
	if _, err := json.Marshal(Event{Fields: map[string]any{"bad": make(chan int)}}); err == nil {
		t.Error("a channel was encoded")
	}
	if data, _ := json.Marshal(Event{Type: "x"}); strings.Contains(string(data), "session") {
		t.Errorf("an event of the appliance names a session: %s", data)
	}
}

func TestEncodeLineIsBounded(t *testing.T) {
	if _, err := encodeLine(Event{Fields: map[string]any{"x": strings.Repeat("a", MaxMessage)}}); err == nil {
		t.Error("an endless event was encoded")
	}
	line, err := encodeLine(Event{Fields: map[string]any{"x": "a\nb"}})
	if err != nil || bytes.Count(line, []byte("\n")) != 1 {
		t.Errorf("%q, %v", line, err)
	}
}

// FuzzDecodeSpec: whatever is taken is valid, and is the same when it is
// written and read again.
func FuzzDecodeSpec(f *testing.F) {
	for _, seed := range []string{
		`{"id":"a"}`, `{"id":"a","networkEnabled":false,"egressAllowlist":["*.example.com 443 8443"]}`,
		`{"id":"a","listen":{"network":"tcp","http":"127.0.0.1:20001"}}`, `{"id":"a","id":"b"}`, `{"ID":"a"}`,
		`{"id":"a","networkEnabled":null}`, "{\"id\":\"\\ud800\"}", `{"id":"a","listen":[[[[]]]]}`, `{}`, `null`, "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := DecodeSpec(bytes.NewReader(data))
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if err := s.Validate(); err != nil {
			t.Fatalf("taken and not valid: %v", err)
		}
		out, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeSpec(bytes.NewReader(out))
		if err != nil {
			t.Fatalf("%s is refused when written again: %v", out, err)
		}
		if fmt.Sprintf("%+v", back.EgressAllowlist) != fmt.Sprintf("%+v", s.EgressAllowlist) || back.ID != s.ID || back.Network() != s.Network() {
			t.Fatalf("%+v became %+v", s, back)
		}
	})
}

// FuzzDecodeHello: no line panics, and one that is taken has the one version, a
// valid spec and no listeners to ask for.
func FuzzDecodeHello(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"spec":{"id":"a"},"pid":1}`, `{"version":1,"spec":{"id":"a"},"resume":{"readToken":"x","born":"y"}}`,
		`{"version":2}`, `{"version":1.0,"spec":{"id":"a"}}`, `{"version":1,"version":2,"spec":{"id":"a"}}`, `{"version":1e0,"spec":{"id":"a"}}`,
		`{"version":1,"spec":{"id":"a","listen":{"network":"tcp"}}}`, ``, `{`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		h, refusal := decodeHello(line)
		if refusal != nil {
			if refusal.Code != CodeBadRequest && refusal.Code != CodeVersion {
				t.Fatalf("code %q", refusal.Code)
			}
			return
		}
		if h.Version != Version || h.Spec.Validate() != nil || h.Spec.Listen != nil || h.PID < 0 {
			t.Fatalf("taken: %+v", h)
		}
	})
}

// FuzzEvent: an event that is read is written as one line and read as the same.
func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"time":"2023-11-14T22:13:20Z","type":"denied","session":"a","code":"x","n":1}`))
	f.Add([]byte(`{"type":null}`))
	f.Add([]byte(`{"Type":"a","TYPE":"b"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var e Event
		if json.Unmarshal(data, &e) != nil {
			return
		}
		out, err := encodeLine(e)
		if err != nil {
			return // too long, or a time that RFC 3339 cannot write
		}
		var back Event
		if err := json.Unmarshal(out, &back); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if back.Type != e.Type || back.Session != e.Session || !back.Time.Equal(e.Time) {
			t.Fatalf("%+v became %+v", e, back)
		}
	})
}
