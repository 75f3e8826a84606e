package gitgateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// seen are the events that the configuration's own handler was given.
var seen = make(chan caddy.Event, 64)

func init() { caddy.RegisterModule(noteHandler{}) }

// noteHandler is a handler of events as an operator would configure one.
type noteHandler struct{}

func (noteHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.postern_note", New: func() caddy.Module { return new(noteHandler) }}
}

func (noteHandler) Handle(_ context.Context, e caddy.Event) error {
	seen <- e
	return nil
}

// TestPushEvent: Caddy's own events tell of each push, as git_push, with the record.
func TestPushEvent(t *testing.T) {
	g := newGatewayTest(t, agentRules)
	err := caddy.Load(fmt.Appendf(nil, `{
		"admin": {"listen": "unix/%s/admin.sock|0600", "config": {"persist": false}},
		"logging": {"logs": {"default": {"level": "FATAL"}}},
		"apps": {
			"events": {"subscriptions": [{"events": ["git_push"], "handlers": [{"handler": "postern_note"}]}]},
			"egress": {"policies": {"agent": {}}, "local_hosts": ["git.internal", "more.internal"]},
			"http": {"servers": {"git": %s}}
		}
	}`, g.run, g.server("sandbox/git", g.app()+agentRules)), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ ref, outcome, rule string }{
		{"agent/x", "accepted", "push agent/**"}, {"feature", "refused", ""},
	} {
		_, _ = g.push(t, "acme/app", c.ref)
		select {
		case e := <-seen:
			refs, _ := e.Data["refs"].([]any)
			if e.Name() != "git_push" || e.Data["outcome"] != c.outcome || e.Data["session"] != "push" || e.Data["repository"] != "github.com/acme/app" || len(refs) != 1 {
				t.Fatalf("%s: %s %v", c.ref, e.Name(), e.Data)
			}
			ref := refs[0].(map[string]any)
			rule, _ := ref["rule"].(string)
			if ref["ref"] != "refs/heads/"+c.ref || rule != c.rule {
				t.Errorf("%s: %v", c.ref, ref)
			}
			for _, token := range g.forge.WriteTokens() {
				if strings.Contains(fmt.Sprint(e.Data), token.Value) {
					t.Error("the event tells the token")
				}
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: no event", c.ref)
		}
	}
}
