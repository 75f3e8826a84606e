package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Decode reads one JSON value, strictly, because a misspelt field of a yes is a yes
// to something else: unknown fields are refused, and so are fields that are given
// twice, those in another case (encoding/json takes both, and the last wins) and
// anything behind the value.
func Decode(data []byte, into any) error {
	if err := checkNames(data); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}

// checkNames walks one JSON value and checks the names in its objects.
func checkNames(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := value(dec); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

// value walks one value. encoding/json itself bounds the depth of what it decodes,
// but not of tokens.
func value(dec *json.Decoder) error {
	type frame struct {
		names map[string]bool // nil in an array
		name  bool            // a name comes next
	}
	var open []frame
	for {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		var in *frame
		if len(open) > 0 {
			in = &open[len(open)-1]
		}
		if delim, ok := t.(json.Delim); ok {
			switch delim {
			case '{', '[':
				const deepest = 16
				if len(open) == deepest {
					return errors.New("nested too deep")
				}
				if in != nil {
					in.name = in.names != nil
				}
				f := frame{}
				if delim == '{' {
					f = frame{names: map[string]bool{}, name: true}
				}
				open = append(open, f)
			default:
				open = open[:len(open)-1]
			}
		} else if in != nil && in.name {
			name, _ := t.(string)
			switch {
			// Folding joins names that differ in case, and more letters than ASCII's.
			case strings.Trim(name, "abcdefghijklmnopqrstuvwxyz") != "":
				return fmt.Errorf("unknown field %.40q", name)
			case in.names[name]:
				return fmt.Errorf("field %q is given twice", name)
			}
			in.names[name], in.name = true, false
		} else if in != nil {
			in.name = in.names != nil
		}
		if len(open) == 0 {
			return nil
		}
	}
}
