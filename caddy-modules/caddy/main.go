// The caddy command is Caddy with its standard modules and Postern's.
//
// It does one thing before Caddy begins: it makes the run directory, a private
// folder (0700) for the sockets of this user's appliance, and moves the admin
// endpoint from TCP port 2019, which any local user may reach, to a socket in
// it. This must be in main, because the admin endpoint is bound before the first
// module is provisioned. The run directory is $POSTERN_RUN, else
// $XDG_RUNTIME_DIR/postern-UID, else /tmp/postern-UID; a Caddyfile reads it as
// {$POSTERN_RUN}. $CADDY_ADMIN is not looked at; a line "admin" in a Caddyfile is.
//
//	caddy run                        start, with the Caddyfile of this folder
//	caddy reload                     apply a change; live runs keep their tunnels
//	caddy egress check HOST[:PORT]…  ask what a policy says of a host, and why
//	caddy git check REPO REF         ask what the gateway says of a push
package main

import (
	"fmt"
	"os"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	// Operators expect every directive that Caddy's documentation names.
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "postern/caddy-modules"
	"postern/caddy-modules/egress"
)

func main() {
	if err := prepare(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(caddy.ExitCodeFailedStartup)
	}
	caddycmd.Main()
}

// prepare points Caddy at the run directory. Only a command that will listen
// there creates it: `caddy version` or `caddy fmt` leave nothing behind. One that
// exists is checked for every command, since `caddy reload` sends the whole
// configuration to whoever owns the socket in it.
func prepare(args []string) error {
	create := len(args) > 1 && (args[1] == "run" || args[1] == "start")
	dir, err := egress.RunDir(create)
	if err != nil {
		return err
	}
	if create {
		if err := egress.InUse(dir); err != nil {
			return err
		}
	}
	if err := os.Setenv(egress.RunDirEnv, dir); err != nil {
		return fmt.Errorf("export the run directory: %w", err)
	}
	caddy.DefaultAdminListen = egress.AdminListen(dir)
	return nil
}
