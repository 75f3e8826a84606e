package egress

import (
	"maps"

	"postern/caddy-modules/session/lease"
)

// eventName is how Caddy's event app knows an event: names there are shared by
// all modules, so ours say whose they are.
func eventName(kind string) string {
	switch kind {
	case lease.EventPush:
		return "git_push"
	case lease.EventReady, lease.EventExit, lease.EventKilled, lease.EventViolation:
		return "sandbox_" + kind
	default:
		return "egress_" + kind
	}
}

// emit hands an event to Caddy. Handlers run synchronously, and an operator may
// have written slow ones; the registry therefore calls this from one goroutine
// behind a bounded queue, never from a connection's.
func (app *App) emit(e lease.Event) {
	count(e)
	name := eventName(e.Type)
	// An event of a cancelled context is an error in the log. One that was still
	// queued when its configuration went has nobody to be told.
	if app.ctx.Err() != nil || !app.events.ShouldEmit(name) {
		return
	}
	// A copy: the map is shared with the subscribers of the control API.
	data := make(map[string]any, len(e.Fields)+2)
	maps.Copy(data, e.Fields)
	data["time"], data["session"] = e.Time, e.Session
	app.events.Emit(app.ctx, name, data)
}
