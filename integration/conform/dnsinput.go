package main

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"postern/integration/netlab"
)

// dnsInput is the input of a `dns` case: `qname qtype [class]`, several joined
// with `+`, remarks in parentheses, and after `=>` what the upstream answers.
type dnsInput struct {
	questions []dns.Question
	remarks   []string
	answer    netlab.Answer
	scripted  bool
}

var remark = regexp.MustCompile(`\(([^)]*)\)`)

// errRemark is a remark that nobody has taught this program.
var errRemark = errors.New("remark")

// remarks are the ways of asking that a case may name, by a word in them.
var remarks = []string{"no question", "empty allowlist", "opcode", "qr=1", "client subnet", "tcp", "queries/s"}

func parseDNS(input string) (in dnsInput, err error) {
	asked, answer, scripted := strings.Cut(input, "=>")
	for _, m := range remark.FindAllStringSubmatch(asked, -1) {
		text := strings.ToLower(m[1])
		if !slices.ContainsFunc(remarks, func(r string) bool { return strings.Contains(text, r) }) {
			return in, fmt.Errorf("%w (%s)", errRemark, m[1])
		}
		in.remarks = append(in.remarks, text)
	}
	for part := range strings.SplitSeq(remark.ReplaceAllString(asked, " "), "+") {
		words := strings.Fields(part)
		if len(words) == 0 {
			continue
		}
		q := dns.Question{Name: dns.Fqdn(words[0]), Qtype: dns.TypeA, Qclass: dns.ClassINET}
		if _, ok := dns.IsDomainName(q.Name); !ok {
			return in, fmt.Errorf("parse input: %q cannot be a question", words[0])
		}
		var ok bool
		if len(words) > 1 {
			if q.Qtype, ok = dns.StringToType[strings.ToUpper(words[1])]; !ok {
				return in, fmt.Errorf("parse input: no record type %q", words[1])
			}
		}
		if len(words) > 2 {
			if q.Qclass, ok = dns.StringToClass[strings.ToUpper(words[2])]; !ok {
				return in, fmt.Errorf("parse input: no class %q", words[2])
			}
		}
		in.questions = append(in.questions, q)
	}
	if in.scripted = scripted; scripted {
		in.answer, err = parseDNSAnswer(answer)
	}
	return in, err
}

// parseDNSAnswer reads addresses, `CNAME name`, an error's name, and `(answer
// for other.com.)`, which gives another name's records.
func parseDNSAnswer(text string) (netlab.Answer, error) {
	owner := ""
	if m := remark.FindStringSubmatch(text); m != nil {
		_, name, ok := strings.Cut(m[1], "answer for ")
		if !ok {
			return netlab.Answer{}, fmt.Errorf("%w (%s)", errRemark, m[1])
		}
		owner, text = name, "93.184.216.34"
	}
	var items texts
	for item := range strings.SplitSeq(text, ",") {
		words := strings.Fields(item)
		if len(words) > 0 {
			items = append(items, words[len(words)-1])
		}
	}
	a, err := items.answer()
	a.Owner = owner
	return a, err
}

func (in dnsInput) says(word string) bool {
	return slices.ContainsFunc(in.remarks, func(r string) bool { return strings.Contains(r, word) })
}

// message is the query as the client sends it.
func (in dnsInput) message() *dns.Msg {
	m := new(dns.Msg)
	m.Id, m.RecursionDesired, m.Question = 99, true, in.questions
	m.SetEdns0(1232, false)
	if in.says("opcode") {
		m.Opcode = dns.OpcodeUpdate
	}
	m.Response = in.says("qr=1")
	if in.says("client subnet") {
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_SUBNET{
			Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: net.IPv4(198, 51, 100, 0),
		})
	}
	return m
}
