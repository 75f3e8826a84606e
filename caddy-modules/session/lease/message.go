package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"postern/launcher/spec"
)

// Version is the wire version this package speaks, and the only one.
const Version = 1

// Codes of refusals. They are stable: programs branch on them.
const (
	CodeBadRequest     = "bad_request"     // malformed, or a field that is wrong by itself
	CodeBadDescriptors = "bad_descriptors" // not exactly the listeners and sockets that the hello names
	CodeTooLarge       = "too_large"       // longer than MaxMessage
	CodeTimeout        = "timeout"         // the message did not arrive in time
	CodeVersion        = "version"         // another wire version
	CodeNotPermitted   = "not_permitted"   // the peer is another user
	CodeInUse          = "in_use"          // a live session has that id
	CodeUnknownPolicy  = "unknown_policy"  // the configuration has no such policy
	CodeBadRule        = "bad_rule"        // a rule of the session does not parse
	CodeConflict       = "conflict"        // the id is taken by a session with other content
	CodeNotConfigured  = "not_configured"  // no configuration governs
	CodeNotFound       = "not_found"       // no such session
	CodeOwnPort        = "own_port"        // a host port of a launcher is one of the appliance's own
	CodeUnavailable    = "unavailable"     // something the session needs cannot be had now
	CodeEnded          = "ended"           // the session was ended on request: lending it again is pointless
	CodeClosing        = "closing"         // the appliance is shutting down
)

// Hello is what a launcher sends, with descriptors attached: the HTTP listener first,
// the SOCKS listener second, then those of Sockets.
type Hello struct {
	Version int  `json:"version"`
	Spec    Spec `json:"spec"`

	// PID is the launcher's own idea of its process id, for people. The one
	// that counts is asked of the kernel.
	PID int `json:"pid,omitempty"`

	// Login is what clients of the listeners must present. A launcher whose
	// listeners are on the host's loopback sets one.
	Login *Login `json:"login,omitempty"`

	// HostPorts are the ports of this host's loopback that the launcher leads the run
	// to, past the proxies. They must not be the appliance's own.
	HostPorts []uint16 `json:"hostPorts,omitempty"`

	// Sockets are what the launcher lends besides, in the order of their descriptors.
	// Lend fills it in.
	Sockets []Socket `json:"sockets,omitempty"`

	// Resume is set by a launcher whose appliance was restarted.
	Resume *Resume `json:"resume,omitempty"`
}

// maxHostPorts bounds Hello.HostPorts.
const maxHostPorts = 64

// Resume hands back what a lost appliance knew and nobody wrote down.
type Resume struct {
	// ReadToken is the token the earlier answer carried. The appliance adopts
	// it, so that it is revoked when the session ends.
	ReadToken string `json:"readToken,omitempty"`

	// Born is the earlier answer's Born.
	Born string `json:"born,omitempty"`

	// Limits are the session's own, as Terms had them; nil is none.
	Limits *Caps `json:"limits,omitempty"`
}

// Answer is the appliance's one reply to a hello.
type Answer struct {
	OK    bool   `json:"ok"`
	Error *Error `json:"error,omitempty"`

	Session Info `json:"session,omitzero"`

	// ReadToken lets the run fetch from its forge; it cannot push. Empty when
	// no forge is configured or the session has no repository.
	ReadToken        string    `json:"readToken,omitempty"`
	ReadTokenExpires time.Time `json:"readTokenExpires,omitzero"`

	Git Git `json:"git,omitzero"`

	// DNS says how the lent sockets are served: DNSFake, DNSAnswer, or empty for not at
	// all. The launcher closes what is not served.
	DNS string `json:"dns,omitempty"`

	// Login is what clients of the listeners must present, of a session of the
	// control API that asked for credentials.
	Login *Login `json:"login,omitempty"`

	// Handle is the specification's SandboxHandle, for hosts of the control API.
	Handle *spec.Handle `json:"handle,omitempty"`

	// Born is different for every start of the appliance.
	Born string `json:"born,omitempty"`
}

// The ways in which names are answered on lent sockets.
const (
	// DNSFake answers with an address that stands for the name and leads to the
	// transparent sockets.
	DNSFake = "fake"
	// DNSAnswer answers with the addresses of the name.
	DNSAnswer = "answer"
)

// Git says where pushes go.
type Git struct {
	URL    string   `json:"url,omitempty"`    // "http://git.internal/"
	Forges []string `json:"forges,omitempty"` // hosts whose pushes it takes: "github.com"
}

// Error is a refusal on the wire, here and in the control API.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Info describes a session to people and programs. It holds no secrets.
type Info struct {
	ID                 string    `json:"id"`
	Kind               string    `json:"kind"` // "lease" or "api"
	Policy             string    `json:"policy"`
	NetworkEnabled     bool      `json:"networkEnabled"`
	EgressAllowlist    []string  `json:"egressAllowlist,omitempty"`
	Repository         string    `json:"repository,omitempty"`
	LinkedRepositories []string  `json:"linkedRepositories,omitempty"`
	Agent              string    `json:"agent,omitempty"`
	Workspace          string    `json:"workspace,omitempty"`
	Owner              int       `json:"owner"`                 // uid of who made it
	PID                int       `json:"pid,omitempty"`         // process that holds the lease
	HostPorts          []uint16  `json:"hostPorts,omitempty"`   // of this host, that the launcher leads the run to
	Network            string    `json:"network"`               // "tcp" or "unix"
	HTTP               string    `json:"http"`                  // address of the HTTP proxy
	SOCKS              string    `json:"socks"`                 // address of the SOCKS proxy
	Credentials        bool      `json:"credentials,omitempty"` // clients must present a login
	DNS                string    `json:"dns,omitempty"`         // how names are answered on lent sockets
	Opened             time.Time `json:"opened"`
	Tunnels            int       `json:"tunnels"`           // open now
	Denied             uint64    `json:"denied"`            // decisions against, since it was opened
	Refusing           string    `json:"refusing,omitzero"` // why everything is refused, if it is
}

// redacted stands for a secret wherever one might be printed by accident.
const redacted = "REDACTED"

// LogValue keeps the token out of logs.
func (r Resume) LogValue() slog.Value {
	return slog.GroupValue(slog.String("read_token", hide(r.ReadToken)), slog.String("born", r.Born))
}

// Format keeps the token out of everything fmt prints, %#v included.
func (r Resume) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "resume of %s (read token %s)", r.Born, hide(r.ReadToken))
}

// LogValue keeps the token out of logs.
func (a Answer) LogValue() slog.Value {
	attrs := []slog.Attr{slog.Bool("ok", a.OK), slog.String("session", a.Session.ID), slog.String("read_token", hide(a.ReadToken))}
	if a.Error != nil {
		attrs = append(attrs, slog.String("code", a.Error.Code), slog.String("error", a.Error.Message))
	}
	return slog.GroupValue(attrs...)
}

// Format keeps the token out of everything fmt prints, %#v included.
func (a Answer) Format(f fmt.State, _ rune) {
	if a.Error != nil {
		_, _ = fmt.Fprintf(f, "answer: refused (%s): %s", a.Error.Code, a.Error.Message)
		return
	}
	_, _ = fmt.Fprintf(f, "answer: session %s (read token %s)", a.Session.ID, hide(a.ReadToken))
}

func hide(secret string) string {
	if secret == "" {
		return "none"
	}
	return redacted
}

// decodeHello reads the line of a hello, strictly.
func decodeHello(line []byte) (Hello, *Error) {
	// The version is looked at first and alone: a launcher of another version
	// may well send fields this one does not know, and should be told so.
	var v struct {
		Version *int `json:"version"`
	}
	if json.Unmarshal(line, &v) == nil && v.Version != nil && *v.Version != Version {
		return Hello{}, &Error{CodeVersion, fmt.Sprintf("this appliance speaks version %d of the lease, the launcher version %d; install both from one build", Version, *v.Version)}
	}
	var h Hello
	if err := decodeStrict(line, &h); err != nil {
		return Hello{}, &Error{CodeBadRequest, "decode hello: " + err.Error()}
	}
	if err := h.validate(); err != nil {
		return Hello{}, &Error{CodeBadRequest, err.Error()}
	}
	return h, nil
}

func (h Hello) validate() error {
	if h.Version != Version {
		return fmt.Errorf("validate version: %d, want %d", h.Version, Version)
	}
	if h.PID < 0 {
		return fmt.Errorf("validate pid: %d", h.PID)
	}
	if len(h.HostPorts) > maxHostPorts {
		return fmt.Errorf("validate hostPorts: %d ports, at most %d", len(h.HostPorts), maxHostPorts)
	}
	if slices.Contains(h.HostPorts, 0) {
		return errors.New("validate hostPorts: 0 is not a port")
	}
	if err := validateSockets(h.Sockets); err != nil {
		return err
	}
	if h.Spec.Listen != nil {
		return errors.New("validate spec.listen: a lease brings its own listeners")
	}
	if err := h.Login.validate("login"); err != nil {
		return err
	}
	if h.Resume != nil {
		if err := validateText("resume.readToken", h.Resume.ReadToken, 4096); err != nil {
			// Never the error's own text: it may quote the token.
			return errors.New("validate resume.readToken: not a token")
		}
		if err := validateText("resume.born", h.Resume.Born, maxLabel); err != nil {
			return err
		}
		if h.Resume.Limits != nil {
			if err := h.Resume.Limits.Validate(); err != nil {
				return err
			}
		}
	}
	return h.Spec.Validate()
}

// encodeLine makes one line of v. encoding/json escapes newlines, so the only
// one is the last byte.
func encodeLine(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	if buf.Len() > MaxMessage {
		return nil, fmt.Errorf("encode message: %d bytes, at most %d", buf.Len(), MaxMessage)
	}
	return buf.Bytes(), nil
}
