package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/miekg/dns"

	"postern/integration/netlab"
)

// answers is a case's `resolve`: what each name answers.
type answers map[string]netlab.Answer

// UnmarshalJSON reads {"name": ["addr", …]}; a single text may stand for a
// list of one.
func (a *answers) UnmarshalJSON(raw []byte) error {
	var m map[string]texts
	if err := json.Unmarshal(raw, &m); err != nil {
		return fmt.Errorf("parse resolve: %w", err)
	}
	*a = answers{}
	for name, list := range m {
		ans, err := list.answer()
		if err != nil {
			return fmt.Errorf("parse resolve of %q: %w", name, err)
		}
		(*a)[canonical(name)] = ans
	}
	return nil
}

// answerSeqs is `resolve_seq`: what each name answers in turn. The key "" is
// for the name of the request.
type answerSeqs map[string][]netlab.Answer

// UnmarshalJSON reads every form that says "first this, then that":
// {"name": [["a"], ["b"]]}, {"name": ["a", "b"]}, [{"name": ["a"]}, {"name":
// ["b"]}], [["a"], ["b"]] and ["a", "b"].
func (a *answerSeqs) UnmarshalJSON(raw []byte) error {
	*a = answerSeqs{}
	var byName map[string][]texts
	if json.Unmarshal(raw, &byName) == nil {
		for name, steps := range byName {
			for _, step := range steps {
				if err := a.add(name, step); err != nil {
					return err
				}
			}
		}
		return nil
	}
	var maps []map[string]texts
	if json.Unmarshal(raw, &maps) == nil {
		for _, m := range maps {
			for name, step := range m {
				if err := a.add(name, step); err != nil {
					return err
				}
			}
		}
		return nil
	}
	var steps []texts
	if err := json.Unmarshal(raw, &steps); err != nil {
		return fmt.Errorf("parse resolve_seq: %w", err)
	}
	for _, step := range steps {
		if err := a.add("", step); err != nil {
			return err
		}
	}
	return nil
}

func (a answerSeqs) add(name string, step texts) error {
	ans, err := step.answer()
	if err != nil {
		return fmt.Errorf("parse resolve_seq of %q: %w", name, err)
	}
	a[canonical(name)] = append(a[canonical(name)], ans)
	return nil
}

// texts is a list of texts, or one text, or null.
type texts []string

// UnmarshalJSON reads either form.
func (t *texts) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*t = nil
		if one != "" {
			*t = texts{one}
		}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(t))
}

// answer makes sense of what a name answers: addresses, the name it is an alias
// of, an error's name, or silence. An empty list is an answer without records.
func (t texts) answer() (netlab.Answer, error) {
	var out netlab.Answer
	for _, s := range t {
		s = strings.TrimSpace(s)
		if addr, err := netip.ParseAddr(s); err == nil {
			out.Addrs = append(out.Addrs, addr)
			continue
		}
		if rcode, ok := dns.StringToRcode[strings.ToUpper(s)]; ok {
			out.Rcode = rcode
			continue
		}
		if strings.EqualFold(s, "timeout") || strings.EqualFold(s, "drop") {
			out.Drop = true
			continue
		}
		_, alias, found := strings.Cut(s, ":")
		if !found {
			alias = s
		}
		alias = strings.TrimSpace(alias)
		if _, ok := dns.IsDomainName(alias); !ok || strings.ContainsAny(alias, " :") {
			return out, fmt.Errorf("%q is neither an address nor a name", s)
		}
		out.CNAME = alias
	}
	return out, nil
}

// canonical is a name as the name server keeps it, without the root dot.
func canonical(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }
