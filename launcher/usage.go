package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"postern/launcher/sandbox"
)

// misused is what a command says of its own command line.
func misused(command string, err error) error {
	return &sandbox.Refusal{Reason: reasonUsage, Detail: err.Error(), Cure: "see postern " + command + " --help"}
}

// parseFlags reads args and words what is wrong with them. That a flag has swallowed the
// dashes before the command is a slip, never a value: the command would be another.
func parseFlags(fs *pflag.FlagSet, args []string) error {
	if err := fs.Parse(args); err != nil {
		return wordFlag(err)
	}
	var err error
	fs.Visit(func(f *pflag.Flag) {
		said := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			said = list.GetSlice()
		}
		if slices.Contains(said, "--") && !slices.Contains(args, "--"+f.Name+"=--") {
			err = errors.Join(err, fmt.Errorf("--%s has no value, but -- behind it", f.Name))
		}
	})
	return err
}

// wordFlag takes the parser's own words out of an error: a reader does not know them.
func wordFlag(err error) error {
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	want := map[string]string{"bool": "true or false", "int": "a number", "duration": "a time with its unit, as 90s or 10m"}
	f := bad.GetFlag()
	if text := want[f.Value.Type()]; text != "" {
		return fmt.Errorf("--%s %q: want %s", f.Name, bad.GetValue(), text)
	}
	return fmt.Errorf("--%s %q: %s", f.Name, bad.GetValue(), strings.TrimSpace(bad.Unwrap().Error()))
}

// parseJSONFlag reads the command line of a command that has --json and nothing else.
// The error is pflag.ErrHelp when help was asked for.
func parseJSONFlag(fs *pflag.FlagSet, args []string) error {
	err := parseFlags(fs, args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case err != nil:
		return misused(fs.Name(), err)
	case fs.NArg() > 0:
		return misused(fs.Name(), fmt.Errorf("%q is too much: it takes no argument", fs.Arg(0)))
	}
	return nil
}
