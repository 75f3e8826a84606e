package gitgw

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// Token is a credential of a forge. Its value leaves it only through Value:
// however it is printed, logged or encoded, what appears is its ID.
type Token struct {
	value   string
	expires time.Time
}

// NewToken holds a token's value, opaque and of any length. expires may be zero
// when it is not known.
func NewToken(value string, expires time.Time) Token { return Token{value, expires} }

// Value is the secret itself.
func (t Token) Value() string { return t.value }

// Expires is when the forge forgets the token, zero when unknown.
func (t Token) Expires() time.Time { return t.expires }

// IsZero reports whether t holds no token.
func (t Token) IsZero() bool { return t.value == "" }

// ID names the token in logs and audit records without telling it: the first 16
// hex digits of its SHA-256, the form in which forges' audit logs can be asked.
func (t Token) ID() string {
	if t.IsZero() {
		return ""
	}
	sum := sha256.Sum256([]byte(t.value))
	return hex.EncodeToString(sum[:8])
}

// String is the redacted form.
func (t Token) String() string {
	if t.IsZero() {
		return "no token"
	}
	return "token sha256:" + t.ID()
}

// Format writes the redacted form for every verb, %#v and %q included.
func (t Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// GoString is the redacted form.
func (t Token) GoString() string { return t.String() }

// LogValue is the redacted form.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText writes the redacted form; it also serves encoding/json.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
