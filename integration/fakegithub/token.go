package fakegithub

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Token is a ledger entry: a token that was made, and what became of it.
type Token struct {
	Value        string
	Installation int64    // 0 for a token made by IssueToken
	Repositories []string // OWNER/NAME, sorted, at the time it was made
	Permissions  map[string]string
	Created      time.Time
	Expires      time.Time
	RevokedAt    time.Time // zero while not revoked
	Uses         int       // requests that carried it, whatever they were answered

	repoIDs []int64 // what it really covers: a rename does not change ids
}

// Revoked reports whether DELETE /installation/token ended it.
func (t Token) Revoked() bool { return !t.RevokedAt.IsZero() }

// CanWrite reports whether the token may push.
func (t Token) CanWrite() bool { return grants(t.Permissions, "contents", "write") }

// Long reports whether the token has the stateless form ghs_APPID_JWT.
func (t Token) Long() bool { return strings.Count(t.Value, ".") == 2 }

// TokenLifetime is GitHub's, for installation tokens.
const TokenLifetime = time.Hour

// TokenFormat chooses between GitHub's two forms of installation tokens.
type TokenFormat uint8

// LongTokens makes stateless tokens of 520 characters unless the request's
// X-GitHub-Stateless-S2S-Token header says "disabled"; ShortTokens makes those
// of 40 characters unless it says "enabled".
const (
	ShortTokens TokenFormat = iota
	LongTokens
)

// SetTokenFormat chooses the form of tokens made from now on.
func (s *Server) SetTokenFormat(f TokenFormat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longTokens = f == LongTokens
}

// Tokens is the ledger, oldest first.
func (s *Server) Tokens() []Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Token, 0, len(s.order))
	for _, v := range s.order {
		out = append(out, s.tokens[v].clone())
	}
	return out
}

// Token is the ledger entry of one token.
func (s *Server) Token(value string) (Token, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tokens[value]
	if t == nil {
		return Token{}, false
	}
	return t.clone(), true
}

// Live are the tokens that still work: neither expired nor revoked. After a
// session has ended there must be none.
func (s *Server) Live() []Token {
	now := s.Now()
	return slices.DeleteFunc(s.Tokens(), func(t Token) bool { return t.Revoked() || !now.Before(t.Expires) })
}

// WriteTokens are all tokens ever made that may push.
func (s *Server) WriteTokens() []Token {
	return slices.DeleteFunc(s.Tokens(), func(t Token) bool { return !t.CanWrite() })
}

// IssueToken makes a token out of band, as a person makes one on the web
// page: for tests of static tokens and of the read side alone. It covers the
// repositories named, which must exist, and lives for TokenLifetime.
func (s *Server) IssueToken(permissions map[string]string, repositories ...string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var repos []*repo
	for _, name := range repositories {
		r := s.repos[strings.ToLower(name)]
		if r == nil {
			return "", fmt.Errorf("issue token for %s: %w", name, ErrNoRepo)
		}
		repos = append(repos, r)
	}
	return s.issue(0, repos, permissions, s.longTokens).Value, nil
}

// issue enters a new token in the ledger. It is called with mu held.
func (s *Server) issue(installation int64, repos []*repo, permissions map[string]string, long bool) *Token {
	now := s.now()
	t := &Token{
		Installation: installation, Permissions: maps.Clone(permissions),
		Created: now, Expires: now.Add(TokenLifetime).Truncate(time.Second),
	}
	for _, r := range repos {
		t.repoIDs = append(t.repoIDs, r.id)
		t.Repositories = append(t.Repositories, r.full())
	}
	slices.Sort(t.Repositories)
	t.Value = shortToken()
	if long {
		t.Value = longToken(s.opts.AppID, now)
	}
	s.tokens[t.Value] = t
	s.order = append(s.order, t.Value)
	return t
}

func (t *Token) clone() Token {
	c := *t
	c.Repositories = slices.Clone(t.Repositories)
	c.Permissions = maps.Clone(t.Permissions)
	c.repoIDs = nil
	return c
}

// shortToken is ghs_ and 36 letters and digits, 40 characters.
func shortToken() string { return "ghs_" + rand.Text() + rand.Text()[:10] }

// longTokenLen is what GitHub announced: "about 520 characters".
const longTokenLen = 520

// longToken is ghs_APPID_JWT with two dots. Clients must take it as opaque and
// the fake looks tokens up in its ledger, so the third part is random bytes of
// the length of an RS256 signature rather than a signature.
func longToken(appID int64, now time.Time) string {
	sig := make([]byte, 256)
	_, _ = rand.Read(sig) // never fails
	b64 := base64.RawURLEncoding
	prefix := "ghs_" + strconv.FormatInt(appID, 10) + "_"
	tail := "." + b64.EncodeToString(sig)
	// Base64 has no texts of length 4n+1, so one header may make the exact
	// length unreachable; a second header of another length mends that.
	for _, header := range []string{`{"alg":"RS256","typ":"JWT"}`, `{"alg":"RS256","kid":"1"}`, `{"alg":"RS256"}`} {
		head := prefix + b64.EncodeToString([]byte(header)) + "."
		room := longTokenLen - len(head) - len(tail)
		for pad := range room {
			body := fmt.Sprintf(`{"iat":%d,"jti":"%s"}`, now.Unix(), (rand.Text() + rand.Text() + rand.Text() + rand.Text())[:min(pad, 104)])
			if b64.EncodedLen(len(body)) == room {
				return head + b64.EncodeToString([]byte(body)) + tail
			}
		}
	}
	// Only an app id of absurd length leads here; a shorter token is still a
	// valid one.
	return prefix + b64.EncodeToString([]byte(rand.Text())) + "." + b64.EncodeToString([]byte(rand.Text())) + tail
}
