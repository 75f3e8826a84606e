package spec

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

const least = `{"sessionId":"s-1","workspaceId":"w","bindMounts":[]}`

// with puts a field behind those that must be there.
func with(field string) string { return strings.TrimSuffix(least, "}") + "," + field + "}" }

func TestDefaults(t *testing.T) {
	got, err := Decode(strings.NewReader(least))
	if err != nil {
		t.Fatal(err)
	}
	want := Spec{SessionID: "s-1", WorkspaceID: "w", BindMounts: []BindMount{}, NetworkEnabled: true, Mode: Chat}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestEveryField(t *testing.T) {
	got, err := Decode(strings.NewReader(` {"sessionId":"s_1","workspaceId":"w 1","agentId":"a",
		"bindMounts":[{"hostPath":"/a"},{"hostPath":"/b c","guestPath":"/b c","readOnly":true},{"hostPath":"/d","guestPath":null}],
		"networkEnabled":false,"egressAllowlist":["example.com 8443"],"guestWorkdir":"/a/x","mode":"plan",
		"protectedPaths":["/p","**/.env"],"runnerStateDirs":["/r"],"execGrantRoots":["/e"]}
	`))
	if err != nil {
		t.Fatal(err)
	}
	want := Spec{
		SessionID: "s_1", WorkspaceID: "w 1", AgentID: "a",
		BindMounts:      []BindMount{{HostPath: "/a"}, {HostPath: "/b c", GuestPath: "/b c", ReadOnly: true}, {HostPath: "/d"}},
		EgressAllowlist: []string{"example.com 8443"}, GuestWorkdir: "/a/x", Mode: Plan,
		ProtectedPaths: []string{"/p", "**/.env"}, RunnerStateDirs: []string{"/r"}, ExecGrantRoots: []string{"/e"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if g := got.Globs(); !reflect.DeepEqual(g, []string{"**/.env"}) {
		t.Errorf("globs %q", g)
	}
	if p := got.Protected(); !reflect.DeepEqual(p, []string{"/p"}) {
		t.Errorf("protected %q", p)
	}
}

// SPEC 74: eleven fields, no other.
func TestElevenFields(t *testing.T) {
	if n := reflect.TypeFor[Spec]().NumField(); n != 11 {
		t.Errorf("%d fields, want 11", n)
	}
}

func TestWhatIsRefused(t *testing.T) {
	for _, tc := range []struct{ name, text, says string }{
		{"nothing", ``, "incomplete"},
		{"half", `{"sessionId":"s-1"`, "incomplete"},
		{"a list", `[]`, "not an object"},
		{"null", `null`, "not an object"},
		{"no id", `{"workspaceId":"w","bindMounts":[]}`, `"sessionId" is missing`},
		{"no workspace", `{"sessionId":"s","bindMounts":[]}`, `"workspaceId" is missing`},
		{"no mounts", `{"sessionId":"s","workspaceId":"w"}`, `"bindMounts" is missing`},
		{"unknown", with(`"protectedpaths":[]`), `unknown field "protectedpaths"`},
		{"another case", with(`"Mode":"plan"`), `unknown field "Mode"`},
		{"twice", with(`"mode":"plan","mode":"chat"`), `"mode" is given twice`},
		{"twice by an escape", with(`"mode":"plan","mod\u0065":"chat"`), `"mode" is given twice`},
		{"behind it", least + `{}`, "something follows"},
		{"behind it, broken", least + `x`, "something follows"},
		{"not UTF-8", with(`"agentId":"` + "\xff" + `"`), "not UTF-8"},
		{"half a surrogate", with(`"agentId":"\ud800"`), "broken escape"},
		{"null list", with(`"protectedPaths":null`), `"protectedPaths": not a list`},
		{"null mode", with(`"mode":null`), `"mode": not a string`},
		{"null flag", with(`"networkEnabled":null`), `"networkEnabled": neither`},
		{"text flag", with(`"networkEnabled":"false"`), `"networkEnabled": neither`},
		{"number in a list", with(`"execGrantRoots":["/a",1]`), `"execGrantRoots": entry 1: not a string`},
		{"mounts of texts", `{"sessionId":"s","workspaceId":"w","bindMounts":["/a"]}`, `"bindMounts": entry 0: not an object`},
		{"mount without a path", `{"sessionId":"s","workspaceId":"w","bindMounts":[{}]}`, `"hostPath" is missing`},
		{"unknown in a mount", `{"sessionId":"s","workspaceId":"w","bindMounts":[{"hostPath":"/a","mode":"ro"}]}`, `unknown field "mode"`},
		{"relative mount", `{"sessionId":"s","workspaceId":"w","bindMounts":[{"hostPath":"a"}]}`, "bindMounts[0].hostPath"},
		{"NUL in a mount", `{"sessionId":"s","workspaceId":"w","bindMounts":[{"hostPath":"/a\u0000b"}]}`, "NUL"},
		{"a way up", `{"sessionId":"s","workspaceId":"w","bindMounts":[{"hostPath":"/a/../b"}]}`, `".."`},
		{"relative workdir", with(`"guestWorkdir":"x"`), "guestWorkdir"},
		{"unknown mode", with(`"mode":"Chat"`), "mode: "},
		{"empty mode", with(`"mode":""`), "mode: "},
		{"relative protected", with(`"protectedPaths":["x"]`), "protectedPaths[0]"},
		{"relative state", with(`"runnerStateDirs":["~/x"]`), "runnerStateDirs[0]"},
		{"relative grant", with(`"execGrantRoots":["/ok","x"]`), "execGrantRoots[1]"},
		{"empty rule", with(`"egressAllowlist":[" "]`), "egressAllowlist[0]"},
		{"control bytes", with(`"egressAllowlist":["a\nb"]`), "egressAllowlist[0]"},
		{"bad id", `{"sessionId":"a/b","workspaceId":"w","bindMounts":[]}`, "sessionId"},
		{"many entries", with(`"protectedPaths":[` + strings.Repeat(`"/a",`, maxList) + `"/a"]`), `"protectedPaths": 1025 entries`},
		{"deep", with(`"bindMounts2":` + strings.Repeat("[", 100_000)), "unknown field"},
		{"deep in a known field", with(`"protectedPaths":` + strings.Repeat("[", 100_000)), "protectedPaths"},
		{"long", with(`"agentId":"` + strings.Repeat("a", MaxSpec) + `"`), "longer than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := Decode(strings.NewReader(tc.text))
			if err == nil {
				t.Fatalf("taken: %+v", s)
			}
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %q in it", err, tc.says)
			}
		})
	}
}

func TestGuestPath(t *testing.T) {
	for _, tc := range []struct {
		m  BindMount
		ok bool
	}{
		{BindMount{HostPath: "/a"}, true},
		{BindMount{HostPath: "/a", GuestPath: "/a"}, true},
		{BindMount{HostPath: "/a/", GuestPath: "/a"}, true},
		{BindMount{HostPath: "/a", GuestPath: "/b"}, false},
		{BindMount{HostPath: "/a", GuestPath: "/A"}, false},
	} {
		s := Spec{BindMounts: []BindMount{{HostPath: "/x"}, tc.m}}
		if err := s.CheckNative(); (err == nil) != tc.ok || err != nil && !strings.Contains(err.Error(), "bindMounts[1].guestPath") {
			t.Errorf("%+v: %v", tc.m, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(least)
	f.Add(with(`"mode":"plan","networkEnabled":false,"protectedPaths":["/a","**/*.pem"],"agentId":null`))
	f.Add(`{"sessionId":"s","workspaceId":"w","bindMounts":[{"hostPath":"/a","guestPath":"/b","readOnly":true}]}`)
	f.Add(with(`"agentId":"\ufffd\ud83d\ude00"`))
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Decode(strings.NewReader(text))
		if err != nil {
			return
		}
		if err := s.Validate(); err != nil {
			t.Fatalf("decoded and not valid: %v", err)
		}
		if err := ValidateID(s.SessionID); err != nil {
			t.Fatal(err)
		}
		// What was taken is taken again, as the same.
		data, err := json.Marshal(fill(s))
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(strings.NewReader(string(data)))
		if err != nil && len(data) <= MaxSpec {
			t.Fatalf("%s: %v", data, err)
		}
		if err == nil && !reflect.DeepEqual(fill(again), fill(s)) {
			t.Fatalf("%+v became %+v", s, again)
		}
	})
}

// fill makes lists that are not there empty ones: the text has no null.
func fill(s Spec) Spec {
	for _, l := range []*[]string{&s.EgressAllowlist, &s.ProtectedPaths, &s.RunnerStateDirs, &s.ExecGrantRoots} {
		if *l == nil {
			*l = []string{}
		}
	}
	return s
}
