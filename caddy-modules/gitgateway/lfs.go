package gitgateway

import (
	"fmt"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"postern/caddy-modules/egress"
)

func (h *Handler) checkLFS() error {
	switch h.LFS {
	case "", "on", "off":
		return nil
	default:
		return fmt.Errorf("lfs %q is neither on nor off; want lfs on|off", h.LFS)
	}
}

func (h *Handler) unmarshalLFS(d *caddyfile.Dispenser) error {
	if !d.AllArgs(&h.LFS) {
		return egress.Want(d, "lfs on|off")
	}
	if h.LFS == "" {
		h.LFS = " " // written as nothing, which is no word
	}
	return wrap(d, h.checkLFS())
}
