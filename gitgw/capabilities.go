package gitgw

import (
	"errors"
	"fmt"
	"strings"
)

// Capabilities are the protocol features a client asked for, those that this
// gateway knows; git's gitprotocol-capabilities(5) says what each means. An
// unknown one is dropped, never forwarded, as nobody here would judge it.
type Capabilities struct {
	ReportStatus   bool
	ReportStatusV2 bool
	SideBand       bool
	SideBand64k    bool
	Quiet          bool
	Atomic         bool
	OFSDelta       bool
	DeleteRefs     bool
	PushOptions    bool
	// NoThin asks the client for packs that hold every base of their deltas. It is
	// only ever offered.
	NoThin bool
	// ObjectFormat is "sha1", "sha256" or "", which means sha1.
	ObjectFormat string
	// Agent names the client's program, "" when it did not say.
	Agent string
}

// flags couples each valueless capability with its field, in the order in which
// they are written.
func (c *Capabilities) flags() []struct {
	name string
	on   *bool
} {
	return []struct {
		name string
		on   *bool
	}{
		{"report-status", &c.ReportStatus},
		{"report-status-v2", &c.ReportStatusV2},
		{"side-band", &c.SideBand},
		{"side-band-64k", &c.SideBand64k},
		{"quiet", &c.Quiet},
		{"atomic", &c.Atomic},
		{"ofs-delta", &c.OFSDelta},
		{"delete-refs", &c.DeleteRefs},
		{"push-options", &c.PushOptions},
		{"no-thin", &c.NoThin},
	}
}

// parseCapabilities reads the text after the NUL of the first command or
// advertised ref. The result holds what could be read even beside an error.
func parseCapabilities(text string) (Capabilities, error) {
	var c Capabilities
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return c, errors.New("control characters among the capabilities")
	}
	// The words are looked at one by one and never kept: what is not known here
	// does not reach the forge.
	flags := c.flags()
	var bad error
	for word := range strings.SplitSeq(text, " ") {
		name, value, valued := strings.Cut(word, "=")
		switch {
		case valued && name == "object-format":
			if err := c.setFormat(value); err != nil {
				bad = err
			}
		case valued && name == "agent":
			// Empty when GIT_USER_AGENT is; only shown and passed on, so cut, not refused.
			c.Agent = printable(value, 128)
		case !valued:
			for _, f := range flags {
				if f.name == name {
					*f.on = true
				}
			}
		}
	}
	return c, bad
}

// setFormat takes the hash once: a second, different one would let each reader
// choose.
func (c *Capabilities) setFormat(value string) error {
	switch {
	case value != "sha1" && value != "sha256":
		return fmt.Errorf("unknown object-format %s", quote(value))
	case c.ObjectFormat != "" && c.ObjectFormat != value:
		return errors.New("two object-formats")
	}
	c.ObjectFormat = value
	return nil
}

// printable keeps the ASCII that may stand in a capability's value.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, s)
	return s[:min(len(s), most)]
}

// String is the list as it stands on the wire.
func (c Capabilities) String() string {
	var words []string
	for _, f := range c.flags() {
		if *f.on {
			words = append(words, f.name)
		}
	}
	if c.ObjectFormat != "" {
		words = append(words, "object-format="+c.ObjectFormat)
	}
	if c.Agent != "" {
		words = append(words, "agent="+c.Agent)
	}
	return strings.Join(words, " ")
}

// format is the object format in force.
func (c Capabilities) format() string {
	if c.ObjectFormat == "" {
		return "sha1"
	}
	return c.ObjectFormat
}

// reports reports whether the client asked to be told each ref's result.
func (c Capabilities) reports() bool { return c.ReportStatus || c.ReportStatusV2 }

// forUpstream is what to ask of a forge that offers offered on behalf of a
// client that asked for c. The report always comes in the widest form both
// sides know; [relay] turns it into the client's.
func (c Capabilities) forUpstream(offered Capabilities) Capabilities {
	// Side-band always, so that the forge's hooks can be heard and its keep-alives
	// prove that it works; one report version only, as git itself asks.
	return Capabilities{
		ReportStatusV2: c.ReportStatusV2 && offered.ReportStatusV2,
		ReportStatus:   offered.ReportStatus && (!c.ReportStatusV2 || !offered.ReportStatusV2),
		SideBand64k:    offered.SideBand64k,
		Quiet:          c.Quiet && offered.Quiet,
		Atomic:         c.Atomic && offered.Atomic,
		OFSDelta:       c.OFSDelta && offered.OFSDelta,
		DeleteRefs:     c.DeleteRefs && offered.DeleteRefs,
		PushOptions:    c.PushOptions && offered.PushOptions,
		ObjectFormat:   c.ObjectFormat,
		Agent:          c.Agent,
	}
}
