package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
)

// ReadTokenPath is where a run asks the site of the push gateway for its own read
// token, with the forge's name as the one parameter `host`. The connection says
// which run it is; nobody can ask for another's.
const ReadTokenPath = "/.well-known/postern/read-token" //nolint:gosec // a path

// ReadToken is the answer there, with status 200: a token that lives for some
// minutes at least. 404 says that the run has none for that forge.
type ReadToken struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires,omitzero"`
}

// maxReadToken bounds the answer.
const maxReadToken = 16 << 10

// DecodeReadToken reads an answer. A token that holds anything but visible ASCII is
// an error: it is going to be a line of a protocol.
func DecodeReadToken(r io.Reader) (ReadToken, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxReadToken+1))
	if err != nil {
		return ReadToken{}, fmt.Errorf("read the read token: %w", err)
	}
	var t ReadToken
	// The decoder's error may quote what it read.
	if len(data) > maxReadToken || json.Unmarshal(data, &t) != nil {
		return ReadToken{}, errors.New("read the read token: the answer is none")
	}
	if t.Token == "" || strings.ContainsFunc(t.Token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return ReadToken{}, errors.New("read the read token: it is more than one word of ASCII")
	}
	return t, nil
}

// LogValue hides the token.
func (t ReadToken) LogValue() slog.Value {
	return slog.GroupValue(slog.String("read_token", hide(t.Token)), slog.Time("expires", t.Expires))
}

// Format hides the token, for every verb.
func (t ReadToken) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "read token %s until %s", hide(t.Token), t.Expires.Format(time.RFC3339))
}
