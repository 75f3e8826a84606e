package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

// dnsCase is one line of a file of DNS cases. The first, _defaults, says of each
// option what it is where a case says nothing.
type dnsCase struct {
	ID       string       `json:"id"`
	Allow    []string     `json:"allow"`
	Deny     []string     `json:"deny"`
	Query    *dnsQuery    `json:"query"`
	Upstream *dnsUpstream `json:"upstream"`
	Expect   *dnsExpect   `json:"expect"`
	Opts     dnsOpts      `json:"opts"`
	Why      string       `json:"why"`
	Source   string       `json:"source"`

	// What comes before the question.
	Before       []dnsBefore         `json:"before"`
	BeforeUnique int                 `json:"before_unique"` // names below *.example.com
	BeforeBytes  int                 `json:"before_bytes"`  // of such names together
	BeforeRate   int                 `json:"before_rate"`   // the question itself, this often
	ClockS       int                 `json:"clock_s"`       // seconds that pass
	Repeat       int                 `json:"repeat"`        // the question is asked this often
	Session      string              `json:"session"`       // who asks: A, another, or a session that is ended
	Sessions     map[string]dnsLists `json:"sessions"`

	index int
	bad   error
}

type dnsLists struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

type dnsBefore struct {
	Query    dnsQuery     `json:"query"`
	Upstream *dnsUpstream `json:"upstream"`
}

type dnsQuery struct {
	Name          string   `json:"name"`
	Type          string   `json:"type"`
	Class         string   `json:"class"`
	Opcode        string   `json:"opcode"`
	Transport     string   `json:"transport"`
	ExtraQuestion string   `json:"extra_question"`
	QR            bool     `json:"qr"`
	Raw           string   `json:"raw"` // hex, instead of all the rest
	Answer        []string `json:"answer"`
	EDNS          *dnsEDNS `json:"edns"`
}

// dnsEDNS is the client's OPT record. false is none.
type dnsEDNS struct {
	none       bool
	Size       uint16 `json:"size"`
	Cookie     string `json:"cookie"`
	Local65001 string `json:"local65001"`
	Padding    int    `json:"padding"`
	Version    uint8  `json:"version"`
}

// UnmarshalJSON takes false as well.
func (e *dnsEDNS) UnmarshalJSON(raw []byte) error {
	if string(raw) == "false" {
		e.none = true
		return nil
	}
	type plain dnsEDNS
	return strictly(raw, (*plain)(e))
}

// dnsUpstream is what the resolver says.
type dnsUpstream struct {
	Rcode      string            `json:"rcode"`
	Answer     []string          `json:"answer"`
	Authority  []string          `json:"authority"`
	Additional []string          `json:"additional"`
	TC         bool              `json:"tc"`
	ThenTCP    *dnsUpstream      `json:"then_tcp"`
	QR         *bool             `json:"qr"`
	First      *dnsUpstream      `json:"first"` // a packet before Then
	Then       *dnsUpstream      `json:"then"`
	EDNS       map[string]string `json:"edns"`
}

type dnsExpect struct {
	Rcode           string              `json:"rcode"`
	Answers         []string            `json:"answers"` // null: not compared
	UpstreamQueries *int                `json:"upstream_queries"`
	UpstreamEDNS    *[]string           `json:"upstream_edns_options"`
	EDNS            *[]string           `json:"edns_options"`
	EDE             *int                `json:"ede"`
	NoEDE           *int                `json:"no_ede"`
	TTL             *int                `json:"ttl"`
	NegTTL          *int                `json:"neg_ttl"`
	TC              *bool               `json:"tc"`
	MaxLen          int                 `json:"max_len"`
	Reason          string              `json:"reason"`
	Log             string              `json:"log"`
	MaxLogLines     int                 `json:"max_log_lines"`
	Authority       *[]string           `json:"authority"`
	Additional      *[]string           `json:"additional"`
	Pinned          map[string][]string `json:"pinned"`
	NotPinned       []string            `json:"not_pinned"`
	Proxy           *dnsProxy           `json:"proxy"`
}

// dnsProxy is a CONNECT of the same session after the question.
type dnsProxy struct {
	Connect         string   `json:"connect"`
	Dials           []string `json:"dials"`
	Never           []string `json:"never"`
	Status          int      `json:"status"`
	UpstreamQueries *int     `json:"upstream_queries"`
}

// examples are the networks that the cases take for public ones, and networks that
// are. The appliance knows the former for what they are, so the cases are read with
// the latter in their place.
var examples = strings.NewReplacer("203.0.113.", "93.184.216.", "2001:db8:", "2606:2800:")

// readDNSCases reads files as readCases does. Unlike there, a field that nobody looks
// at is a fault of its case: it would be a promise that nobody keeps.
func readDNSCases(files []string) ([]*dnsCase, error) {
	var cases []*dnsCase
	for _, name := range files {
		defaults := defaultDNSOpts()
		err := eachLine(name, func(l line) {
			c := parseDNSCase([]byte(examples.Replace(string(l.text))), defaults)
			if c.ID == "_defaults" && c.bad == nil {
				defaults = c.Opts
			}
			if strings.HasPrefix(c.ID, "_") && c.bad == nil {
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

func parseDNSCase(line []byte, defaults dnsOpts) *dnsCase {
	c := &dnsCase{Opts: defaults}
	if err := strictly(line, c); err != nil {
		var id struct {
			ID string `json:"id"`
		}
		_ = json.Unmarshal(line, &id)
		return &dnsCase{ID: id.ID, bad: fmt.Errorf("parse case: %w", err)}
	}
	switch {
	case strings.HasPrefix(c.ID, "_"):
	case c.Query == nil:
		c.bad = errors.New("parse case: no query")
	case c.Expect == nil || c.Expect.Rcode == "":
		c.bad = errors.New("parse case: no expect")
	default:
		c.bad = c.vet()
	}
	return c
}

// strictly decodes JSON and refuses fields that are not known.
func strictly(raw []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// vet reads what is text in a case, so that what cannot be sent shows at once.
func (c *dnsCase) vet() error {
	queries := []*dnsQuery{c.Query}
	scripts := []*dnsUpstream{c.Upstream}
	for i := range c.Before {
		queries = append(queries, &c.Before[i].Query)
		scripts = append(scripts, c.Before[i].Upstream)
	}
	for _, q := range queries {
		if _, err := q.wire(0); err != nil {
			return err
		}
	}
	for _, u := range scripts {
		if err := u.vet(); err != nil {
			return err
		}
	}
	for _, code := range []*int{c.Expect.EDE, c.Expect.NoEDE} {
		if code != nil && (*code < 0 || *code > math.MaxUint16) {
			return fmt.Errorf("parse expect: %d is no number of an explanation; want 0 to %d", *code, math.MaxUint16)
		}
	}
	if c.Expect.Log != "" && c.Expect.Log != logEntropy {
		return fmt.Errorf("parse expect.log: %q is not known", c.Expect.Log)
	}
	return nil
}

// wanted is the expectation in words.
func (c *dnsCase) wanted() string {
	if c.bad != nil {
		return "a case"
	}
	out := c.Expect.Rcode
	if len(c.Expect.Answers) > 0 {
		out += " " + strings.Join(c.Expect.Answers, ", ")
	}
	if c.Expect.Reason != "" {
		out += " (" + c.Expect.Reason + ")"
	}
	return out
}
