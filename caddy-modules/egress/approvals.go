package egress

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/session"
)

// setApprovals completes the generation with whom to ask and where "always" goes. It
// is called when the configuration starts: only then is it known what gateways there
// are.
func (app *App) setApprovals() error {
	asker, err := app.hostApprover()
	if err != nil {
		return err
	}
	if asker != nil {
		app.gen.Approvals.Asker, app.gen.Approvals.Wait = hostAsker{asker.approver}, asker.wait
	}
	for _, name := range slices.Sorted(maps.Keys(app.Policies)) {
		if pol := app.Policies[name]; asker == nil && (pol.AskAny || len(pol.Ask) > 0) {
			app.log.LogAttrs(app.ctx, slog.LevelWarn, "the policy asks an approver, and there is none, so that it refuses what it asks about; add `approver` to the egress block",
				slog.String("policy", name))
		}
	}
	app.gen.Approvals.Always = map[string]func(policy.Target, string, string, func(error)) error{}
	for name, pol := range app.Policies {
		if pol.AlwaysList != "" {
			app.gen.Approvals.Always[name] = app.addAlways(alwaysList{pol.AlwaysList})
		}
	}
	return nil
}

// checkAlways refuses lists for approvals that are not the operator's alone, or that
// their policy does not read: what was approved for always would hold for nobody.
func (app *App) checkAlways() error {
	for _, name := range slices.Sorted(maps.Keys(app.Policies)) {
		pol := app.Policies[name]
		switch {
		case pol == nil || pol.AlwaysList == "":
			continue
		case !slices.Contains(pol.AllowFiles, pol.AlwaysList):
			return fmt.Errorf("policy %s: always_list %s is none of the lists that the policy reads; add `list %s`", name, pol.AlwaysList, pol.AlwaysList)
		case len(pol.Ask) == 0 && !pol.AskAny:
			return fmt.Errorf("policy %s has an always_list and asks about nothing; add ask", name)
		}
		if err := (alwaysList{pol.AlwaysList}).check(); err != nil {
			return fmt.Errorf("policy %s: %w", name, err)
		}
	}
	return nil
}

// statAlways notes what the lists for approvals are at the moment.
func (app *App) statAlways() map[string]fs.FileInfo {
	seen := map[string]fs.FileInfo{}
	for _, pol := range app.Policies {
		if pol == nil || pol.AlwaysList == "" {
			continue
		}
		if info, err := os.Stat(pol.AlwaysList); err == nil {
			seen[pol.AlwaysList] = info
		}
	}
	return seen
}

// catchUp has the lists read again if somebody was let in for always between the reading
// of this configuration and its start: the one before wrote that down, and thinks that
// it holds.
func (app *App) catchUp() {
	if maps.EqualFunc(app.always, app.statAlways(), sameFile) {
		return
	}
	app.reread(func(err error) {
		if err != nil && !errors.Is(err, errReplaced) {
			app.log.LogAttrs(app.ctx, slog.LevelError, "an approval for always is in its list, and not in force", slog.Any("error", err))
		}
	})
}

// addAlways writes approved targets to a list, and has the lists read again.
func (app *App) addAlways(list alwaysList) func(policy.Target, string, string, func(error)) error {
	return func(t policy.Target, by, session string, loaded func(error)) error {
		added, err := list.add(t, approval{by: by, session: session, at: time.Now()})
		if err != nil {
			return err
		}
		if added {
			app.log.LogAttrs(app.ctx, slog.LevelInfo, "approved for always", slog.String("target", t.String()), slog.String("by", by),
				slog.String("session", session), slog.String("list", list.path))
		}
		app.reread(loaded)
		return nil
	}
}

// reread has the lists of this configuration read again by one goroutine, however many
// want it, and tells each of them how it went. It is no reload of Caddy, of whose
// configuration nothing has changed: that would hold up, and could fail for, what has
// nothing to do with it.
func (app *App) reread(done func(error)) {
	app.mu.Lock()
	defer app.mu.Unlock()
	app.rereaders = append(app.rereaders, done)
	if len(app.rereaders) > 1 {
		return // whoever is at it looks again
	}
	go func() {
		for {
			app.mu.Lock()
			wanted := slices.Clone(app.rereaders)
			app.mu.Unlock()
			err := app.rereadNow()
			for _, f := range wanted {
				f(err)
			}
			app.mu.Lock()
			app.rereaders = slices.Delete(app.rereaders, 0, len(wanted))
			over := len(app.rereaders) == 0
			app.mu.Unlock()
			if over {
				return
			}
		}
	}()
}

// errReplaced says that the lists were read for nobody: what governs has read them
// before.
var errReplaced = errors.New("read the lists again: another configuration governs by now")

func (app *App) rereadNow() error {
	policies, name, err := app.compile(app.registry.Own, true)
	if err != nil {
		return fmt.Errorf("read the lists again: %w", err)
	}
	app.mu.Lock()
	before := app.gen
	app.mu.Unlock()
	next := *before
	next.Policies, next.DefaultPolicy = policies, name
	// Stop must find the one that is in the registry.
	app.mu.Lock()
	defer app.mu.Unlock()
	if app.stopped {
		return errReplaced
	}
	replaced, governs := app.registry.Replace(before, &next)
	if !replaced {
		return errReplaced
	}
	app.gen = &next
	if !governs {
		return errReplaced
	}
	return nil
}

// retire is the generation as the registry has it, and ends the reading of lists: one
// put in its place after this would govern for ever.
func (app *App) retire() *session.Generation {
	app.mu.Lock()
	defer app.mu.Unlock()
	app.stopped = true
	return app.gen
}
