package egress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"postern/caddy-modules/session/lease"
	"postern/configs"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "egress",
		Short: "Asks about policies and sessions",
		Long: `
Asks what the policies of a configuration say, and which sessions are open.`,
		CobraFunc: func(cmd *cobra.Command) {
			Group(cmd, checkCommand(), sessionsCommand(), listsCommand(), learnCommand())
		},
	})
}

// Group puts commands below cmd, which does nothing by itself. A word that is none of
// them is a mistake with a status: "egress chek HOST" must not pass for "allowed".
func Group(cmd *cobra.Command, commands ...*cobra.Command) {
	cmd.AddCommand(commands...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("unknown command %q; see %s --help", args[0], cmd.CommandPath())
		}
		return cmd.Help()
	}
}

func sessionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sessions [--json]",
		Short: "Lists the open sessions of this user's appliance",
		Long: `
Lists the open sessions of the appliance that runs as this user. It asks the
control socket in the run directory ($POSTERN_RUN).`,
		Args: cobra.NoArgs,
	}
	asJSON := cmd.Flags().Bool("json", false, "Print the answer as it comes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := RunDir(false)
		if err != nil {
			return err
		}
		data, err := controlGet(cmd.Context(), filepath.Join(dir, "control.sock"), "/v1/sessions")
		if err != nil {
			return err
		}
		if *asJSON {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(string(data)))
			return err
		}
		return printSessions(cmd.OutOrStdout(), data)
	}
	return cmd
}

// controlGet makes one request to the control API.
func controlGet(ctx context.Context, socket, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://postern"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the appliance (is `caddy run` running?): %w", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("read the appliance's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask the appliance: %s: %s", resp.Status, strings.TrimSpace(string(data)))
	}
	return data, nil
}

func printSessions(w io.Writer, data []byte) error {
	var answer struct {
		Sessions []lease.Info `json:"sessions"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return fmt.Errorf("decode the appliance's answer: %w", err)
	}
	if len(answer.Sessions) == 0 {
		_, err := fmt.Fprintln(w, "no session is open")
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "ID\tKIND\tPOLICY\tREPOSITORY\tHTTP\tSOCKS\tTUNNELS\tDENIED\tSINCE")
	for _, s := range answer.Sessions {
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", s.ID, s.Kind, policyLabel(s), dash(s.Repository),
			s.HTTP, s.SOCKS, s.Tunnels, s.Denied, s.Opened.Local().Format(time.DateTime))
	}
	return tw.Flush()
}

func policyLabel(s lease.Info) string {
	switch {
	case s.Refusing != "":
		return s.Policy + " (refuses everything: " + s.Refusing + ")"
	case !s.NetworkEnabled:
		return s.Policy + " (network off)"
	}
	return s.Policy
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func listsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lists DIR",
		Short: "Writes the built-in lists to a folder, for editing",
		Long: `
Writes the built-in lists below DIR as allow/*.list and deny/*.list. A Caddyfile
beside DIR imports them with "import DIR/allow/*.list". A file that exists is
never overwritten: the command then writes nothing at all.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeLists(cmd.OutOrStdout(), args[0])
		},
	}
}

// writeLists copies every embedded list, or none where one is in the way.
func writeLists(w io.Writer, dir string) error {
	names := append(configs.Lists("allow"), configs.Lists("deny")...)
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("write lists: %s exists; remove it or choose another folder", filepath.Join(dir, name))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("write lists: %w", err)
		}
	}
	for _, name := range names {
		data, err := configs.FS.ReadFile(name)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // lists hold no secrets
			return fmt.Errorf("write lists: %w", err)
		}
		if err := writeNew(path, data, 0o644); err != nil {
			return fmt.Errorf("write lists: %w", err)
		}
		_, _ = fmt.Fprintln(w, path)
	}
	return nil
}

// writeNew never overwrites: a list that somebody has edited is his. O_EXCL holds the
// promise against whoever else writes there now.
func writeNew(path string, data []byte, perm os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
