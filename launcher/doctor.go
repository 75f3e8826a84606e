package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"postern/caddy-modules/session/lease"
	"postern/launcher/sandbox"
)

const doctorUsage = `postern doctor really puts up a sandbox, lends its listeners to the appliance, and says
what is in the way if either fails. It ends with 0 when postern run would start, else 1.

  postern doctor [--json]

`

// diagnosis is what doctor found.
type diagnosis struct {
	Sandbox   sandbox.Probe `json:"sandbox"`
	Appliance finding       `json:"appliance"`
	Settings  finding       `json:"settings"`
	DNS       lookups       `json:"dns"`
	Guard     guarding      `json:"guard"`
}

// finding is about one thing that postern run needs.
type finding struct {
	OK     bool           `json:"ok"`
	Where  string         `json:"where,omitempty"`
	Reason sandbox.Reason `json:"reason,omitempty"`
	Detail string         `json:"detail,omitempty"`
}

func doctorMain(args []string, stdout, stderr io.Writer) int {
	fs := pflag.NewFlagSet("doctor", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	asJSON := fs.Bool("json", false, "print JSON")
	if err := parseJSONFlag(fs, args); errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(stdout, doctorUsage, fs.FlagUsages())
		return 0
	} else if err != nil {
		return refuse(stderr, err)
	}
	d := diagnose(starting)
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		_ = enc.Encode(d) // nothing to do about a stdout that is gone
	} else {
		d.print(stdout)
	}
	if d.Sandbox.Available && d.Appliance.OK && d.Settings.OK && d.DNS.OK && d.Guard.OK {
		return 0
	}
	return 1
}

// diagnose tries everything a run needs; one failure does not hide another.
func diagnose(o sandbox.Options) diagnosis {
	ctx := context.Background()
	var d diagnosis
	d.Settings.Where = settingsFile()
	mode := sandbox.DNSAuto
	s, err := loadSettings(d.Settings.Where)
	if err != nil {
		d.Settings.fail(reasonSettings, err)
		s = &settings{}
	} else {
		d.Settings.OK, mode = true, s.DNS
		if _, err := os.Stat(d.Settings.Where); err != nil {
			d.Settings.Detail = strings.TrimSuffix("none: the defaults hold; a file would be "+d.Settings.Where, "; a file would be ")
		}
	}
	runDir, err := findRunDir()
	if err != nil {
		d.Appliance.fail(reasonRunDir, err)
	}
	d.DNS.Mode = sandbox.DNSOff
	d.Sandbox = sandbox.Check(ctx, o, func(p *sandbox.Process) {
		more := d.DNS.stand(p, mode)
		if err == nil {
			d.Appliance.Where = filepath.Join(runDir, leaseSocket)
			if answer, ok := d.Appliance.lend(ctx, p.Pair(), p.Facts().Inside().Login, more); ok {
				d.DNS.served(mode, answer)
			}
		}
	})
	if d.Sandbox.Available {
		d.Guard = guards(&d.Sandbox, s)
	}
	if err == nil && !d.Sandbox.Available && d.Appliance.Reason == "" && !d.Appliance.OK {
		d.Appliance = finding{Where: filepath.Join(runDir, leaseSocket), Detail: "not tried, for there are no listeners to lend"}
	}
	return d
}

// lend asks the appliance to take a run, and takes it back.
func (f *finding) lend(ctx context.Context, pair lease.Pair, login *lease.Login, more []lease.Lent) (lease.Answer, bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	k := &keeper{path: f.Where, pair: pair, more: more, lend: lease.Lend, hello: lease.Hello{Spec: lease.Spec{ID: "doctor-" + newID()}, Login: login}}
	l, err := k.lendFirst(ctx)
	if err != nil {
		f.fail(reasonLease, err)
		return lease.Answer{}, false
	}
	f.OK = true
	_ = l.Close()
	return l.Answer(), true
}

func (f *finding) fail(otherwise sandbox.Reason, err error) {
	f.Reason, f.Detail = otherwise, err.Error()
	if r, ok := errors.AsType[*sandbox.Refusal](err); ok {
		f.Reason = r.Reason
	}
}

func (d *diagnosis) print(w io.Writer) {
	line := func(what string, ok bool, text string) {
		state := "FAILS"
		if ok {
			state = "ok"
		}
		fmt.Fprintf(w, "%-10s %-6s %s\n", what, state, printable(text))
	}
	if s := d.Sandbox; s.Available {
		line("sandbox", true, fmt.Sprintf("%s %s, a run started and ended in %s", s.Tool, s.Version, s.Took.Round(time.Millisecond)))
		if !s.LowPorts {
			fmt.Fprintf(w, "%-10s %-6s %s\n", "low ports", "no", printable(s.LowPortsDetail))
		}
	} else {
		line("sandbox", false, s.Detail)
	}
	for _, f := range []struct {
		what string
		finding
	}{{"appliance", d.Appliance}, {"settings", d.Settings}} {
		text := f.Where
		if f.Detail != "" {
			text = f.Detail
		}
		line(f.what, f.OK, text)
	}
	d.DNS.print(w)
	d.Guard.print(w)
	fmt.Fprintln(w, d.Sandbox.Note)
}
