package policy

import (
	"errors"
	"net/netip"
	"strings"
)

// parsePattern reads the host of a rule.
func parsePattern(text string) (Rule, error) {
	if err := foreign(text); err != nil {
		return Rule{}, err
	}
	switch {
	case strings.ContainsRune(text, '/'):
		return parseCIDR(text)
	case strings.ContainsRune(text, '*'):
		return parseWildcard(text)
	}
	h, err := ParseHost(text)
	if err != nil {
		return Rule{}, hint(text, err)
	}
	if a, ok := h.Addr(); ok {
		if strings.ContainsRune(text, '%') {
			return Rule{}, malformed(text, "has an IPv6 zone: zones are not part of a rule")
		}
		return Rule{shape: shapeAddr, prefix: netip.PrefixFrom(a, a.BitLen())}, nil
	}
	return Rule{shape: shapeExact, name: h.Name()}, nil
}

// foreign refuses what people carry over from other lists, each with the way to
// write it here.
func foreign(text string) error {
	switch {
	case strings.Contains(text, "://"):
		return malformed(text, "is a URL: write the host alone, and a port other than 80 and 443 after a blank")
	case strings.HasPrefix(text, "."):
		return malformed(text, "starts with a dot: write *.example.com for the subdomains, and example.com for the name itself")
	case strings.ContainsRune(text, '#'):
		return malformed(text, "holds a number sign: a comment needs a blank before it, and lists alone may have comments")
	case strings.ContainsAny(text, "{}$"):
		return malformed(text, "holds a placeholder: rules are taken as they are written")
	case strings.ContainsAny(text, "?[]") && !strings.Contains(text, ":"):
		return malformed(text, "holds a glob: the star as a whole label is the only wildcard")
	}
	host, port, ok := splitAuthority(text)
	if ok && !strings.Contains(host, ":") || strings.HasSuffix(host, "]") && ok {
		if _, err := ParsePort(port); err == nil {
			return malformed(text, "has a port in the host: write it after a blank, as in "+quote(strings.Trim(host, "[]")+" "+port))
		}
	}
	return nil
}

// hint adds the A-label form to the error of a name outside ASCII.
func hint(text string, err error) error {
	if _, ok := errors.AsType[*SyntaxError](err); !ok {
		return err
	}
	if ascii, ok := aLabels(text); ok {
		return malformed(text, "is not ASCII: rules and hosts are A-labels; write "+quote(ascii))
	}
	return err
}

// parseWildcard reads the two forms with a star. The star is checked by setting a
// letter in its place and parsing the name that results: whatever would make that
// name malformed makes the pattern one that matches nothing, or an address.
func parseWildcard(text string) (Rule, error) {
	if strings.Count(text, "*") > 1 {
		return Rule{}, malformed(text, "has more than one star")
	}
	bare, root := strings.CutSuffix(text, ".")
	labels := strings.Split(bare, ".")
	star := -1
	for i, label := range labels {
		if label == "*" {
			star = i
		} else if strings.ContainsRune(label, '*') {
			return Rule{}, malformed(text, "has a star glued to text: a wildcard is a whole label, as in *.example.com")
		}
	}
	switch {
	case len(labels) == 1:
		return Rule{}, malformed(text, "would match every host: a wildcard needs a domain, as in *.example.com")
	case star == len(labels)-1:
		return Rule{}, malformed(text, "ends in a star: a wildcard may lead or stand between two labels")
	case star == 0 && len(labels) == 2:
		return Rule{}, malformed(text, "would match a whole top-level domain: at least two labels must follow a leading star")
	}
	labels[star] = "x"
	letter := strings.Join(labels, ".")
	if root {
		letter += "." // one and no more is the root's
	}
	h, err := ParseName(letter)
	if err != nil {
		if syntax, ok := errors.AsType[*SyntaxError](err); ok {
			// Say it of the pattern, not of the name with the letter in it.
			err = malformed(text, syntax.Reason)
		}
		return Rule{}, hint(text, err)
	}
	if h.Name() == "" {
		return Rule{}, malformed(text, "has a star inside an IPv4 address: write a prefix, as in 10.0.0.0/8")
	}
	if thisMachine(h.Name()) {
		return Rule{}, malformed(text, "has a star over localhost: list the very name")
	}
	labels = strings.Split(h.Name(), ".")
	if star == 0 {
		return Rule{shape: shapeUnder, name: strings.Join(labels[1:], ".")}, nil
	}
	return Rule{
		shape: shapeMiddle,
		head:  strings.Join(labels[:star], "."),
		name:  strings.Join(labels[star+1:], "."),
	}, nil
}

// parseCIDR reads a prefix. Host bits are refused, since the operator either
// meant one address or mistyped the length.
func parseCIDR(text string) (Rule, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return Rule{}, malformed(text, "is neither a host nor a CIDR prefix: a path is not part of a rule")
	}
	if masked := p.Masked(); masked != p {
		return Rule{}, malformed(text, "has host bits set: write "+quote(masked.String())+" or the address alone")
	}
	// Addresses are compared unmapped, so a mapped prefix would never match. One
	// without host bits has 96 bits at least.
	if a := p.Addr(); a.Is4In6() {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return Rule{shape: shapeAddr, prefix: p}, nil
}
