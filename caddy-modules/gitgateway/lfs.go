package gitgateway

import (
	"fmt"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

func (h *Handler) checkLFS() error {
	switch h.LFS {
	case "", "on", "off":
		return nil
	default:
		return fmt.Errorf("lfs %q is neither on nor off", h.LFS)
	}
}

func (h *Handler) unmarshalLFS(d *caddyfile.Dispenser) error {
	if !d.AllArgs(&h.LFS) {
		return d.ArgErr()
	}
	if h.LFS == "" {
		h.LFS = " " // written as nothing, which is no word
	}
	return wrap(d, h.checkLFS())
}
