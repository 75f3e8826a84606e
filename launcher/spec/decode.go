package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Decode reads one Spec of at most MaxSpec bytes and validates it.
//
// Left out, networkEnabled is true, mode is chat, and the rest is empty. sessionId,
// workspaceId and bindMounts have no default and must be there. Only agentId,
// guestWorkdir and guestPath may be null, which is as if they were left out.
func Decode(r io.Reader) (Spec, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxSpec+1))
	if err != nil {
		return Spec{}, fmt.Errorf("read sandbox spec: %w", err)
	}
	if len(data) > MaxSpec {
		return Spec{}, fmt.Errorf("read sandbox spec: longer than %d bytes", MaxSpec)
	}
	s := Default()
	if err := s.decode(data); err != nil {
		return Spec{}, fmt.Errorf("decode sandbox spec: %w", err)
	}
	if err := s.Validate(); err != nil {
		return Spec{}, fmt.Errorf("validate sandbox spec: %w", err)
	}
	return s, nil
}

func (s *Spec) decode(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	var mode string
	given, err := object(data, map[string]reader{
		"sessionId":       text(&s.SessionID),
		"workspaceId":     text(&s.WorkspaceID),
		"agentId":         nullable(text(&s.AgentID)),
		"bindMounts":      s.decodeMounts,
		"networkEnabled":  flag(&s.NetworkEnabled),
		"egressAllowlist": texts(&s.EgressAllowlist),
		"guestWorkdir":    nullable(text(&s.GuestWorkdir)),
		"mode":            text(&mode),
		"protectedPaths":  texts(&s.ProtectedPaths),
		"runnerStateDirs": texts(&s.RunnerStateDirs),
		"execGrantRoots":  texts(&s.ExecGrantRoots),
	})
	if err != nil {
		return err
	}
	for _, name := range []string{"sessionId", "workspaceId", "bindMounts"} {
		if !given[name] {
			return fmt.Errorf("field %q is missing", name)
		}
	}
	if given["mode"] {
		s.Mode = Mode(mode) // Validate knows the names
	}
	return nil
}

func (s *Spec) decodeMounts(data []byte) error {
	s.BindMounts = []BindMount{}
	return list(data, func(element []byte) error {
		var m BindMount
		given, err := object(element, map[string]reader{
			"hostPath":  text(&m.HostPath),
			"guestPath": nullable(text(&m.GuestPath)),
			"readOnly":  flag(&m.ReadOnly),
		})
		if err == nil && !given["hostPath"] {
			err = errors.New(`field "hostPath" is missing`)
		}
		s.BindMounts = append(s.BindMounts, m)
		return err
	})
}

// reader takes the text of one value.
type reader func(data []byte) error

// object reads one JSON object, each of whose names is known and is there once. What
// encoding/json does by itself (any case of a name, the last of two) would let two
// readers of one text see two specs.
func object(data []byte, fields map[string]reader) (given map[string]bool, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	tok, err := dec.Token()
	if err != nil {
		return nil, incomplete(err)
	}
	if tok != json.Delim('{') {
		return nil, errors.New("not an object")
	}
	given = map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, incomplete(err)
		}
		name, _ := tok.(string) // More and Token leave nothing else
		read, known := fields[name]
		switch {
		case !known:
			return nil, fmt.Errorf("unknown field %q", clip(name))
		case given[name]:
			return nil, fmt.Errorf("field %q is given twice", name)
		}
		given[name] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("field %q: %w", name, incomplete(err))
		}
		if err := read(value); err != nil {
			return nil, fmt.Errorf("field %q: %w", name, err)
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, incomplete(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the value")
	}
	return given, nil
}

func list(data []byte, read reader) error {
	var elements []json.RawMessage
	if isNull(data) || json.Unmarshal(data, &elements) != nil {
		return errors.New("not a list")
	}
	if len(elements) > maxList {
		return fmt.Errorf("%d entries, at most %d", len(elements), maxList)
	}
	for i, e := range elements {
		if err := read(e); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return nil
}

func text(into *string) reader {
	return func(data []byte) error {
		if isNull(data) || json.Unmarshal(data, into) != nil {
			return errors.New("not a string")
		}
		// Half a surrogate pair is replaced by the decoder: the text would name
		// something else than was meant.
		if strings.Count(*into, string(utf8.RuneError)) != bytes.Count(data, []byte(string(utf8.RuneError)))+bytes.Count(bytes.ToLower(data), []byte(`\ufffd`)) {
			return errors.New("a broken escape")
		}
		return nil
	}
}

func flag(into *bool) reader {
	return func(data []byte) error {
		if isNull(data) || json.Unmarshal(data, into) != nil {
			return errors.New("neither true nor false")
		}
		return nil
	}
}

func texts(into *[]string) reader {
	return func(data []byte) error {
		*into = []string{}
		return list(data, func(element []byte) error {
			var s string
			err := text(&s)(element)
			*into = append(*into, s)
			return err
		})
	}
}

func nullable(read reader) reader {
	return func(data []byte) error {
		if isNull(data) {
			return nil
		}
		return read(data)
	}
}

func isNull(data []byte) bool { return bytes.Equal(bytes.TrimSpace(data), []byte("null")) }

// incomplete words what the decoder calls EOF.
func incomplete(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the value is incomplete")
	}
	return err
}
