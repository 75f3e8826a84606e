package egress

import (
	"time"

	"postern/dnsguard"
)

// linger is how long the guard of an old configuration is kept for lookups that
// began with it. A lookup takes 4.5 s at most.
const linger = 10 * time.Second

// guard makes the guard of this configuration, with what conf has besides.
func (d *DNS) guard(conf dnsguard.Config) (*dnsguard.Guard, error) {
	if d != nil {
		conf.Upstreams = d.Upstreams
		conf.MaxTTL = time.Duration(d.MaxTTL)
	}
	return dnsguard.New(conf)
}
