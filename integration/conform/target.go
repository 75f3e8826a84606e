package main

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Ports of the lab. The appliance's own are told apart from those of origins,
// on which it must be able to connect.
const (
	adminPort   = 2019 // some cases hold it in hex
	gatewayPort = 8418
	devPort     = 3000
	otherPort   = 20000 // another session's HTTP proxy, and its SOCKS proxy after it
	firstPort   = 20002 // of the cases' sessions, a pair each
	portPairs   = 4900
)

// ports are the listeners of a case's session.
func (c *testCase) ports() (http, socks uint16) {
	p := firstPort + 2*(c.index%portPairs)
	return uint16(p), uint16(p + 1)
}

// ownPort reports whether the appliance itself listens there.
func ownPort(p uint16) bool {
	return p == adminPort || p == gatewayPort || p >= otherPort && p < firstPort+2*portPairs
}

// fill puts values in place of the placeholders.
func (c *testCase) fill(lan netip.Addr) {
	http, socks := c.ports()
	values := map[string]string{
		"HTTP_PORT": itoa(http), "SOCKS_PORT": itoa(socks), "ADMIN_PORT": itoa(adminPort), "LAN_IP": lan.String(),
		"OTHER_SESSION_HTTP_PORT": itoa(otherPort), "GIT_GATEWAY_PORT": itoa(gatewayPort), "DEV_PORT": itoa(devPort),
	}
	var text, raw []string
	for name, v := range values {
		text = append(text, "{"+name+"}", v)
		if n, err := strconv.ParseUint(v, 10, 16); err == nil {
			raw = append(raw, "{"+name+"}", fmt.Sprintf("%02x %02x", n>>8, n&255))
		}
	}
	replace := strings.NewReplacer(text...)
	if strings.HasPrefix(c.Proto, "socks") {
		c.Input = strings.NewReplacer(raw...).Replace(c.Input)
	} else {
		c.Input = replace.Replace(c.Input)
	}
	for _, list := range []*[]string{&c.Allow, &c.Deny} {
		*list = slices.Clone(*list)
		for i := range *list {
			(*list)[i] = replace.Replace((*list)[i])
		}
	}
}

// target is where a request wants to go, as far as that can be read from it.
// It steers the lab (which port to listen on, which name to put into a
// ClientHello); nothing is judged by it.
type target struct {
	host string // as sent, without brackets
	port uint16
}

// name is the canonical name, or "" for an address.
func (t target) name() string {
	if _, err := netip.ParseAddr(t.host); err == nil {
		return ""
	}
	return canonical(t.host)
}

// targets are those of all requests in the input.
func (c *testCase) targets() []target {
	switch c.Proto {
	case "match":
		return []target{{c.Input, 443}}
	case "connect", "http":
		var out []target
		for line := range strings.Lines(c.Input) {
			if t, ok := requestTarget(line); ok {
				out = append(out, t)
			}
		}
		return out
	case "socks5":
		parts := strings.Split(c.Input, "|")
		if len(parts) < 2 {
			return nil
		}
		raw, err := unhex(parts[1])
		if err != nil {
			return nil
		}
		if t, ok := socksTarget(raw); ok {
			return []target{t}
		}
	}
	return nil
}

// requestTarget reads a line that looks like the start of a proxy request.
func requestTarget(line string) (target, bool) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return target{}, false
	}
	authority, port := words[1], "443"
	if !strings.EqualFold(words[0], "CONNECT") {
		scheme, rest, ok := strings.Cut(authority, "://")
		if !ok || !strings.EqualFold(scheme, "http") {
			return target{}, false
		}
		authority, port = rest[:min(len(rest), indexAny(rest, "/?#"))], "80"
	}
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	host := authority
	if i := strings.LastIndexByte(authority, ':'); i >= 0 && !strings.HasSuffix(authority, "]") {
		host, port = authority[:i], authority[i+1:]
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return target{}, false
	}
	return target{strings.Trim(host, "[]"), uint16(n)}, true
}

// indexAny is strings.IndexAny with len(s) for "nowhere".
func indexAny(s, chars string) int {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return i
	}
	return len(s)
}

// socksTarget reads the address of a SOCKS5 request (RFC 1928 section 4).
func socksTarget(b []byte) (target, bool) {
	if len(b) < 7 {
		return target{}, false
	}
	port := uint16(b[len(b)-2])<<8 | uint16(b[len(b)-1])
	switch addr := b[4 : len(b)-2]; {
	case b[3] == 3 && len(addr) > 0 && int(addr[0]) == len(addr)-1:
		return target{string(addr[1:]), port}, true
	case b[3] == 1 && len(addr) == 4, b[3] == 4 && len(addr) == 16:
		a, _ := netip.AddrFromSlice(addr)
		return target{a.String(), port}, true
	}
	return target{}, false
}

// unhex reads the bytes of a SOCKS case.
func unhex(s string) ([]byte, error) {
	raw, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		return nil, fmt.Errorf("parse input: %w", err)
	}
	return raw, nil
}

func itoa(n uint16) string { return strconv.Itoa(int(n)) }
