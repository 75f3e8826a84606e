package proxy

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"strings"
)

// Login is what every client of a server must present, where others than its session
// can connect: on a loopback that processes of the host share. It keeps no password.
type Login struct{ user, password [sha256.Size]byte }

// NewLogin makes a Login of a user and a password; neither may be empty.
func NewLogin(user, password string) *Login {
	return &Login{sha256.Sum256([]byte(user)), sha256.Sum256([]byte(password))}
}

// matches compares in a time that depends on neither text.
func (l *Login) matches(user, password string) bool {
	u, p := sha256.Sum256([]byte(user)), sha256.Sum256([]byte(password))
	return subtle.ConstantTimeCompare(u[:], l.user[:])&subtle.ConstantTimeCompare(p[:], l.password[:]) == 1
}

// String keeps even the sums out of what fmt prints.
func (*Login) String() string { return "a login" }

// maxLogin bounds the encoded credentials of a request, in bytes: those of RFC 1929 have
// 255 bytes each.
const maxLogin = 1024

// authorization reads the one Proxy-Authorization field that a request may have
// (RFC 9110 section 11.7.2, RFC 7617).
func (r *request) authorization() (user, password string, ok bool) {
	found := false
	for _, f := range r.fields {
		if !strings.EqualFold(f.name, "Proxy-Authorization") {
			continue
		}
		if found {
			return "", "", false // of two, somebody could mean the other
		}
		found = true
		scheme, encoded, _ := strings.Cut(f.value, " ")
		if !strings.EqualFold(scheme, "Basic") || len(encoded) > maxLogin {
			return "", "", false
		}
		plain, err := base64.StdEncoding.DecodeString(strings.TrimLeft(encoded, " "))
		if err != nil {
			return "", "", false
		}
		user, password, ok = strings.Cut(string(plain), ":")
	}
	return user, password, ok
}

// loggedIn reports whether the request was sent by the session. Each request says so for
// itself; one inside a tunnel came with the tunnel's.
func (f *flow) loggedIn() bool {
	if f.s.Login == nil {
		return true
	}
	user, password, ok := f.req.authorization()
	return ok && f.s.Login.matches(user, password)
}

// demandLogin answers a request without the session's credentials. It says whether the
// client may ask again on the same connection, as those do that wait for a challenge.
func (f *flow) demandLogin() bool {
	f.noteStranger()
	const sentence = "the credentials of the session are missing or wrong"
	return f.say(reply{
		status:    http.StatusProxyAuthRequired,
		phrase:    sentence,
		decision:  "none",
		reason:    "login_required",
		body:      "Postern does not know whose request this is: " + sentence + ".\nThe proxy URL in HTTP_PROXY carries them; nothing was looked up or connected to.\n",
		challenge: true,
		// Content that nobody will read is not waited for.
		close: f.req.close || f.req.hasBody(),
	})
}

// noteStranger counts and logs a client without the session's credentials.
func (f *flow) noteStranger() {
	f.s.count.unadmitted.Add(1)
	f.s.warn("a client came without the session's credentials",
		slog.String("client", f.clientName()), slog.Int64("so_far", f.s.count.unadmitted.Load()))
}

// Numbers of RFC 1929.
const (
	loginVersion  = 1
	loginAccepted = 0
	loginRefused  = 1
)

var errLogin = errors.New("socks: wrong user or password")

// socksLogin runs the negotiation of RFC 1929. What it answers to a wrong password is
// its last word.
func (f *flow) socksLogin() bool {
	err := f.socksMessage(func(b []byte) (int, error) {
		user, password, n, err := readLogin(b)
		if err == nil && !f.s.Login.matches(user, password) {
			err = errLogin
		}
		return n, err
	})
	switch {
	case err == nil:
		_, err = f.client.Write([]byte{loginVersion, loginAccepted})
		return err == nil
	case errors.Is(err, errLogin):
		f.noteStranger()
		f.saySocks([]byte{loginVersion, loginRefused})
	default:
		f.refuseSocks(err, func(byte) []byte { return []byte{loginVersion, loginRefused} })
	}
	return false
}

// readLogin reads the request of RFC 1929 section 2.
func readLogin(b []byte) (user, password string, n int, err error) {
	switch {
	case len(b) >= 1 && b[0] != loginVersion:
		return "", "", 0, &socksError{reply: loginRefused, reason: "another version of the login than 1"}
	case len(b) < 2:
		return "", "", 0, errShort
	}
	end := 2 + int(b[1])
	if len(b) < end+1 {
		return "", "", 0, errShort
	}
	n = end + 1 + int(b[end])
	if len(b) < n {
		return "", "", 0, errShort
	}
	return string(b[2:end]), string(b[end+1 : n]), n, nil
}
