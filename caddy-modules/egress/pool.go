package egress

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/caddyserver/caddy/v2"

	"postern/caddy-modules/session"
	"postern/caddy-modules/session/lease"
	"postern/dnsguard"
	"postern/gitgw/mint"
)

// ledgerName is the file of the run directory that knows which tokens live.
const ledgerName = "tokens.ledger"

// pool holds the one registry of the process while any configuration uses it.
var pool = caddy.NewUsagePool()

const poolKey = "egress"

// shared is what the pool holds.
type shared struct {
	*session.Registry
	ledger  *mint.Ledger
	probing *probing
	names   *dnsguard.Store
	ports   string
}

// Destruct closes the ledger after the sessions, whose tokens it strikes out as
// they end. It implements [caddy.Destructor].
func (s shared) Destruct() error {
	s.probing.close()
	return errors.Join(s.Registry.Destruct(), s.ledger.Close())
}

// acquire returns the registry and the ledger, made by the first caller, and
// counts the caller as a user until release. The range of ports cannot change under sessions that
// have some of them, so another one is an error, and not silently the old one.
func acquire(ports string) (shared, error) {
	v, _, err := pool.LoadOrNew(poolKey, func() (caddy.Destructor, error) {
		dir, err := RunDir(false)
		if err != nil {
			return nil, err
		}
		return shared{
			Registry: session.New(session.Options{RunDir: dir, Ports: ports, Log: processLog(), Observe: observe, ObserveName: observeName}),
			ledger: mint.NewLedger(mint.LedgerOptions{
				Path:  filepath.Join(dir, ledgerName),
				Alive: func(holder string) bool { return lease.Process(holder).Alive() },
				Log:   processLog(),
			}),
			probing: new(probing),
			names:   new(dnsguard.Store),
			ports:   ports,
		}, nil
	})
	if err != nil {
		return shared{}, fmt.Errorf("make the registry of sessions: %w", err)
	}
	s := v.(shared)
	if s.ports != ports {
		_ = release() // not the last use: the configuration that has the other ports is one
		return shared{}, fmt.Errorf("sessions: the ports are %s while the appliance runs; restart it for %s", s.ports, ports)
	}
	return s, nil
}

// release gives up one use; the last one closes every session.
func release() error {
	_, err := pool.Delete(poolKey)
	return err
}

// current returns the registry, nil where no configuration has the app. Callers
// that live longer than a configuration, as the admin endpoint does after a
// failed reload, ask anew each time.
func current() *session.Registry {
	var r *session.Registry
	pool.Range(func(_, v any) bool {
		r = v.(shared).Registry
		return false
	})
	return r
}
