package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"postern/launcher/backend"
	"postern/launcher/spec"
)

// Sandbox is what a host says of the sandbox that it makes itself: the fields of the
// specification's SandboxSpec, and with which backend. The appliance makes none; it
// holds the host to one content for one id, and hands back the handle.
type Sandbox struct {
	spec.Spec
	Backend backend.Backend
}

// The names of a body that a Spec does not have: those of the SandboxSpec, and backend.
var sandboxNames = []string{
	"sessionId", "workspaceId", "agentId", "bindMounts", "guestWorkdir", "mode", "protectedPaths", "runnerStateDirs", "execGrantRoots", "backend",
}

// shared are the names that both have.
var shared = []string{"networkEnabled", "egressAllowlist"}

// DecodeBody reads the body of a PUT: a Spec, a SandboxSpec, or both in one. Of a
// SandboxSpec nothing need be there, not even what it must have where a sandbox is made
// of it; sessionId, workspaceId and agentId are other names of id, workspace and agent,
// and two names for one thing must not contradict each other. It is as strict as
// DecodeSpec.
func DecodeBody(r io.Reader, id string) (Spec, error) {
	data, err := readMessage(r, "session")
	if err != nil {
		return Spec{}, err
	}
	fields, err := split(data)
	if err != nil {
		return Spec{}, fmt.Errorf("decode session: %w", err)
	}
	given := slices.ContainsFunc(sandboxNames, func(name string) bool { _, there := fields[name]; return there })
	if !given {
		return DecodeSpecFor(bytes.NewReader(data), id)
	}
	theirs, ours := map[string]json.RawMessage{"sessionId": quote(id), "workspaceId": quote(""), "bindMounts": json.RawMessage("[]")}, map[string]json.RawMessage{}
	for name, value := range fields {
		switch {
		case slices.Contains(shared, name):
			theirs[name], ours[name] = value, value
		case slices.Contains(sandboxNames, name):
			theirs[name] = value
		default:
			ours[name] = value
		}
	}
	s, err := decodeOurs(ours, id)
	if err != nil {
		return Spec{}, err
	}
	if s.Sandbox, err = decodeTheirs(theirs); err != nil {
		return Spec{}, err
	}
	return s, s.agree(fields)
}

func decodeOurs(fields map[string]json.RawMessage, id string) (Spec, error) {
	data, err := json.Marshal(fields)
	if err != nil {
		return Spec{}, fmt.Errorf("decode session: %w", err)
	}
	return DecodeSpecFor(bytes.NewReader(data), id)
}

func decodeTheirs(fields map[string]json.RawMessage) (*Sandbox, error) {
	box := &Sandbox{Backend: backend.None}
	if value, there := fields["backend"]; there {
		var name string
		err := json.Unmarshal(value, &name)
		if err == nil {
			box.Backend, err = backend.Parse(name)
		}
		if err != nil {
			return nil, fmt.Errorf("decode session: backend: %w", err)
		}
		delete(fields, "backend")
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("decode session: %w", err)
	}
	if box.Spec, err = spec.Decode(bytes.NewReader(data)); err != nil {
		return nil, err
	}
	return box, nil
}

// agree makes one of the two names of a thing, and refuses two that differ.
func (s *Spec) agree(fields map[string]json.RawMessage) error {
	box := s.Sandbox
	if box.SessionID != s.ID {
		return fmt.Errorf("decode session: the sessionId %q in the body is not the id %q of the request", clip(box.SessionID), clip(s.ID))
	}
	for _, f := range []struct {
		name, alias string
		ours        *string
		theirs      *string
	}{{"workspace", "workspaceId", &s.Workspace, &box.WorkspaceID}, {"agent", "agentId", &s.Agent, &box.AgentID}} {
		_, named := fields[f.name]
		_, aliased := fields[f.alias]
		if named && aliased && *f.ours != *f.theirs {
			return fmt.Errorf("decode session: %s is %q and %s is %q: they are one thing", f.name, clip(*f.ours), f.alias, clip(*f.theirs))
		}
		if aliased {
			*f.ours = *f.theirs
		}
		*f.theirs = *f.ours
	}
	return s.Validate()
}

// split takes an object apart, whose names must differ.
func split(data []byte) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	tok, err := dec.Token()
	if err != nil {
		return nil, jsonError(err)
	}
	if tok != json.Delim('{') {
		return nil, errors.New("not an object")
	}
	fields := map[string]json.RawMessage{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, jsonError(err)
		}
		name, _ := tok.(string) // More and Token leave nothing else
		if _, twice := fields[name]; twice {
			return nil, fmt.Errorf("field %q is given twice", clip(name))
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, jsonError(err)
		}
		fields[name] = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, jsonError(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value")
	}
	return fields, nil
}

func quote(text string) json.RawMessage {
	data, _ := json.Marshal(text) // a string always encodes
	return data
}

// Differs names the field in which two sandboxes are not the same; "" means that they
// are. Nil is a host that says nothing of its sandbox.
func (b *Sandbox) Differs(other *Sandbox) string {
	if b == nil || other == nil {
		if b != other {
			return "sandbox"
		}
		return ""
	}
	if b.Backend != other.Backend {
		return "backend"
	}
	mine, theirs := reflect.ValueOf(b.Spec), reflect.ValueOf(other.Spec)
	for i := range mine.NumField() {
		x, y := mine.Field(i), theirs.Field(i)
		if x.Kind() == reflect.Slice && x.Len() == 0 && y.Len() == 0 {
			continue // none, said or not
		}
		if !reflect.DeepEqual(x.Interface(), y.Interface()) {
			return mine.Type().Field(i).Tag.Get("json")
		}
	}
	return ""
}

// Handle is what a host is told of the sandbox that it is going to make: nothing of it
// stands yet but the listeners (SPEC 86).
func (s Spec) Handle(info Info) *spec.Handle {
	box := s.Sandbox
	if box == nil {
		box = &Sandbox{Backend: backend.None}
	}
	h := spec.NewHandle(s.ID, string(box.Backend))
	h.Details = map[string]any{"policy": info.Policy, "network": info.Network, "http": info.HTTP, "socks": info.SOCKS}
	dir := box.GuestWorkdir
	if dir == "" && len(box.BindMounts) > 0 {
		dir = box.BindMounts[0].HostPath
	}
	if dir != "" {
		h.Details["cwd"] = dir
	}
	return h
}
