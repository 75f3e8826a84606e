package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"postern/launcher/backend"
	"postern/launcher/sandbox"
)

const probeUsage = `postern probe really puts up a sandbox and says what this host offers. It ends with 0
where commands can be wrapped, else 1. Unlike doctor it needs no appliance: it is for
hosts, which ask once, as they start.

  postern probe [--json]

`

// probeMain is postern probe.
func probeMain(args []string, stdout, stderr io.Writer) int {
	fs := pflag.NewFlagSet("probe", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	asJSON := fs.Bool("json", false, "print JSON: available, requiresInstall, note, hint, reason, detail, backend, …")
	if err := parseJSONFlag(fs, args); errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(stdout, probeUsage, fs.FlagUsages())
		return 0
	} else if err != nil {
		return refuse(stderr, err)
	}
	p := sandbox.Check(context.Background(), starting, nil)
	if *asJSON {
		_ = json.NewEncoder(stdout).Encode(p) // nothing to do about a stdout that is gone
	} else {
		fmt.Fprintln(stdout, printable(backend.StartLine(false, p.Available, p.Note, p.Hint)))
		if p.Detail != "" {
			fmt.Fprintln(stdout, printable(p.Detail))
		}
	}
	if !p.Available {
		return 1
	}
	return 0
}
