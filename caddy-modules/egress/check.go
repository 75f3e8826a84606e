package egress

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"postern/caddy-modules/policy"
)

// exitDenied is the exit status of a check with a denied host: 1 and 2 mean that
// there is no answer, for a wrong argument or a configuration with a fault.
const exitDenied = 3

func checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [--policy NAME] [--config FILE] [--adapter NAME] HOST[:PORT]…",
		Short: "Asks what a policy says of a host, and why",
		Long: `
Reads the configuration that 'caddy run' would load and prints for each host
whether the policy allows it, which rule decided, where that rule is written and
why. Without a port, 443 is meant. Nothing is looked up and nothing is connected
to; the addresses of an allowed name are judged when a session connects.

"asks" is a host that an approver has to allow first, and "reports" one that is let
through and logged, since its policy does not enforce.

The exit status is 0 if all get through, and 3 if any is denied or asked about.`,
		Args: cobra.MinimumNArgs(1),
	}
	name := cmd.Flags().StringP("policy", "p", "", "Policy to ask (default: the default policy)")
	config := cmd.Flags().StringP("config", "c", "", "Configuration file")
	adapter := cmd.Flags().StringP("adapter", "a", "", "Name of config adapter")
	cmd.RunE = caddycmd.WrapCommandFuncForCobra(func(_ caddycmd.Flags) (int, error) {
		app, own, err := loadApp(*config, *adapter)
		if err != nil {
			return caddy.ExitCodeFailedStartup, err
		}
		denied, err := app.check(cmd.OutOrStdout(), own, *name, cmd.Flags().Args())
		switch {
		case err != nil:
			return caddy.ExitCodeFailedStartup, err
		case denied > 0:
			// The verdicts have been printed; the status alone is left to tell.
			cmd.SilenceErrors = true
			return exitDenied, nil
		}
		return caddy.ExitCodeSuccess, nil
	})
	return cmd
}

// config is what the command reads of a whole configuration.
type config struct {
	Admin *caddy.AdminConfig `json:"admin"`
	Apps  struct {
		Egress json.RawMessage `json:"egress"`
		HTTP   struct {
			Servers map[string]struct {
				Listen []string `json:"listen"`
			} `json:"servers"`
		} `json:"http"`
	} `json:"apps"`
}

// loadApp reads the app from the file that `caddy run` would take, and the TCP
// addresses that the appliance would listen on.
func loadApp(file, adapter string) (*App, []netip.AddrPort, error) {
	data, used, _, err := caddycmd.LoadConfig(file, adapter)
	if err != nil {
		return nil, nil, err
	}
	if len(data) == 0 {
		return nil, nil, fmt.Errorf("no configuration: name one with --config, or run this beside a Caddyfile")
	}
	var cfg config
	if err := json.Unmarshal(data, &cfg); err != nil {
		return nil, nil, fmt.Errorf("decode %s: %w", used, err)
	}
	if cfg.Apps.Egress == nil {
		return nil, nil, fmt.Errorf("%s: %w", used, errNoApp)
	}
	app := new(App)
	// Strict, as Caddy decodes it.
	if err := caddy.StrictUnmarshalJSON(cfg.Apps.Egress, app); err != nil {
		return nil, nil, fmt.Errorf("decode app egress of %s: %w", used, err)
	}
	listen := []string{caddy.DefaultAdminListen}
	if cfg.Admin != nil {
		listen = nil
		if !cfg.Admin.Disabled && cfg.Admin.Listen != "" {
			listen = []string{cfg.Admin.Listen}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Apps.HTTP.Servers)) {
		listen = append(listen, cfg.Apps.HTTP.Servers[name].Listen...)
	}
	own, err := tcpAddrs(listen)
	return app, own, err
}

// check judges every target, prints one line each, and counts the denied ones.
func (app *App) check(w io.Writer, own []netip.AddrPort, name string, targets []string) (denied int, err error) {
	sets, byDefault, err := app.compile(ownAmong(own), true)
	if err != nil {
		return 0, err
	}
	if name == "" {
		name = byDefault
	}
	set := sets[name]
	if set == nil {
		return 0, fmt.Errorf("no policy %q: name one of %s", name, strings.Join(slices.Sorted(maps.Keys(sets)), ", "))
	}
	// All are parsed before one is judged: a misspelt last word should not hide
	// behind the answers before it.
	parsed := make([]policy.Target, 0, len(targets))
	for _, text := range targets {
		t, err := parseCheck(text)
		if err != nil {
			return 0, err
		}
		parsed = append(parsed, t)
	}
	locals, err := app.locals()
	if err != nil {
		return 0, err
	}
	for _, t := range parsed {
		if t.Port() == 80 && slices.Contains(locals, t.Host().Name()) {
			// Answered before any policy is asked.
			if _, err := fmt.Fprintf(w, "allowed  %s  the appliance answers it itself (local)\n", t); err != nil {
				return denied, err
			}
			continue
		}
		d := set.Decide(t)
		if a, ok := t.Host().Addr(); ok && d.Allowed {
			d = set.DecideAddr(t, a)
		}
		if !d.Allowed {
			denied++
		}
		if _, err := io.WriteString(w, verdict(name, t, d)); err != nil {
			return denied, err
		}
	}
	return denied, nil
}

// verdict is one answer: a line to read at a glance, and one that explains it.
func verdict(name string, t policy.Target, d policy.Decision) string {
	word := "denied "
	switch {
	case d.WouldDeny():
		word = "reports"
	case d.Allowed:
		word = "allowed"
	case d.Code == policy.AskFirst:
		word = "asks   "
	}
	line := fmt.Sprintf("%s  %s  policy %s", word, t, name)
	if d.Rule != "" {
		line += fmt.Sprintf("  rule %q", d.Rule)
	}
	if d.Source != "" {
		line += "  " + d.Source
	}
	line += "\n"
	return line + fmt.Sprintf("         %s: %s\n", d.Code, d.Reason())
}

// parseCheck reads HOST or HOST:PORT with the port's usual scheme.
func parseCheck(text string) (policy.Target, error) {
	if scheme, _, ok := strings.Cut(text, "://"); ok {
		return policy.Target{}, fmt.Errorf("parse %q: want HOST or HOST:PORT, without %s:// and path", text, scheme)
	}
	if h, err := policy.ParseHost(text); err == nil {
		return policy.NewTarget(h, 443, policy.SchemeTLS)
	}
	t, err := policy.ParseTarget(text, policy.SchemeTCP)
	if err != nil {
		return policy.Target{}, fmt.Errorf("parse %q: want HOST or HOST:PORT: %w", text, err)
	}
	switch t.Port() {
	case 443:
		return policy.NewTarget(t.Host(), 443, policy.SchemeTLS)
	case 80:
		return policy.NewTarget(t.Host(), 80, policy.SchemeHTTP)
	}
	return t, nil
}

// ownAmong is the check's own-listener test: the registry's needs a running
// appliance. A port of an unspecified address is taken on all of loopback.
func ownAmong(own []netip.AddrPort) policy.OwnFunc {
	return func(ap netip.AddrPort) bool {
		a := ap.Addr().WithZone("").Unmap()
		return slices.ContainsFunc(own, func(o netip.AddrPort) bool {
			return o.Port() == ap.Port() && (o.Addr() == a || o.Addr().IsUnspecified() && a.IsLoopback() || a.IsUnspecified())
		})
	}
}
