package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"postern/integration/netlab"
)

// Exit statuses.
const (
	exitPassed = 0
	exitFailed = 1 // a case failed
	exitUsage  = 2 // nothing could be said
)

// The outer program tells the inner one where the appliance is.
const (
	binaryVar  = "POSTERN_CONFORM_CADDY"
	scratchVar = "POSTERN_CONFORM_DIR"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program with its arguments, once outside the lab and once inside.
func run(args []string, stdout, stderr io.Writer) int {
	code, err := conform(args, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "conform: %v\n", err)
		return exitUsage
	}
	return code
}

var errUsage = errors.New("want conform egress|dns FILE")

func conform(args []string, stdout, stderr io.Writer) (int, error) {
	if len(args) < 2 || args[0] != "egress" && args[0] != "dns" {
		return exitUsage, errUsage
	}
	replay, err := reader(args[0])(args[1:])
	if err != nil {
		return exitUsage, err
	}
	if !netlab.Inside() {
		return outside(args, stdout, stderr)
	}
	lab, err := netlab.Enter()
	if err != nil {
		return exitUsage, fmt.Errorf("set up the lab: %w", err)
	}
	rep := &report{out: stdout}
	if err := replay(lab, rep); err != nil {
		return exitUsage, err
	}
	return rep.finish(), nil
}

// replayer replays the cases that were read, inside a lab.
type replayer func(*netlab.Lab, *report) error

// reader gives what reads case files of a kind.
func reader(kind string) func(files []string) (replayer, error) {
	if kind == "dns" {
		return func(files []string) (replayer, error) {
			cases, err := readDNSCases(files)
			return func(lab *netlab.Lab, rep *report) error { return replayDNS(lab, cases, rep) }, err
		}
	}
	return func(files []string) (replayer, error) {
		cases, err := readCases(files)
		return func(lab *netlab.Lab, rep *report) error { return replayEgress(lab, cases, rep) }, err
	}
}

// outside builds the appliance, since the lab has no network to fetch modules
// from, and runs this program again inside.
func outside(args []string, stdout, stderr io.Writer) (int, error) {
	dir, err := os.MkdirTemp("", "conform-")
	if err != nil {
		return exitUsage, fmt.Errorf("make directory: %w", err)
	}
	defer os.RemoveAll(dir)
	binary := os.Getenv(binaryVar)
	if binary == "" {
		binary = filepath.Join(dir, "caddy")
		if err := buildAppliance(binary); err != nil {
			return exitUsage, err
		}
		if err := os.Setenv(binaryVar, binary); err != nil {
			return exitUsage, err
		}
		defer os.Unsetenv(binaryVar)
	}
	if err := os.Setenv(scratchVar, dir); err != nil {
		return exitUsage, err
	}
	return netlab.Rerun(args, nil, stdout, stderr)
}

// buildAppliance uses the flags of the Makefile, so that both builds share
// their cache.
func buildAppliance(binary string) error {
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "postern/caddy-modules/caddy")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the appliance: %w\n%s", err, out)
	}
	return nil
}

func replayEgress(lab *netlab.Lab, cases []*testCase, rep *report) error {
	w, err := newWorld(lab, os.Getenv(binaryVar), os.Getenv(scratchVar), cases)
	if err != nil {
		return err
	}
	defer w.close()
	for _, c := range cases {
		// Once the appliance has gone nothing means anything, but the total
		// still has to be right.
		if err := w.alive(); err != nil {
			rep.add(c.ID, c.wanted(), result{failed: true, got: err.Error()})
			continue
		}
		rep.add(c.ID, c.wanted(), w.replay(c))
	}
	return nil
}

func replayDNS(lab *netlab.Lab, cases []*dnsCase, rep *report) error {
	w, err := newDNSWorld(lab, os.Getenv(binaryVar), os.Getenv(scratchVar), []uint16{80, 443}, func(log string) string {
		return dnsCaddyfile(defaultDNSOpts(), nil, log, 0)
	})
	if err != nil {
		return err
	}
	defer w.close()
	for i, res := range w.replayAll(cases) {
		rep.add(cases[i].ID, cases[i].wanted(), res)
	}
	return nil
}

// result is what became of a case.
type result struct {
	todo   string // not replayed: why
	got    string // what came, in words
	failed bool
}

// report writes the differing cases and the total.
type report struct {
	out            io.Writer
	passed, failed int
}

func (r *report) add(id, wanted string, res result) {
	switch {
	case res.todo != "":
		fmt.Fprintf(r.out, "%s: not yet (%s)\n", id, res.todo)
	case res.failed:
		fmt.Fprintf(r.out, "%s: expected %s, got %s\n", id, wanted, oneLine(res.got))
	default:
		r.passed++
		return
	}
	r.failed++
}

// finish writes the total and gives the exit status.
func (r *report) finish() int {
	fmt.Fprintf(r.out, "%d passed, %d failed\n", r.passed, r.failed)
	if r.failed > 0 {
		return exitFailed
	}
	return exitPassed
}
