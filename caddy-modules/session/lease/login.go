package lease

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net/url"
)

// Login is what clients of a session's listeners present, where other processes of the
// host can connect to them as well: HTTP Basic at the HTTP proxy, RFC 1929 at the SOCKS
// proxy.
type Login struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

// LoginUser is the user of every Login that NewLogin makes.
const LoginUser = "postern"

// minPassword keeps a password from being guessed: 22 of 64 characters are 132 bits.
const minPassword = 22

// NewLogin makes a Login with a password of its own.
func NewLogin() *Login { return &Login{LoginUser, rand.Text()} }

// Userinfo is the Login as it stands before the @ of a URL. Nothing in it needs
// quoting.
func (l *Login) Userinfo() *url.Userinfo {
	if l == nil {
		return nil
	}
	return url.UserPassword(l.User, l.Password)
}

// Equal compares in a time that does not depend on the passwords.
func (l *Login) Equal(other *Login) bool {
	if l == nil || other == nil {
		return l == other
	}
	return l.User == other.User && subtle.ConstantTimeCompare([]byte(l.Password), []byte(other.Password)) == 1
}

// validate never says what is wrong with a password by showing it.
func (l *Login) validate(field string) error {
	if l == nil {
		return nil
	}
	if !isName(l.User, maxID, "_-") {
		return fmt.Errorf("validate %s.user: %q is not 1 to %d of A-Z a-z 0-9 _ -", field, clip(l.User), maxID)
	}
	if len(l.Password) < minPassword || !isName(l.Password, 2*maxID, "_-") {
		return fmt.Errorf("validate %s.password: not %d to %d of A-Z a-z 0-9 _ -", field, minPassword, 2*maxID)
	}
	return nil
}

// LogValue keeps the password out of logs.
func (l Login) LogValue() slog.Value {
	return slog.GroupValue(slog.String("user", l.User), slog.String("password", hide(l.Password)))
}

// Format keeps the password out of everything fmt prints, %#v included.
func (l Login) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "login of %s (password %s)", l.User, hide(l.Password))
}
