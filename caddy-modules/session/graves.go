package session

import (
	"fmt"
	"slices"
	"time"

	"postern/caddy-modules/session/lease"
)

// maxGraves bounds what is remembered of sessions that were ended on request. A
// host that ends more of them forgets the oldest.
const maxGraves = 1024

// graves remember the ids that were ended on request, so that no launcher brings
// them back: neither one that takes the end for an accident nor one that means
// to. They are the process's; mu of the registry guards them.
type graves struct {
	byID  map[string]grave
	order []string // oldest first
}

type grave struct {
	holder lease.Process // the launcher, none where the session had none
	since  time.Time
}

// bury remembers that id was ended on request now.
func (g *graves) bury(id string, holder lease.Process) {
	if g.byID == nil {
		g.byID = map[string]grave{}
	}
	g.forget(id)
	if len(g.order) >= maxGraves {
		g.forget(g.order[0])
	}
	g.byID[id] = grave{holder: holder, since: time.Now()}
	g.order = append(g.order, id)
}

func (g *graves) forget(id string) {
	if _, there := g.byID[id]; !there {
		return
	}
	delete(g.byID, id)
	g.order = slices.Delete(g.order, slices.Index(g.order, id), slices.Index(g.order, id)+1)
}

// refuse returns why a lease may not be granted. A launcher that resumes means
// the session that was ended, whoever it is. One that does not may be another run
// with the same id, but only when the run before has gone: as long as its
// launcher lives, what it starts passes for it.
func (g *graves) refuse(id string, resumes bool) *lease.Error {
	was, there := g.byID[id]
	if !there {
		return nil
	}
	if resumes || was.holder.Alive() {
		return &lease.Error{Code: lease.CodeEnded, Message: fmt.Sprintf(
			"session %q was ended on request at %s; its run has no network and no pushes any more, start another one", id, was.since.Format(time.TimeOnly))}
	}
	g.forget(id)
	return nil
}
