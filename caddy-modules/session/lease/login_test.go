package lease

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestLogin(t *testing.T) {
	l := NewLogin()
	if err := l.validate("login"); err != nil {
		t.Error(err)
	}
	if got := l.Userinfo().String(); got != l.User+":"+l.Password {
		t.Errorf("needs quoting: %s", got)
	}
	if other := NewLogin(); l.Equal(other) || !l.Equal(&Login{l.User, l.Password}) || l.Equal(nil) || !(*Login)(nil).Equal(nil) {
		t.Error("compares wrongly")
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", slog.Any("login", l), slog.Any("hello", Hello{Login: l}))
	text := fmt.Sprintf("%v %+v %#v %s %v %+v", *l, l, l, l, Hello{Login: l}, Listen{Login: l})
	if strings.Contains(text+log.String(), l.Password) {
		t.Errorf("printed %s %s", text, log.String())
	}
	for _, bad := range []*Login{{}, {LoginUser, ""}, {"", l.Password}, {"a:b", l.Password}, {LoginUser, l.Password[:21]}, {LoginUser, l.Password + ":"}, {LoginUser, strings.Repeat("x", 129)}} {
		if err := bad.validate("login"); err == nil || bad.Password != "" && strings.Contains(err.Error(), bad.Password) {
			t.Errorf("%q: %v", bad.User, err)
		}
	}
	if (*Login)(nil).Userinfo() != nil {
		t.Error("nobody has a name")
	}
}
