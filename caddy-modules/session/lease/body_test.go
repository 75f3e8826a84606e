package lease

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"postern/launcher/backend"
	"postern/launcher/spec"
)

func TestDecodeBody(t *testing.T) {
	off := false
	box := func(change func(*Sandbox)) *Sandbox {
		b := &Sandbox{Spec: spec.Default(), Backend: backend.None}
		b.SessionID, b.BindMounts = "s", []spec.BindMount{}
		change(b)
		return b
	}
	for _, tc := range []struct {
		name, body string
		want       Spec
	}{
		{"nothing", `{}`, Spec{ID: "s"}},
		{"the names of before", `{"agent":"a","workspace":"w"}`, Spec{ID: "s", Agent: "a", Workspace: "w"}},
		{
			"the names of the specification", `{"sessionId":"s","agentId":"a","workspaceId":"w"}`,
			Spec{ID: "s", Agent: "a", Workspace: "w", Sandbox: box(func(b *Sandbox) { b.AgentID, b.WorkspaceID = "a", "w" })},
		},
		{
			"both names, and the same", `{"id":"s","sessionId":"s","agent":"a","agentId":"a"}`,
			Spec{ID: "s", Agent: "a", Sandbox: box(func(b *Sandbox) { b.AgentID = "a" })},
		},
		{
			"nulls where the specification has them", `{"agentId":null,"guestWorkdir":null,"bindMounts":[{"hostPath":"/a","guestPath":null}]}`,
			Spec{ID: "s", Sandbox: box(func(b *Sandbox) { b.BindMounts = []spec.BindMount{{HostPath: "/a"}} })},
		},
		{
			"all of both", `{"policy":"p","repository":"github.com/a/b","listen":{"network":"unix"},"backend":"microvm",
			 "sessionId":"s","workspaceId":"w","agentId":"a","bindMounts":[{"hostPath":"/a","guestPath":"/workspace","readOnly":true}],
			 "networkEnabled":false,"egressAllowlist":["x.example"],"guestWorkdir":"/workspace","mode":"plan","protectedPaths":["/p","**/.env"],"runnerStateDirs":["/r"],"execGrantRoots":["/e"]}`,
			Spec{
				ID: "s", Policy: "p", Repository: "github.com/a/b", Listen: &Listen{Network: "unix"}, Agent: "a", Workspace: "w", NetworkEnabled: &off, EgressAllowlist: []string{"x.example"},
				Sandbox: box(func(b *Sandbox) {
					b.Backend = backend.MicroVM
					b.WorkspaceID, b.AgentID, b.NetworkEnabled, b.EgressAllowlist = "w", "a", false, []string{"x.example"}
					b.BindMounts = []spec.BindMount{{HostPath: "/a", GuestPath: "/workspace", ReadOnly: true}}
					b.GuestWorkdir, b.Mode, b.ProtectedPaths, b.RunnerStateDirs, b.ExecGrantRoots = "/workspace", spec.Plan, []string{"/p", "**/.env"}, []string{"/r"}, []string{"/e"}
				}),
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := DecodeBody(strings.NewReader(tc.body), "s")
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got  %+v %+v\nwant %+v %+v", got, got.Sandbox, tc.want, tc.want.Sandbox)
			}
		})
	}
	for name, tc := range map[string]struct{ body, says string }{
		"unknown":                 {`{"protectedpaths":[]}`, `unknown field "protectedpaths"`},
		"unknown beside theirs":   {`{"mode":"plan","polcy":"p"}`, `unknown field "polcy"`},
		"unknown below":           {`{"bindMounts":[{"hostPath":"/a","mode":"ro"}]}`, `unknown field "mode"`},
		"twice":                   {`{"mode":"plan","mode":"chat"}`, `"mode" is given twice`},
		"twice, ours":             {`{"mode":"plan","policy":"p","policy":"q"}`, `"policy" is given twice`},
		"another id":              {`{"sessionId":"t"}`, `sessionId "t"`},
		"another id, ours":        {`{"id":"t","mode":"plan"}`, `id "t"`},
		"two workspaces":          {`{"workspace":"w","workspaceId":"v"}`, "they are one thing"},
		"two agents":              {`{"agent":"w","agentId":"v"}`, "they are one thing"},
		"an agent and none":       {`{"agent":"w","agentId":null}`, "they are one thing"},
		"unknown mode":            {`{"mode":"yolo"}`, "mode: "},
		"unknown backend":         {`{"backend":"podman"}`, "want one of microvm, native, none"},
		"relative":                {`{"protectedPaths":["x"]}`, "protectedPaths[0]"},
		"null list":               {`{"bindMounts":null}`, "not a list"},
		"null, ours":              {`{"mode":"chat","policy":null}`, "null"},
		"behind it":               {`{"mode":"chat"}{}`, "more than one value"},
		"behind it, and no field": {`{}{}`, "more than one value"},
		"a list":                  {`[]`, "not an object"},
		"half":                    {`{"mode":"chat"`, "incomplete"},
		"text flag":               {`{"mode":"chat","networkEnabled":"no"}`, "networkEnabled"},
		"bad rule size":           {`{"mode":"chat","egressAllowlist":[""]}`, "egressAllowlist[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := DecodeBody(strings.NewReader(tc.body), "s"); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%+v, %v, want %q", got, err, tc.says)
			}
		})
	}
}

func TestSandboxDiffers(t *testing.T) {
	decode := func(body string) *Sandbox {
		t.Helper()
		s, err := DecodeBody(strings.NewReader(body), "s")
		if err != nil {
			t.Fatal(err)
		}
		return s.Sandbox
	}
	for _, tc := range []struct{ a, b, want string }{
		{`{}`, `{}`, ""},
		{`{}`, `{"mode":"chat"}`, "sandbox"},
		{`{"mode":"chat"}`, `{"bindMounts":[],"protectedPaths":[]}`, ""},
		{`{"mode":"chat"}`, `{"mode":"plan"}`, "mode"},
		{`{"mode":"chat"}`, `{"backend":"native"}`, "backend"},
		{`{"bindMounts":[{"hostPath":"/a"}]}`, `{"bindMounts":[{"hostPath":"/a","readOnly":true}]}`, "bindMounts"},
		{`{"protectedPaths":["/a"]}`, `{"protectedPaths":["/a","/b"]}`, "protectedPaths"},
	} {
		if got := decode(tc.a).Differs(decode(tc.b)); got != tc.want {
			t.Errorf("%s and %s: %q, want %q", tc.a, tc.b, got, tc.want)
		}
		if got := decode(tc.b).Differs(decode(tc.a)); got != tc.want {
			t.Errorf("%s and %s: %q, want %q", tc.b, tc.a, got, tc.want)
		}
	}
}

// A Spec that goes over the wire of a lease says nothing of a host's sandbox.
func TestSandboxStaysHere(t *testing.T) {
	data, err := json.Marshal(Spec{ID: "s", Sandbox: &Sandbox{}})
	if err != nil || string(data) != `{"id":"s"}` {
		t.Errorf("%s %v", data, err)
	}
	if _, err := DecodeSpec(strings.NewReader(`{"id":"s","Sandbox":{}}`)); err == nil {
		t.Error("taken")
	}
}

func FuzzDecodeBody(f *testing.F) {
	f.Add(`{"sessionId":"s","workspaceId":"w","bindMounts":[],"mode":"plan"}`)
	f.Add(`{"id":"s","policy":"p","networkEnabled":false,"agentId":null,"backend":"native"}`)
	f.Add(`{"listen":{"network":"tcp","http":"127.0.0.1:2000"},"egressAllowlist":["a"],"guestWorkdir":"/a"}`)
	f.Fuzz(func(t *testing.T, body string) {
		s, err := DecodeBody(strings.NewReader(body), "s")
		if err != nil {
			return
		}
		if s.ID != "s" || s.Validate() != nil {
			t.Fatalf("%+v", s)
		}
		b := s.Sandbox
		if b == nil {
			return
		}
		if b.Validate() != nil || b.SessionID != "s" || b.AgentID != s.Agent || b.WorkspaceID != s.Workspace || b.NetworkEnabled != s.Network() || b.Differs(b) != "" {
			t.Fatalf("%+v and %+v", s, b)
		}
	})
}
