package local_test

import (
	"strings"
	"testing"

	"postern/gitgw/local"
)

// said is an answer of the usual shape.
type said struct {
	Version int `json:"version"`
	Updates []struct {
		Ref    string   `json:"ref"`
		Tags   []string `json:"tags"`
		Reason *string  `json:"reason"`
	} `json:"updates"`
}

// What two readers could take for two answers is none.
func TestDecode(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"plain":              {`{"version":1,"updates":[{"ref":"a","tags":["x","version"],"reason":null},{"ref":"b"}]}`, ""},
		"white space":        {" {\n\t\"version\" : 1 }\r\n", ""},
		"empty object":       {`{}`, ""},
		"unknown field":      {`{"version":1,"unless":true}`, `unknown field "unless"`},
		"unknown field deep": {`{"updates":[{"ref":"a","until":"x"}]}`, `unknown field "until"`},
		"other case":         {`{"version":1,"Version":2}`, `unknown field "Version"`},
		"folded letter":      {"{\"ver\u017fion\":2}", "unknown field"},
		"twice":              {`{"version":1,"version":2}`, `"version" is given twice`},
		"twice, escaped":     {`{"version":1,"vers\u0069on":2}`, `"version" is given twice`},
		"twice deep":         {`{"updates":[{"ref":"a","ref":"b"}]}`, `"ref" is given twice`},
		"same in two":        {`{"updates":[{"ref":"a"},{"ref":"a"}]}`, ""},
		"two values":         {`{"version":1}{"version":2}`, "more than one"},
		"rubbish behind":     {`{"version":1}]`, "more than one"},
		"nothing":            {``, "EOF"},
		"cut off":            {`{"version":1,"updates":[{"ref"`, "EOF"},
		"deep":               {`{"updates":` + strings.Repeat("[", 100000), "too deep"},
		"other type":         {`{"version":"1"}`, "decode"},
		"array":              {`[1]`, "decode"},
		"bare word":          {`yes`, "decode"},
	} {
		t.Run(name, func(t *testing.T) {
			var v said
			err := local.Decode([]byte(c.in), &v)
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// FuzzDecode: what is taken has no name but the known ones, each once in its object.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"updates":[{"ref":"a","reason":"b"}]}`))
	f.Add([]byte(`{"version":1,"version":2}`))
	f.Add([]byte(`{"updates":[{"ref":"\u0061","tags":[]}]} `))
	f.Add([]byte(`[[[[{}]]]]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var v said
		if local.Decode(data, &v) != nil {
			return
		}
		text := string(data)
		for _, name := range []string{`"version"`, `"updates"`} {
			// Within strings a quote is escaped, so this counts names and values.
			if !strings.Contains(text, `\`) && strings.Count(text, name+":") > 1 {
				t.Errorf("%s twice in %q", name, text)
			}
		}
		if strings.Contains(text, `"Version"`) && v.Version != 0 && !strings.Contains(text, `"version"`) {
			t.Errorf("another case was taken: %q", text)
		}
	})
}
