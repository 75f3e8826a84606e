package policy

import "strings"

// quickRule reads the rules that long lists are made of: a name in lower case, maybe
// with a leading star, maybe with port 443 behind it. It makes nothing but the rule,
// whose texts are parts of the line. What it does not know, ParseRule judges; what it
// reads, ParseRule reads the same.
func quickRule(line string, from Origin) (r Rule, ok bool) {
	const port = " 443"
	host, wild := line, false
	if strings.HasSuffix(host, port) {
		host = host[:len(host)-len(port)]
		r.ports = webPorts[1:]
	}
	name := host
	if strings.HasPrefix(name, "*.") {
		name, wild = name[2:], true
	}
	labels, plain := plainName(name)
	if !plain || wild && (labels < 2 || len(host) > maxName) || thisMachine(name) {
		return Rule{}, false
	}
	r.Origin, r.name, r.text, r.shape = from, name, line, shapeExact
	if wild {
		r.shape = shapeUnder
	}
	return r, true
}

// plainName says that a name is in its canonical form and nothing about it needs a
// second look: letters, digits and single hyphens, the last label all letters.
func plainName(name string) (labels int, plain bool) {
	if name == "" || len(name) > maxName {
		return 0, false
	}
	begin, letters := 0, true
	for i := 0; i <= len(name); i++ {
		if i == len(name) || name[i] == '.' {
			if i == begin || i-begin > 63 || name[i-1] == '-' || i == len(name) && !letters {
				return 0, false
			}
			labels++
			begin, letters = i+1, true
			continue
		}
		switch c := name[i]; {
		case c >= 'a' && c <= 'z':
		case c >= '0' && c <= '9':
			letters = false
		case c == '-' && i > begin && name[i-1] != '-': // two of them mark A-labels
			letters = false
		default:
			return 0, false
		}
	}
	return labels, true
}
