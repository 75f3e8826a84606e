package egress

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"postern/caddy-modules/policy"
)

func learnCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "learn {SESSION | --since TIME} [--policy NAME] [--log FILE] [--write FILE]",
		Short: "Drafts rules from what the log says would have to be allowed",
		Long: `
Reads the audit trail and prints, as a list, the rules that would allow what was
refused, or was let through by a policy with "enforce off", because no rule allows
it. The list is a draft: whatever ran may have asked for anything, so read it before
a policy takes it.

What a rule refuses, what is never opened, and this machine and private addresses
are comments at most. The rolled files beside the log are read too.

The exit status is 0 if there is a rule, and 1 if there is none.`,
		Args: cobra.MaximumNArgs(1),
	}
	since := cmd.Flags().String("since", "", "Only what is not older: 90m, 12h, or a time as 2006-01-02T15:04:05Z")
	name := cmd.Flags().StringP("policy", "p", "", "Only the sessions of this policy")
	log := cmd.Flags().String("log", "", "The log (default: egress.log in the run directory)")
	write := cmd.Flags().String("write", "", "Write the list to this file, which must not exist")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		l := learner{policy: *name}
		if len(args) > 0 {
			l.session = args[0]
		}
		var err error
		if *since != "" {
			if l.since, err = parseSince(*since, time.Now()); err != nil {
				return err
			}
		} else if l.session == "" {
			return errors.New("name a session, or say --since when")
		}
		if *log == "" {
			dir, err := RunDir(false)
			if err != nil {
				return err
			}
			*log = filepath.Join(dir, "egress.log")
		}
		if err := l.read(*log); err != nil {
			return err
		}
		draft, rules, err := l.draft()
		switch {
		case err != nil:
			return err
		case rules == 0:
			_, _ = cmd.ErrOrStderr().Write(draft)
			return fmt.Errorf("nothing to learn: of %d decisions in %s none waits for a rule", l.decisions, *log)
		case *write != "":
			if err := writeNew(*write, draft, 0o600); err != nil {
				return fmt.Errorf("write the draft: %w", err)
			}
			return nil
		}
		_, err = cmd.OutOrStdout().Write(draft)
		return err
	}
	return cmd
}

func parseSince(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("parse --since %q: want how long ago, as 90m, or a time, as 2006-01-02T15:04:05Z", text)
	}
	return at, nil
}

// learner gathers what the trail says of hosts that wait for a rule.
type learner struct {
	session, policy string    // "" for all
	since           time.Time // zero for always

	hosts     map[policy.Host]*learned
	left      map[string]int // decisions that no rule is drafted for, by code
	decisions int            // read
	unclear   int            // with a target that is none
	missing   int            // lines that the trail says it left out
}

// learned is one host.
type learned struct {
	ports       map[uint16]struct{} // none: only its name was asked for
	protos      map[string]struct{}
	schemes     map[string]struct{} // words of the rules that would have allowed it, "" for none
	seen        int
	first, last time.Time
}

// draftable are the codes of decisions that a rule would change, and that no rule
// made.
func draftable(code string) bool {
	switch code {
	case policy.NotAllowed.String(), policy.PortNotAllowed.String(), policy.SchemeNotAllowed.String():
		return true
	default:
		return false
	}
}

// add takes one line of the trail.
func (l *learner) add(d *auditLine, at time.Time) {
	if l.session != "" && d.Session != l.session || l.policy != "" && d.Policy != l.policy || at.Before(l.since) {
		return
	}
	l.decisions++
	if d.Allowed && !d.WouldDeny {
		return
	}
	if l.left == nil {
		l.left, l.hosts = map[string]int{}, map[policy.Host]*learned{}
	}
	if !draftable(d.Code) {
		l.left[d.Code]++
		return
	}
	host, port, err := d.target()
	if err != nil {
		l.unclear++
		return
	}
	h := l.hosts[host]
	if h == nil {
		h = &learned{ports: map[uint16]struct{}{}, protos: map[string]struct{}{}, schemes: map[string]struct{}{}, first: at}
		l.hosts[host] = h
	}
	if port != 0 {
		h.ports[port] = struct{}{}
	}
	if proto, ok := knownProto(d.Proto); ok {
		h.protos[proto] = struct{}{}
	}
	h.schemes[d.schemeWord()] = struct{}{}
	h.seen++
	if at.Before(h.first) {
		h.first = at
	}
	if at.After(h.last) {
		h.last = at
	}
}

// rule is the line that allows what was seen, and nothing more than ports 80 and 443
// besides.
func (h *learned) rule(host policy.Host) string {
	ports := slices.Sorted(maps.Keys(h.ports))
	_, literal := host.Addr()
	web := !slices.ContainsFunc(ports, func(p uint16) bool { return p != 80 && p != 443 })
	line := host.String()
	word := ""
	if len(h.schemes) == 1 {
		word = slices.Collect(maps.Keys(h.schemes))[0]
	}
	// A word changes which ports are meant by naming none.
	if web && !literal && word == "" {
		return line
	}
	for _, p := range ports {
		line += fmt.Sprintf(" %d", p)
	}
	if word != "" {
		line += " " + word
	}
	return line
}

// within says why a host is no matter for a list: it is here.
func within(host policy.Host) (why string, yes bool) {
	if a, literal := host.Addr(); literal {
		if class, _ := policy.Classify(a); class != policy.Public {
			return "it is " + class.Sentence(), true
		}
		return "", false
	}
	if name := host.Name(); name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return "the name means this machine", true
	}
	return "", false
}

// draft writes the list and counts its rules. It is read back: a draft that no policy
// takes would be worse than none.
func (l *learner) draft() (text []byte, rules int, err error) {
	var list, notes bytes.Buffer
	hosts := slices.SortedFunc(maps.Keys(l.hosts), compareHosts)
	parents := map[string]int{}
	for _, host := range hosts {
		h := l.hosts[host]
		line := h.rule(host)
		why, yes := within(host)
		if len(h.ports) > manyPorts {
			line, why, yes = host.String(), fmt.Sprintf("%d ports of it were asked for, which is a scan", len(h.ports)), true
		}
		if yes {
			_, _ = fmt.Fprintf(&notes, "# not drafted: %s (%s), seen %d×\n", line, why, h.seen)
			continue
		}
		_, _ = fmt.Fprintf(&list, "%s # seen %d×, %s, %s\n", line, h.seen, strings.Join(slices.Sorted(maps.Keys(h.protos)), " "), span(h.first, h.last))
		rules++
		if parent := parentOf(host); parent != "" {
			parents[parent]++
		}
	}
	for _, parent := range slices.Sorted(maps.Keys(parents)) {
		if n := parents[parent]; n >= fewSiblings {
			_, _ = fmt.Fprintf(&notes, "# %d hosts are directly below %s: if that is one owner's, *.%s allows them and all others there\n", n, parent, parent)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(l.left)) {
		_, _ = fmt.Fprintf(&notes, "# not drafted: %d decisions with the code %s\n", l.left[code], word(code))
	}
	if l.unclear > 0 {
		_, _ = fmt.Fprintf(&notes, "# not drafted: %d decisions whose target cannot be read\n", l.unclear)
	}
	if l.missing > 0 {
		_, _ = fmt.Fprintf(&notes, "# the trail left out %d lines, since the log was too slow: what they were about is not here\n", l.missing)
	}
	text = slices.Concat(list.Bytes(), notes.Bytes())
	parsed, err := policy.ParseList(bytes.NewReader(text), "draft")
	if err == nil && len(parsed) != rules {
		err = fmt.Errorf("it has %d rules instead of %d", len(parsed), rules)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the draft back: %w", err)
	}
	return text, rules, nil
}

const (
	// fewSiblings is from how many hosts on a wildcard is worth a thought.
	fewSiblings = 4

	// manyPorts is more than anything honest has on one host.
	manyPorts = 16
)

// parentOf is the name above a host, "" where that is no more than a suffix.
func parentOf(host policy.Host) string {
	_, parent, _ := strings.Cut(host.Name(), ".")
	if strings.Count(parent, ".") == 0 {
		return ""
	}
	return parent
}

// compareHosts puts names in the order of their domains, and addresses behind them.
func compareHosts(a, b policy.Host) int {
	aa, aIs := a.Addr()
	ba, bIs := b.Addr()
	switch {
	case aIs != bIs:
		if aIs {
			return 1
		}
		return -1
	case aIs:
		return aa.Compare(ba)
	}
	x, y := strings.Split(a.Name(), "."), strings.Split(b.Name(), ".")
	slices.Reverse(x)
	slices.Reverse(y)
	return slices.Compare(x, y)
}

func span(first, last time.Time) string {
	a, b := first.UTC().Format(time.RFC3339), last.UTC().Format(time.RFC3339)
	if a == b {
		return a
	}
	return a + " to " + b
}
