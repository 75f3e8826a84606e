package egress

import (
	"os"
	"path/filepath"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"postern/caddy-modules/policy"
)

// Block calls line at the first word of each line of the block that opens next,
// and reports whether one opened at all. name is for the error of an empty block,
// which is what an import that matches no file leaves: Caddy merely warns of it,
// and a list that silently holds nothing is the worst of all typing errors.
func Block(d *caddyfile.Dispenser, name string, line func() error) (opened bool, err error) {
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		opened = true
		if err := line(); err != nil {
			return true, err
		}
	}
	// NextBlock stops on the closing brace of an empty block, and does not move
	// where there is no block. A quoted brace is an argument like any other.
	if !opened && d.ValRaw() == "}" {
		return true, emptyBlock(d, name)
	}
	return opened, nil
}

func emptyBlock(d *caddyfile.Dispenser, name string) error {
	return d.Errf("the block of %s is empty; an import that matches no file leaves nothing behind", name)
}

// Origin is the place of the current token. An imported file has an absolute
// name there; one below the working directory, where the Caddyfile mostly is, is
// shortened to the name a person would type.
func Origin(d *caddyfile.Dispenser) policy.Origin {
	file := d.File()
	if filepath.IsAbs(file) {
		if dir, err := os.Getwd(); err == nil {
			if rel, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(rel) {
				file = rel
			}
		}
	}
	return policy.Origin{File: file, Line: d.Line()}
}

// wrapAt adds the place of an earlier token.
func wrapAt(at caddyfile.Token, err error) error {
	d := caddyfile.NewDispenser([]caddyfile.Token{at})
	d.Next()
	return d.WrapErr(err)
}
