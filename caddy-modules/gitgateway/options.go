package gitgateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"postern/caddy-modules/egress"
)

// options reads a block of NAME VALUE lines. The block may be missing; which
// values are needed is the caller's business.
func options(d *caddyfile.Dispenser, module string, fields map[string]*string) error {
	_, err := egress.Block(d, module, func() error {
		name := d.Val()
		into, ok := fields[name]
		switch {
		case !ok:
			return d.Errf("unrecognized %s option %q; want %s", module, name, strings.Join(slices.Sorted(maps.Keys(fields)), " or "))
		case *into != "":
			return d.Errf("%s is given twice", name)
		case !d.AllArgs(into):
			return d.ArgErr()
		case *into == "":
			return d.Errf("%s is empty", name)
		}
		return nil
	})
	return err
}

// setDuration reads a positive time; the empty text leaves the default.
func setDuration(name, text string, into *caddy.Duration) error {
	if text == "" {
		return nil
	}
	v, err := caddy.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("parse %s: %w", name, err)
	}
	if v <= 0 {
		return fmt.Errorf("parse %s: %s is not a positive time", name, v)
	}
	*into = caddy.Duration(v)
	return nil
}

// checkLine accepts text that git can print within one line of a status report:
// a line break would end the report's line, an escape would reach a terminal.
func checkLine(what, text string) error {
	const limit = 200
	switch {
	case strings.TrimSpace(text) == "":
		return fmt.Errorf("%s is empty", what)
	case len(text) > limit:
		return fmt.Errorf("%s is %d bytes long, at most %d", what, len(text), limit)
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }):
		return fmt.Errorf("%s %q holds a control character or is not UTF-8", what, text)
	}
	return nil
}

// wrap adds the place of the current token to an error.
func wrap(d *caddyfile.Dispenser, err error) error {
	if err == nil {
		return nil
	}
	return d.WrapErr(err)
}
