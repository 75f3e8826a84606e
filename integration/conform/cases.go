package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// testCase is one line of a case file, with its placeholders filled in.
type testCase struct {
	ID    string   `json:"id"`
	Proto string   `json:"proto"`
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
	Input string   `json:"input"`

	Expect    verdict   `json:"expect"`
	ExpectSeq []verdict `json:"expect_seq"`

	Resolve    answers    `json:"resolve"`
	ResolveSeq answerSeqs `json:"resolve_seq"`

	SNI        *string `json:"sni"`
	TLSVariant word    `json:"tls_variant"`
	Timing     word    `json:"timing"`

	ExpectDNSQueries *int    `json:"expect_dns_queries"`
	UpstreamResponse *string `json:"upstream_response"`

	index int // in the run, which gives the session its ports
	bad   error
}

// verdict is what a case expects and what comes of it.
type verdict string

const (
	allow verdict = "allow" // relayed
	deny  verdict = "deny"  // refused by policy, with an audit record
	fault verdict = "error" // malformed: refused without a dial or a lookup

	// unreached is none of them: policy allows it, and the upstream or its name
	// server failed.
	unreached verdict = "upstream failure"
)

// UnmarshalJSON takes the three words in any case, and the names that other
// tools have for them.
func (v *verdict) UnmarshalJSON(raw []byte) error {
	var w word
	if err := json.Unmarshal(raw, &w); err != nil {
		return err
	}
	switch w {
	case "allow", "allowed", "pass":
		*v = allow
	case "deny", "denied", "block", "blocked":
		*v = deny
	case "error", "malformed":
		*v = fault
	default:
		return fmt.Errorf("parse expect %q: want allow, deny or error", string(w))
	}
	return nil
}

// word is a text compared without case, with - and blanks for _.
type word string

// UnmarshalJSON folds the spelling.
func (w *word) UnmarshalJSON(raw []byte) error {
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	if s != nil {
		*w = word(strings.NewReplacer("-", "_", " ", "_").Replace(strings.ToLower(strings.TrimSpace(*s))))
	}
	return nil
}

// oneOf reports whether w is one of these.
func (w word) oneOf(words ...word) bool {
	return slices.Contains(words, w)
}

// readCases reads files of JSON lines. A line that is no case becomes one that
// fails and says why; only a file that cannot be read is an error. Lines whose
// id begins with an underscore speak about the file.
func readCases(files []string) ([]*testCase, error) {
	var cases []*testCase
	for _, name := range files {
		err := eachLine(name, func(l line) {
			c := parseCase(l.text)
			if strings.HasPrefix(c.ID, "_") {
				return
			}
			c.bad, c.index = l.fault(c.bad), len(cases)
			if c.ID == "" {
				c.ID = l.place()
			}
			cases = append(cases, c)
		})
		if err != nil {
			return nil, err
		}
	}
	return cases, nil
}

// parseCase reads one line.
func parseCase(line []byte) *testCase {
	c := new(testCase)
	if err := json.Unmarshal(line, c); err != nil {
		// The id, if it can be had, makes the report readable.
		var id struct {
			ID string `json:"id"`
		}
		_ = json.Unmarshal(line, &id)
		return &testCase{ID: id.ID, bad: fmt.Errorf("parse case: %w", err)}
	}
	c.Proto = strings.ToLower(strings.TrimSpace(c.Proto))
	switch {
	case strings.HasPrefix(c.ID, "_"):
	case c.Proto == "":
		c.bad = errors.New("parse case: no proto")
	case c.Expect == "" && len(c.ExpectSeq) == 0:
		c.bad = errors.New("parse case: no expect")
	}
	return c
}

// want is what each request of the case is expected to come to.
func (c *testCase) want() []verdict {
	if len(c.ExpectSeq) > 0 {
		return c.ExpectSeq
	}
	return []verdict{c.Expect}
}

// anyAllowed reports whether something of the case is to be relayed.
func (c *testCase) anyAllowed() bool {
	// Before it is cut, a tunnel is open.
	return slices.Contains(c.want(), allow) || c.Timing == timingRevoke
}
