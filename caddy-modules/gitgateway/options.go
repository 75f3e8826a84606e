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

// option is one line NAME VALUE of a module's block. What is wrong with a value is told
// at its line.
type option struct {
	value string // how the value is written
	set   func(text string) error
}

// text is an option that is kept as it stands.
func text(value string, into *string) option {
	return option{value, func(text string) error { *into = text; return nil }}
}

// duration is an option that is a time above zero.
func duration(name string, into *caddy.Duration) option {
	return option{"DURATION, as in 10s", func(text string) (err error) {
		*into, err = egress.ParseTime(name, text)
		return err
	}}
}

// options reads a block of NAME VALUE lines. The block may be missing; which
// values are needed is the caller's business.
func options(d *caddyfile.Dispenser, module string, fields map[string]option) error {
	seen := map[string]bool{}
	_, err := egress.Block(d, module, func() error {
		name, text := d.Val(), ""
		o, ok := fields[name]
		switch {
		case !ok:
			return d.Errf("unrecognized %s option %q; want %s", module, name, strings.Join(slices.Sorted(maps.Keys(fields)), " or "))
		case seen[name]:
			return d.Errf("%s is given twice", name)
		case !d.AllArgs(&text):
			return egress.Want(d, name+" "+o.value)
		case text == "":
			return d.Errf("%s is empty; want %s %s", name, name, o.value)
		}
		seen[name] = true
		return wrap(d, o.set(text))
	})
	return err
}

// resolve replaces the placeholders of a setting. One that stands for nothing is an
// error: what is left of the setting would be something else.
func resolve(name, text string) (string, error) {
	value, err := caddy.NewReplacer().ReplaceOrErr(text, true, true)
	if err != nil {
		return "", fmt.Errorf("resolve %s: %w (a variable that is not set, or a file that cannot be read)", name, err)
	}
	return value, nil
}

// Places is where the parts of a gateway were written, each as FILE:LINE. It is set by
// the Caddyfile adapter, so that what shows only when the configuration is loaded is told
// with its place: a key file that is not there, an address that is taken.
type Places struct {
	// The directive itself.
	Gateway string `json:"gateway,omitempty"`

	// The line of the token.
	Token string `json:"token,omitempty"`

	// The line of the rule source.
	Rules string `json:"rules,omitempty"`

	// The line of the approver.
	Approver string `json:"approver,omitempty"`

	// The line of the spool.
	Spool string `json:"spool,omitempty"`
}

// placed puts the place before an error, where it is known.
func placed(place string, err error) error {
	if err == nil || place == "" {
		return err
	}
	return fmt.Errorf("%s: %w", place, err)
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
