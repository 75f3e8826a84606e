// Command postern runs a command in a sandbox whose only way out is the appliance.
//
// It is small on purpose: it starts in milliseconds, once for every command an agent
// runs, and links neither the appliance nor git. What it does:
//
//   - run: looks at the folders the run may see, starts the sandbox (package
//     sandbox), lends the sandbox's two listeners to the appliance (package lease),
//     composes the environment (package environ) and git's configuration (package
//     gitconfig), starts the command, passes signals on, and ends with its status.
//     While the command runs it lends the listeners again whenever the appliance
//     was restarted.
//   - exec: the same for a program that runs agents, which says in JSON what the run may
//     do (package spec) and hears as JSON what happens.
//   - terminal: runs a person's shell, as it is or with the fixed profile for terminals.
//   - probe: really starts a sandbox, and says what this host offers.
//   - doctor: really starts a sandbox, and says what is in the way if it cannot.
//   - connect: joins its standard streams to a host through the run's SOCKS
//     listener; ssh uses it inside the sandbox.
//   - credential: asks the appliance for the run's read token; git uses it inside
//     the sandbox.
//
// Whatever keeps it from doing all of that makes it start nothing, print one line
// that names the reason, and end with 125.
package main

import (
	"fmt"
	"io"
	"os"

	"postern/launcher/sandbox"
)

// exitRefused is for everything that is the launcher's own failure, bad usage
// included, so that it is told from the command's.
const exitRefused = sandbox.ExitRefused

const usage = `postern runs a command in a sandbox whose only way out is the appliance.

  postern run [FLAG]… -- CMD [ARG]…    run CMD in a sandbox
  postern exec --spec FILE -- CMD …    run CMD as a host's spec says, and tell the host by events
  postern terminal [-- SHELL [ARG]…]   run your shell, in a sandbox for terminals if asked
  postern doctor                       try the sandbox, say what is in its way
  postern probe                        say what sandbox this system offers, without an appliance
  postern connect HOST PORT            inside a run: reach HOST through its SOCKS proxy
  postern credential GATEWAY get       inside a run: git's credential helper
  postern version                      print the version

"postern COMMAND --help" says more.
`

func main() { os.Exit(dispatch(os.Args[1:], os.Stdout, os.Stderr)) }

// dispatch runs one subcommand and returns the status to exit with.
func dispatch(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitRefused
	}
	name, args := args[0], args[1:]
	switch name {
	case sandbox.InitCommand:
		return sandbox.Init(args)
	case connectCommand, "connect":
		return connectMain(args, os.Stdin, stdout, stderr)
	case credentialCommand:
		return credentialMain(args, os.Stdin, stdout, stderr)
	case "run":
		return runMain(args, stdout, stderr)
	case "exec":
		return execMain(args, stdout, stderr)
	case "probe":
		return probeMain(args, stdout, stderr)
	case "terminal":
		return terminalMain(args, stdout, stderr)
	case "doctor":
		return doctorMain(args, stdout, stderr)
	case "version", "--version":
		fmt.Fprintln(stdout, version())
		return 0
	case "help", "--help", "-h":
		if len(args) > 0 && args[0] != "help" {
			return dispatch([]string{args[0], "--help"}, stdout, stderr)
		}
		fmt.Fprint(stdout, usage)
		return 0
	}
	fmt.Fprintf(stderr, "postern: unknown command %q\n\n%s", name, usage)
	return exitRefused
}
