package lease

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a Spec. They are generous for people and small for memory: the
// largest valid Spec still fits a hello.
const (
	// MaxMessage bounds a hello, an answer, an event and a request body, in bytes.
	MaxMessage = 64 << 10

	maxID     = 64
	maxLabel  = 256  // agent, workspace, repository
	maxRule   = 512  // one line of an allowlist
	maxRules  = 1024 // lines of an allowlist
	maxLinked = 256  // linked repositories
)

// Networks an API session may ask its listeners on.
const (
	NetworkTCP  = "tcp"
	NetworkUnix = "unix"
)

// Spec says what a session is. It is the one wire form: the body of a PUT on
// the control API and the middle of a hello.
type Spec struct {
	// ID names the session: 1 to 64 of A-Z a-z 0-9 _ -.
	ID string `json:"id"`

	// Policy names a policy of the configuration; empty means its default.
	Policy string `json:"policy,omitempty"`

	// NetworkEnabled false keeps the listeners up and refuses everything sent
	// to them. Nil means true.
	NetworkEnabled *bool `json:"networkEnabled,omitempty"`

	// EgressAllowlist adds rules to the policy for this session alone, one rule
	// an element, in the syntax of a list file.
	EgressAllowlist []string `json:"egressAllowlist,omitempty"`

	// Repository is the run's own repository, as github.com/owner/name.
	Repository string `json:"repository,omitempty"`

	// LinkedRepositories may be pushed to besides, in the same form.
	LinkedRepositories []string `json:"linkedRepositories,omitempty"`

	// Agent and Workspace are names for people and audit records.
	Agent     string `json:"agent,omitempty"`
	Workspace string `json:"workspace,omitempty"`

	// Listen asks the appliance for listeners. Sessions of the control API
	// alone have it: a launcher brings its own.
	Listen *Listen `json:"listen,omitempty"`

	// Sandbox is what a host says of the sandbox it makes, see DecodeBody; nil is
	// nothing. It is not of the wire form: a launcher makes its own.
	Sandbox *Sandbox `json:"-"`
}

// Listen says where an API session's listeners shall be.
type Listen struct {
	// Network is "tcp" (127.0.0.1) or "unix" (sockets of mode 0600).
	Network string `json:"network"`

	// HTTP and SOCKS are addresses; empty means that one is allocated. A host
	// that PUTs a session again after a restart names those it had before.
	HTTP  string `json:"http,omitempty"`
	SOCKS string `json:"socks,omitempty"`

	// Credentials asks that clients present a login. It is in the answer. A
	// host that PUTs a session again after a restart names the one it had.
	Credentials bool   `json:"credentials,omitempty"`
	Login       *Login `json:"login,omitempty"`
}

// Network reports whether the session may use the network at all.
func (s Spec) Network() bool { return s.NetworkEnabled == nil || *s.NetworkEnabled }

// DecodeSpec reads one Spec of at most MaxMessage bytes and validates it. A
// field it does not know, a field given twice, a null and anything behind the
// value are errors that name what is wrong.
func DecodeSpec(r io.Reader) (Spec, error) { return DecodeSpecFor(r, "") }

// DecodeSpecFor is DecodeSpec for a Spec whose id is known from elsewhere, the
// path of a request: it may be left out, and must not be another one.
func DecodeSpecFor(r io.Reader, id string) (Spec, error) {
	data, err := readMessage(r, "session")
	if err != nil {
		return Spec{}, err
	}
	var s Spec
	if err := decodeStrict(data, &s); err != nil {
		return Spec{}, fmt.Errorf("decode session: %w", err)
	}
	if s.ID == "" {
		s.ID = id
	}
	if id != "" && s.ID != id {
		return Spec{}, fmt.Errorf("decode session: the id %q in the body is not the id %q of the request", clip(s.ID), clip(id))
	}
	if err := s.Validate(); err != nil {
		return Spec{}, err
	}
	return s, nil
}

// Validate checks everything about a Spec that can be checked without a
// configuration. Rules are checked for size and control bytes here and parsed
// by who compiles them.
func (s Spec) Validate() error {
	if err := ValidateID(s.ID); err != nil {
		return err
	}
	if s.Policy != "" && !isName(s.Policy, maxID, "_-.") {
		return fmt.Errorf("validate policy: %q is not a policy name (1 to %d of A-Z a-z 0-9 _ - .)", clip(s.Policy), maxID)
	}
	if err := validateRules(s.EgressAllowlist); err != nil {
		return err
	}
	if s.Repository != "" {
		if err := validateRepository("repository", s.Repository); err != nil {
			return err
		}
	}
	if len(s.LinkedRepositories) > maxLinked {
		return fmt.Errorf("validate linkedRepositories: %d entries, at most %d", len(s.LinkedRepositories), maxLinked)
	}
	for i, repo := range s.LinkedRepositories {
		if err := validateRepository(fmt.Sprintf("linkedRepositories[%d]", i), repo); err != nil {
			return err
		}
	}
	if err := validateText("agent", s.Agent, maxLabel); err != nil {
		return err
	}
	if err := validateText("workspace", s.Workspace, maxLabel); err != nil {
		return err
	}
	if s.Listen != nil {
		return s.Listen.validate()
	}
	return nil
}

// ValidateID checks a session id. Ids become file names, log attributes and
// parts of URLs, so nothing that needs quoting anywhere is allowed in one.
func ValidateID(id string) error {
	if !isName(id, maxID, "_-") {
		return fmt.Errorf("validate id: %q is not a session id (1 to %d of A-Z a-z 0-9 _ -)", clip(id), maxID)
	}
	return nil
}

func validateRules(rules []string) error {
	if len(rules) > maxRules {
		return fmt.Errorf("validate egressAllowlist: %d rules, at most %d", len(rules), maxRules)
	}
	for i, rule := range rules {
		field := fmt.Sprintf("egressAllowlist[%d]", i)
		if strings.TrimSpace(rule) == "" {
			return fmt.Errorf("validate %s: the rule is empty", field)
		}
		if err := validateText(field, rule, maxRule); err != nil {
			return err
		}
	}
	return nil
}

// validateRepository wants exactly host/owner/name. What the parts mean is the
// git gateway's business; that they cannot climb or split is ours.
func validateRepository(field, text string) error {
	parts := strings.Split(text, "/")
	ok := len(text) <= maxLabel && len(parts) == 3
	for _, part := range parts {
		ok = ok && isName(part, maxLabel, "_-.") && part != "." && part != ".."
	}
	if !ok {
		return fmt.Errorf("validate %s: %q is not host/owner/name, as in github.com/acme/app", field, clip(text))
	}
	return nil
}

func validateText(field, text string, limit int) error {
	switch {
	case len(text) > limit:
		return fmt.Errorf("validate %s: %d bytes, at most %d", field, len(text), limit)
	case !utf8.ValidString(text):
		return fmt.Errorf("validate %s: not UTF-8", field)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("validate %s: %q contains a control character", field, clip(text))
	}
	return nil
}

func (l *Listen) validate() error {
	if err := l.Login.validate("listen.login"); err != nil {
		return err
	}
	if l.Login != nil && !l.Credentials {
		return errors.New("validate listen.login: credentials are not asked for")
	}
	switch l.Network {
	case NetworkTCP:
		return errors.Join(validateTCP("listen.http", l.HTTP), validateTCP("listen.socks", l.SOCKS), l.distinct())
	case NetworkUnix:
		return errors.Join(validatePath("listen.http", l.HTTP), validatePath("listen.socks", l.SOCKS), l.distinct())
	}
	return fmt.Errorf("validate listen.network: %q is neither %q nor %q", clip(l.Network), NetworkTCP, NetworkUnix)
}

func (l *Listen) distinct() error {
	if l.HTTP != "" && l.HTTP == l.SOCKS {
		return fmt.Errorf("validate listen: http and socks both name %s", clip(l.HTTP))
	}
	return nil
}

// validateTCP takes the canonical spelling of a 127.0.0.1 address alone: two
// spellings of one address would make one PUT look like two.
func validateTCP(field, text string) error {
	if text == "" {
		return nil
	}
	ap, err := netip.ParseAddrPort(text)
	if err != nil || ap.String() != text || ap.Addr() != netip.AddrFrom4([4]byte{127, 0, 0, 1}) || ap.Port() == 0 {
		return fmt.Errorf("validate %s: %q is not 127.0.0.1:PORT", field, clip(text))
	}
	return nil
}

func validatePath(field, text string) error {
	if text == "" {
		return nil
	}
	if err := validateText(field, text, maxLabel); err != nil {
		return err
	}
	if !filepath.IsAbs(text) || filepath.Clean(text) != text || text == "/" {
		return fmt.Errorf("validate %s: %q is not a clean absolute path", field, clip(text))
	}
	return nil
}

// isName reports whether text is 1 to limit bytes of ASCII letters, digits and
// the bytes of extra.
func isName(text string, limit int, extra string) bool {
	if text == "" || len(text) > limit {
		return false
	}
	for i := range len(text) {
		c := text[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && strings.IndexByte(extra, c) < 0 {
			return false
		}
	}
	return true
}

// clip keeps hostile text from filling an error message or a log line.
func clip(text string) string {
	const limit = 80
	if len(text) <= limit {
		return text
	}
	return text[:limit] + "…"
}
