package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds how deep a message may nest. Ours nest three levels.
const maxDepth = 8

// Decode reads one JSON object of at most MaxMessage bytes into v, which points to a
// struct, as strictly as DecodeSpec does.
func Decode(r io.Reader, v any) error {
	data, err := readMessage(r, "body")
	if err != nil {
		return err
	}
	if err := decodeStrict(data, v); err != nil {
		return fmt.Errorf("decode body: %w", err)
	}
	return nil
}

// readMessage reads all of r, which is at most MaxMessage bytes of what it is called.
func readMessage(r io.Reader, what string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxMessage+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	if len(data) > MaxMessage {
		return nil, fmt.Errorf("read %s: longer than %d bytes", what, MaxMessage)
	}
	return data, nil
}

// decodeStrict decodes one JSON object into v, which points to a struct.
//
// encoding/json is lenient in ways that let two readers of one message disagree
// about it: it takes the last of two equal names, folds the case of names,
// ignores names it does not know, repairs broken UTF-8, and takes null for
// "leave it as it is" (which would turn networkEnabled on). All five are errors
// here.
func decodeStrict(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	w := walker{dec: json.NewDecoder(bytes.NewReader(data)), known: names(reflect.TypeOf(v).Elem(), nil)}
	// Numbers stay text in the walk: it must not judge what the second pass will.
	w.dec.UseNumber()
	if err := w.object(); err != nil {
		return err
	}
	if _, err := w.dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// walker reads the tokens of one message before it is decoded.
type walker struct {
	dec   *json.Decoder
	known []string // the exact names of all fields of the target and below it
}

func (w *walker) object() error {
	tok, err := w.dec.Token()
	if err != nil {
		return jsonError(err)
	}
	if tok != json.Delim('{') {
		return errors.New("not an object")
	}
	return w.members(1)
}

// members reads the rest of an object, whose brace has been read.
func (w *walker) members(depth int) error {
	seen := map[string]bool{}
	for w.dec.More() {
		tok, err := w.dec.Token()
		if err != nil {
			return jsonError(err)
		}
		name, ok := tok.(string)
		switch {
		case !ok:
			return errors.New("a field has no name")
		case !slices.Contains(w.known, name):
			return fmt.Errorf("unknown field %q", clip(name))
		case seen[name]:
			return fmt.Errorf("field %q is given twice", name)
		}
		seen[name] = true
		if err := w.value(name, depth); err != nil {
			return err
		}
	}
	_, err := w.dec.Token()
	return jsonError(err)
}

// value reads one value; field is the name it belongs to.
func (w *walker) value(field string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("field %q nests deeper than %d levels", field, maxDepth)
	}
	tok, err := w.dec.Token()
	if err != nil {
		return jsonError(err)
	}
	switch tok {
	case nil:
		return fmt.Errorf("field %q is null; leave it out", field)
	case json.Delim('{'):
		return w.members(depth + 1)
	case json.Delim('['):
		for w.dec.More() {
			if err := w.value(field, depth+1); err != nil {
				return err
			}
		}
		_, err := w.dec.Token()
		return jsonError(err)
	}
	return nil
}

// names collects the JSON names of the fields of t and of the structs below it.
func names(t reflect.Type, into []string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return into
	}
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			into = names(field.Type, append(into, name))
		}
	}
	return into
}

// jsonError words what the tokeniser says; a message that just stops is the
// commonest case and reads badly as "EOF".
func jsonError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the value is incomplete")
	}
	return err
}
