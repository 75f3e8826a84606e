package egress

import (
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"postern/caddy-modules/policy"
)

// Block calls line at the first word of each line of the block that opens next,
// and reports whether one opened at all. name is for the error of an empty block,
// which is what an import that matches no file leaves: Caddy merely warns of it,
// and a list that silently holds nothing is the worst of all typing errors.
func Block(d *caddyfile.Dispenser, name string, line func() error) (opened bool, err error) {
	begin, last := d.Token(), name
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		opened = true
		if d.ValRaw() == "{" {
			return true, d.Errf("%s takes no block", last)
		}
		last = d.Val()
		if err := line(); err != nil {
			return true, err
		}
	}
	// NextBlock stops on the closing brace of an empty block, and does not move
	// where there is no block. A quoted brace is an argument like any other.
	if !opened && d.ValRaw() == "}" {
		return true, emptyBlock(begin, name)
	}
	return opened, nil
}

func emptyBlock(begin caddyfile.Token, name string) error {
	return At(begin, fmt.Errorf("the block of %s is empty; an import that matches no file leaves nothing behind", name))
}

// Want is the error for a line with too few words or too many: it says how the line is
// written, where Caddy's own says only that it is not.
func Want(d *caddyfile.Dispenser, syntax string) error {
	return d.Errf("wrong argument count: want %s", syntax)
}

// ParseTime reads a time above zero. A bare number could be meant in any unit.
func ParseTime(name, text string) (caddy.Duration, error) {
	v, err := caddy.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("parse %s %q: want a time with its unit, as in 500ms, 10s or 2m", name, text)
	case v <= 0:
		return 0, fmt.Errorf("parse %s: %s is not a positive time; want one as in 10s or 2m", name, v)
	}
	return caddy.Duration(v), nil
}

// Origin is the place of the current token. An imported file has an absolute
// name there; one below the working directory, where the Caddyfile mostly is, is
// shortened to the name a person would type.
func Origin(d *caddyfile.Dispenser) policy.Origin {
	return policy.Origin{File: shortened(d.File()), Line: d.Line()}
}

// At adds the place of an earlier token: what shows at the end of a block is wrong where
// the block begins.
func At(at caddyfile.Token, err error) error {
	d := caddyfile.NewDispenser([]caddyfile.Token{at})
	d.Next()
	return d.WrapErr(err)
}
