//go:build linux

package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Bounds of a soak. What is held may be a tenth more in the last quarter than in the second
// after the warm-up, which is the first sixth, and so much besides.
const (
	soakSlack    = 200      // goroutines, and descriptors
	soakResident = 16 << 10 // kB of resident memory, which also hold when all has ended
	soakDropped  = 100      // one decision in so many may lack its line in the audit log
	noBound      = 1 << 40
)

// judge prints what was seen, and says what of it is a fault.
func (l *soakLoad) judge(t *testing.T, base, end sample, samples []sample, a auditCount) {
	t.Helper()
	table, faults := flatness(base, end, samples)
	fmt.Print("\n", table)
	fmt.Printf("\n%-44s %10s\n", "what clients did", "times")
	for _, name := range slices.Sorted(l.did.names()) {
		fmt.Printf("%-44s %10d\n", name, l.did.get(name))
	}
	sure, perhaps := int(l.sure.Load()), int(l.perhaps.Load())
	fmt.Printf("%-44s %10d\n%-44s %10d\n%-44s %10d\n", "answered with a verdict", sure, "broken off before one", perhaps, "went wrong", l.wrong.len())
	fmt.Printf("\n%-44s %10d\n%-44s %10d\n%-44s %10d\n%-44s %10d\n", "audit: decisions of connections", a.decisions, "audit: of them opened", a.opened, "audit: closes of those", a.closes, "audit: lines dropped, and said to be", a.dropped)
	if l.wrong.len() > 0 {
		t.Errorf("clients: %v", l.wrong)
	}
	for _, f := range append(faults, a.faults(sure, perhaps)...) {
		t.Error(f)
	}
}

// flatness compares what the appliance held over time.
func flatness(base, end sample, samples []sample) (table string, faults []string) {
	steady := samples[len(samples)/6:]
	quarter := len(steady) / 4
	if quarter == 0 {
		return "", []string{fmt.Sprintf("%d samples are too few to compare", len(samples))}
	}
	second, last := steady[quarter:2*quarter], steady[len(steady)-quarter:]
	resident := func(s sample) int { return s.resident }
	var out strings.Builder
	fmt.Fprintf(&out, "%-22s %10s %10s %10s %10s %10s   flat\n", "", "before", "2nd qtr", "last qtr", "highest", "after")
	for _, r := range []struct {
		what  string
		of    func(sample) int
		slack int // beside a tenth
		after int // the most at the end
	}{
		{"goroutines", func(s sample) int { return s.goroutines }, soakSlack, base.goroutines + 20},
		{"descriptors", func(s sample) int { return s.descriptors }, soakSlack, base.descriptors + 10},
		// What the runtime has once had it gives back late, so that the end is
		// compared with what was needed under load.
		{"resident kB", resident, soakResident, grown(mean(second, resident), soakResident)},
		{"tunnels", func(s sample) int { return s.tunnels }, noBound, 0},
		{"sessions", func(s sample) int { return s.sessions }, noBound, 0},
	} {
		from, to := mean(second, r.of), mean(last, r.of)
		flat := to <= grown(from, r.slack) && r.of(end) <= r.after
		if !flat {
			faults = append(faults, fmt.Sprintf("%s: from %d to %d, where %d is the most; and %d after it, where %d is the most", r.what, from, to, grown(from, r.slack), r.of(end), r.after))
		}
		highest := r.of(slices.MaxFunc(samples, func(a, b sample) int { return r.of(a) - r.of(b) }))
		fmt.Fprintf(&out, "%-22s %10d %10d %10d %10d %10d   %t\n", r.what, r.of(base), from, to, highest, r.of(end), flat)
	}
	return out.String(), faults
}

// grown is the most that something may have become.
func grown(from, slack int) int { return from + from/10 + slack }

func mean(all []sample, of func(sample) int) int {
	sum := 0
	for _, s := range all {
		sum += of(s)
	}
	return sum / max(len(all), 1)
}

// faults compares the log with what clients saw.
func (a auditCount) faults(sure, perhaps int) (all []string) {
	fault := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if a.decisions == 0 {
		fault("the log has no line for a decision")
	}
	if most := a.decisions / soakDropped; a.dropped > most {
		fault("%d lines of the log were dropped, of %d decisions; %d is the most", a.dropped, a.decisions, most)
	}
	if a.decisions+a.dropped < sure || a.decisions > sure+perhaps {
		fault("%d decisions are in the log and %d were dropped; clients saw %d, and %d perhaps", a.decisions, a.dropped, sure, perhaps)
	}
	if a.closes+a.dropped < a.opened || a.strays > a.dropped {
		fault("%d connections were opened and %d closed, %d of which nothing was said before", a.opened, a.closes, a.strays)
	}
	return all
}

// What a soak takes for a fault, and what not.
func TestSoakIsJudged(t *testing.T) {
	base := sample{goroutines: 30, descriptors: 20, resident: 60 << 10}
	load := func(i int) sample {
		return sample{at: time.Duration(i) * time.Second, sessions: 500, tunnels: 5000, goroutines: 20000, descriptors: 10000, resident: 400 << 10}
	}
	for _, c := range []struct {
		name    string
		samples int
		grow    func(s *sample, i int)
		end     func(s *sample)
		want    string
	}{
		{"flat", 120, nil, nil, ""},
		{"few", 3, nil, nil, "too few"},
		{"none", 0, nil, nil, "too few"},
		{"warming up", 120, func(s *sample, i int) { s.resident = min(s.resident, i*20<<10) }, nil, ""},
		{"memory that grows within its margin", 120, func(s *sample, i int) { s.resident += i * 400 }, nil, ""},
		{"memory that grows", 120, func(s *sample, i int) { s.resident += i * 2 << 10 }, nil, "resident kB"},
		{"memory that grows at the end", 120, nil, func(s *sample) { s.resident = 470 << 10 }, "resident kB"},
		{"memory that is not given back", 120, nil, func(s *sample) { s.resident = 440 << 10 }, ""},
		{"goroutines that grow", 120, func(s *sample, i int) { s.goroutines += 100 * i }, nil, "goroutines"},
		{"goroutines that stay", 120, nil, func(s *sample) { s.goroutines += 21 }, "goroutines"},
		{"descriptors that stay", 120, nil, func(s *sample) { s.descriptors += 11 }, "descriptors"},
		{"a tunnel that stays", 120, nil, func(s *sample) { s.tunnels++ }, "tunnels"},
		{"a session that stays", 120, nil, func(s *sample) { s.sessions++ }, "sessions"},
	} {
		var samples []sample
		for i := range c.samples {
			s := load(i)
			if c.grow != nil {
				c.grow(&s, i)
			}
			samples = append(samples, s)
		}
		end := base
		if c.end != nil {
			c.end(&end)
		}
		_, faults := flatness(base, end, samples)
		if got := strings.Join(faults, "; "); c.want == "" && got != "" || !strings.Contains(got, c.want) || len(faults) > 1 {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	for want, a := range map[string]auditCount{
		"":                      {decisions: 1000, opened: 500, closes: 500},
		"no line":               {},
		"clients saw":           {decisions: 980, opened: 500, closes: 500, dropped: 9},
		"lines of the log":      {decisions: 990, opened: 490, closes: 485, dropped: 10},
		"were opened":           {decisions: 1000, opened: 500, closes: 480},
		"of which nothing was ": {decisions: 1000, opened: 500, closes: 500, strays: 1},
	} {
		if got := strings.Join(a.faults(1000, 50), "; "); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%+v: %q", a, got)
		}
	}
}
