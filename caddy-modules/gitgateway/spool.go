package gitgateway

import (
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"postern/caddy-modules/egress"
	"postern/caddy-modules/policy"
	"postern/gitgw"
)

// Spool says where packs are kept while rules look into them.
type Spool struct {
	// A folder that nobody but the appliance's user may look into (mode 0700). It has
	// to be there. Default: `spool` in the run directory, which is made when needed.
	Dir string `json:"dir,omitempty"`

	// The most bytes of all runs' packs together. Default: 8 GiB.
	Total int64 `json:"total,omitempty"`

	// The most bytes of one run's packs. Default: 2 GiB.
	Run int64 `json:"run,omitempty"`
}

// inspections counts what is kept and looked into for the process: a push that an older
// configuration began takes of the same disk.
var inspections = new(gitgw.Inspections)

// provisionSpool checks where packs are kept: what is missing is said now, and not by
// the first push.
func (h *Handler) provisionSpool() error {
	g := h.gateway
	g.Inspections = inspections
	if h.Spool == nil {
		h.Spool = &Spool{}
	}
	if err := h.Spool.check(); err != nil {
		return err
	}
	g.Limits.Spool, g.Limits.SpoolRun = h.Spool.Total, h.Spool.Run
	if h.Spool.Dir != "" {
		g.SpoolDir = h.Spool.Dir
		return nil
	}
	run, err := egress.RunDir(false)
	if err != nil {
		return err
	}
	g.SpoolDir, g.SpoolMake = filepath.Join(run, "spool"), true
	return nil
}

func (s *Spool) check() error {
	switch {
	case s.Total < 0 || s.Run < 0:
		return fmt.Errorf("spool %s: a size is negative; name sizes as in 8GiB", s.Dir)
	case s.Total > 0 && s.Run > s.Total:
		return fmt.Errorf("spool %s: one run may take %d bytes and all of them %d; name a run that is smaller than total", s.Dir, s.Run, s.Total)
	case s.Dir == "":
		return nil
	case !filepath.IsAbs(s.Dir):
		return fmt.Errorf("spool %q: name an absolute path", s.Dir)
	}
	if err := gitgw.CheckSpool(s.Dir); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	return nil
}

// unmarshalSpool reads `spool DIR [{ total SIZE; run SIZE }]`.
func (h *Handler) unmarshalSpool(d *caddyfile.Dispenser) error {
	h.Spool, h.Places.Spool = &Spool{}, egress.Origin(d).String()
	if !d.AllArgs(&h.Spool.Dir) {
		return egress.Want(d, "spool DIR [{ total SIZE; run SIZE }]")
	}
	if !filepath.IsAbs(h.Spool.Dir) {
		return d.Errf("spool %q: name an absolute path", h.Spool.Dir)
	}
	return options(d, "spool", map[string]option{"total": size("total", &h.Spool.Total), "run": size("run", &h.Spool.Run)})
}

// size is an option that is a number of bytes, with its unit.
func size(name string, into *int64) option {
	return option{"SIZE, as in 500MB or 8GiB", func(text string) (err error) {
		*into, err = egress.ParseSize(name, text)
		return err
	}}
}

// vet lets Git LFS objects go where the appliance lets any run go without a rule for it.
func vet(addr netip.Addr) error {
	if class, _ := policy.Classify(addr); class != policy.Public {
		return fmt.Errorf("it is %s", class.Sentence())
	}
	return nil
}
