package session

import (
	"postern/caddy-modules/proxy"
	"postern/caddy-modules/session/lease"
)

// loginOf is what the clients of a session must present, nil for nothing. tell says
// whether this system tells whose a connection on loopback is.
//
// Inside a sandbox's network nobody else can connect. On the loopback of the host every
// process can: there, who holds the session's secret is the session.
func loginOf(o order, tell bool) (*lease.Login, error) {
	if o.kind == kindAPI {
		switch listen := o.spec.Listen; {
		case listen == nil || !listen.Credentials:
			return nil, nil //nolint:nilnil // none is wanted
		case listen.Login != nil:
			return listen.Login, nil
		default:
			return lease.NewLogin(), nil
		}
	}
	if o.login == nil && !tell {
		return nil, &lease.Error{Code: lease.CodeBadRequest, Message: "the launcher sent no login; on this system every process of the host could use the run's listeners: install launcher and appliance from one build"}
	}
	return o.login, nil
}

// proxyLogin is the login in the form that the proxies keep.
func (s *session) proxyLogin() *proxy.Login {
	if s.login == nil {
		return nil
	}
	return proxy.NewLogin(s.login.User, s.login.Password)
}
