package gitgateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"postern/caddy-modules/egress"
	"postern/gitgw"
)

// Exit statuses of a check: 1 and 2 mean that there is no answer.
const (
	exitDenied = 3
	exitAsks   = 4
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "git",
		Short: "Asks about the git gateway",
		Long: `
Asks what the git gateway of a configuration says.`,
		CobraFunc: func(cmd *cobra.Command) { egress.Group(cmd, checkCommand()) },
	})
}

func checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [--action create|update|delete|force] [--config FILE] [--adapter NAME] REPO REF",
		Short: "Asks what the gateway says of a push, and why",
		Long: `
Reads the configuration that 'caddy run' would load and prints what its git
gateway says of a push to REF of REPO, which rule decides, where that rule is
written and why. REPO is HOST/OWNER/NAME; REF is a branch, tag:NAME for a tag, or
a full name below refs/. A rule source that the gateway has is asked as for a push,
without ids. Nothing is asked of the forge, and that a push goes to a
session's own or a linked repository is judged when it is made.

The verdict is allow (exit status 0), deny (3) or ask (4), for which an approver is
asked. Where a rule source gives no usable answer the cause is printed as well.`,
		Args: cobra.ExactArgs(2),
	}
	action := cmd.Flags().String("action", "create", "What the push does to the ref")
	var caller gitgw.Caller
	cmd.Flags().StringVar(&caller.Session, "session", "", "The session that a rule source is told of")
	cmd.Flags().StringVar(&caller.Agent, "agent", "", "The agent that a rule source is told of")
	cmd.Flags().StringVar(&caller.Workspace, "workspace", "", "The workspace that a rule source is told of")
	config := cmd.Flags().StringP("config", "c", "", "Configuration file")
	adapter := cmd.Flags().StringP("adapter", "a", "", "Name of config adapter")
	cmd.RunE = caddycmd.WrapCommandFuncForCobra(func(_ caddycmd.Flags) (int, error) {
		data, used, _, err := caddycmd.LoadConfig(*config, *adapter)
		if err != nil {
			return caddy.ExitCodeFailedStartup, err
		}
		if len(data) == 0 {
			return caddy.ExitCodeFailedStartup, errors.New("no configuration: name one with --config, or run this beside a Caddyfile")
		}
		args := cmd.Flags().Args()
		ctx, cancel := caddy.NewContext(caddy.Context{Context: cmd.Context()})
		defer cancel()
		status, err := check(ctx, cmd.OutOrStdout(), used, data, args[0], args[1], *action, caller)
		if err != nil {
			return caddy.ExitCodeFailedStartup, err
		}
		// The verdict has been printed; the status alone is left to tell.
		cmd.SilenceErrors = status != 0
		return status, nil
	})
	return cmd
}

// check prints the verdict of the one gateway that the configuration has. An error that
// is the configuration's begins with file.
func check(ctx caddy.Context, w io.Writer, file string, config []byte, repoText, refText, actionText string, caller gitgw.Caller) (status int, err error) {
	repo, err := gitgw.ParseRepo(repoText)
	if err != nil {
		return 0, err
	}
	ref, err := fullRef(refText)
	if err != nil {
		return 0, err
	}
	// An update is asked about as one that loses nothing; force is the other.
	update := gitgw.Update{Ref: ref, Forced: gitgw.ForcedNo}
	if err := update.Action.UnmarshalText([]byte(actionText)); err != nil {
		return 0, err
	}
	if strings.HasPrefix(ref, "refs/tags/") && update.Action == gitgw.ActionUpdate {
		update.Forced = gitgw.ForcedYes // as a push's head says it
	}
	handlers, err := findHandlers(config)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	if len(handlers) == 0 {
		return 0, fmt.Errorf("%s: the configuration has no git_gateway", file)
	}
	for i, h := range handlers {
		rules, forges, err := h.compile()
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		if i > 0 {
			_, _ = fmt.Fprintln(w)
		}
		source, err := h.ruleSource(ctx)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, placed(h.Places.Rules, err))
		}
		v, cause := gitgw.Judgement{}, error(nil)
		if _, known := findForge(forges, repo.Host()); known {
			gateway := &gitgw.Gateway{Rules: rules, Source: source}
			var judged []gitgw.Judgement
			judged, cause = gateway.Judge(ctx, caller, repo, nil, update)
			v = judged[0]
		} else {
			// The gateway asks nobody about such a push.
			v.Reason = fmt.Sprintf("unknown forge %s; known: %s", repo.Host(), strings.Join(hostsOf(forges), ", "))
		}
		if v.Kind == gitgw.Ask && h.ApproverRaw == nil {
			// What the gateway does where nobody can be asked.
			v.Kind = gitgw.Deny
			v.Hint = strings.TrimSpace("the configuration has no approver to ask; " + v.Hint)
		}
		if v.Kind != gitgw.Deny && h.TokenRaw == nil {
			// The rules are what was asked about; a file is checked where its secrets are not.
			v.Hint = strings.TrimSuffix("the gateway has no `token` yet, and refuses what its rules allow; "+v.Hint, "; ")
		}
		if _, err := io.WriteString(w, verdict(repo, update, v, cause)); err != nil {
			return 0, err
		}
		// Of several gateways the strictest answer counts: which one a session
		// reaches is decided by the sites, not here.
		switch {
		case v.Kind == gitgw.Deny:
			status = exitDenied
		case v.Kind == gitgw.Ask && status == 0:
			status = exitAsks
		}
	}
	return status, nil
}

// verdict is the answer: a line to read at a glance, and those that explain it. cause is
// why a rule source gave none: git is not told, the operator who asks is.
func verdict(repo gitgw.Repo, u gitgw.Update, v gitgw.Judgement, cause error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-5s  %s %s of %s", v.Kind, u.Action, u.Ref, repo)
	if v.Rule != "" {
		fmt.Fprintf(&b, "  rule %q", v.Rule)
	}
	if v.Source != "" {
		b.WriteString("  " + v.Source)
	}
	host := ""
	if v.Host != "" {
		host = "the rule source says " + v.Host
	}
	why := ""
	if inner := errors.Unwrap(cause); inner != nil {
		why = "cause: " + gitgw.RedactLine(inner.Error())
	}
	for _, text := range []string{v.Reason, why, v.Hint, host, v.Conditions.String()} {
		if text != "" {
			b.WriteString("\n       " + text)
		}
	}
	b.WriteByte('\n')
	return b.String()
}

// fullRef expands a ref as the rules do, and refuses a pattern: a check is about
// one ref.
func fullRef(text string) (string, error) {
	if strings.Contains(text, "*") {
		return "", fmt.Errorf("parse ref %q: want one ref, not a pattern", text)
	}
	if _, err := gitgw.ParseRefPattern(text); err != nil {
		return "", err
	}
	if tag, ok := strings.CutPrefix(text, "tag:"); ok {
		return "refs/tags/" + tag, nil
	}
	if strings.HasPrefix(text, "refs/") {
		return text, nil
	}
	return "refs/heads/" + text, nil
}

// findHandlers decodes every git_gateway of a configuration, wherever in its
// routes it stands.
func findHandlers(config []byte) ([]*Handler, error) {
	var tree struct {
		Apps map[string]any `json:"apps"`
	}
	if err := json.Unmarshal(config, &tree); err != nil {
		return nil, fmt.Errorf("decode configuration: %w", err)
	}
	var found []*Handler
	err := walk(tree.Apps["http"], func(object map[string]any) error {
		if object["handler"] != "git_gateway" {
			return nil
		}
		delete(object, "handler")
		data, err := json.Marshal(object)
		if err != nil {
			return err
		}
		h := new(Handler)
		// Strict, as Caddy decodes it.
		if err := caddy.StrictUnmarshalJSON(data, h); err != nil {
			return fmt.Errorf("decode git_gateway: %w", err)
		}
		found = append(found, h)
		return nil
	})
	return found, err
}

// walk calls f with every object of a decoded JSON value.
func walk(v any, f func(map[string]any) error) error {
	switch v := v.(type) {
	case map[string]any:
		if err := f(v); err != nil {
			return err
		}
		for _, child := range v {
			if err := walk(child, f); err != nil {
				return err
			}
		}
	case []any:
		for _, child := range v {
			if err := walk(child, f); err != nil {
				return err
			}
		}
	}
	return nil
}
