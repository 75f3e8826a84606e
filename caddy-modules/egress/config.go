package egress

import (
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/proxy"
	"postern/caddy-modules/session"
)

// Policy says what the sessions that name it may reach. The zero value allows
// nothing, which is how a policy for work without a network is written.
type Policy struct {
	// Allow the built-in list of model providers, source hosts and package
	// registries, besides the rules of this policy. Default: false.
	Baseline bool `json:"baseline,omitempty"`

	// The rules that allow. What none of them names is refused. Default: none.
	Allow []Rule `json:"allow,omitempty"`

	// Files with one rule a line that allow as well, read when the configuration is
	// loaded. A relative path is one below the working directory. Default: none.
	AllowFiles []string `json:"allow_files,omitempty"`

	// The rules that refuse what a rule above allows. Default: none.
	Deny []Rule `json:"deny,omitempty"`

	// Files with one rule a line that refuse as well. Default: none.
	DenyFiles []string `json:"deny_files,omitempty"`

	// What an approver is asked about first. Default: none.
	Ask []Rule `json:"ask,omitempty"`

	// Ask about everything that no rule allows or refuses, this machine and private
	// addresses excepted. Default: false.
	AskAny bool `json:"ask_any,omitempty"`

	// `on` refuses what the rules refuse. `off` lets it through and tells in the log
	// what would have been refused; what no rule can open is refused all the same.
	// Default: `on`.
	Enforce string `json:"enforce,omitempty"`

	// The list file to which a host is written that an approver has allowed for always:
	// a regular file of this user's, in a folder to which nobody else may write, that
	// this policy reads as a list. Default: none; then nobody can allow for always.
	AlwaysList string `json:"always_list,omitempty"`

	// What one session of this policy may have open and move, where that is less than
	// the limits of all. Default: no more bounds.
	Limits *Limits `json:"limits,omitempty"`
}

// Sessions holds what concerns the sessions of the control API.
type Sessions struct {
	// The ports of 127.0.0.1 from which listeners are allocated to sessions that
	// ask for TCP without naming an address, as FIRST-LAST. Default: 20000-29999.
	Ports string `json:"ports,omitempty"`
}

// Timeouts bounds what a client or an upstream may take. An absent value means
// the default of package proxy.
type Timeouts struct {
	// From the first byte of a request to the end of its header.
	Header caddy.Duration `json:"header,omitempty"`

	// From the opening of a tunnel to port 443 to the end of the ClientHello.
	Hello caddy.Duration `json:"hello,omitempty"`

	// For one connection to an upstream.
	Dial caddy.Duration `json:"dial,omitempty"`

	// Without a byte in either direction.
	Idle caddy.Duration `json:"idle,omitempty"`

	// For a tunnel from its opening to its end.
	Total caddy.Duration `json:"total,omitempty"`
}

func (t *Timeouts) limits() proxy.Limits {
	if t == nil {
		return proxy.Limits{}
	}
	return proxy.Limits{
		Header: time.Duration(t.Header),
		Hello:  time.Duration(t.Hello),
		Dial:   time.Duration(t.Dial),
		Idle:   time.Duration(t.Idle),
		Total:  time.Duration(t.Total),
	}
}

func (t *Timeouts) validate() error {
	if t == nil {
		return nil
	}
	for _, f := range []struct {
		name  string
		value caddy.Duration
	}{{"header", t.Header}, {"hello", t.Hello}, {"dial", t.Dial}, {"idle", t.Idle}, {"total", t.Total}} {
		if f.value < 0 {
			return fmt.Errorf("timeouts: %s is negative", f.name)
		}
	}
	return nil
}

// defaultPorts is the range of a configuration that names none.
const defaultPorts = session.DefaultPorts

// ports returns the range, which has been checked, or will fail where it is used.
func (s *Sessions) ports() string {
	if s == nil || s.Ports == "" {
		return defaultPorts
	}
	return s.Ports
}

// parsePorts reads FIRST-LAST. Two ports are the least: a session has a pair.
func parsePorts(text string) (first, last uint16, err error) {
	a, b, ok := cutRange(text)
	if !ok {
		return 0, 0, fmt.Errorf("parse ports %q: want FIRST-LAST, as in 20000-29999", text)
	}
	if first, err = policy.ParsePort(a); err != nil {
		return 0, 0, fmt.Errorf("parse ports %q: %w", text, err)
	}
	if last, err = policy.ParsePort(b); err != nil {
		return 0, 0, fmt.Errorf("parse ports %q: %w", text, err)
	}
	if first >= last {
		return 0, 0, fmt.Errorf("parse ports %q: want at least two ports, the lower one first", text)
	}
	return first, last, nil
}
