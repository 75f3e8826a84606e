package gitgw

import (
	"errors"
	"fmt"

	"postern/gitgw/pack"
)

// maxAsked is how many commits outside the pack a forge is asked about for one ref.
const maxAsked = 8

// maxEdge is how many commits outside the pack a walk may come to: a commit of a few
// megabytes names a hundred thousand, and each is remembered.
const maxEdge = 10_000

// isForced reports whether an update loses commits: whether its old value is not
// among the ancestors of its new one. The pack's own commits mostly tell; where they
// lead out of it without having met the old value, the forge compares. Whatever it
// cannot compare is an error.
func (in *inspection) isForced(u Update) (bool, error) {
	from, ok1 := pack.ParseID(u.Old)
	to, ok2 := pack.ParseID(u.New)
	if !ok1 || !ok2 {
		return false, errors.New("malformed id")
	}
	if from == to {
		return false, nil
	}
	edge, met, err := in.walk(to, from)
	if err != nil || met {
		return false, err
	}
	if len(edge) > maxAsked {
		return false, fmt.Errorf("it leads to %d commits outside the pack", len(edge))
	}
	for _, id := range edge {
		ahead, err := in.forge.descends(in.pack.Hex(id), u.Old)
		if err != nil {
			return false, err
		}
		if ahead {
			return false, nil
		}
	}
	// Every way out of the pack was asked about, or there is none: a history of
	// its own.
	return true, nil
}

// walk goes back from a commit through the pack. met means that it came by stop;
// otherwise edge are the commits outside the pack that it came to, first parents
// first.
func (in *inspection) walk(start, stop pack.ID) (edge []pack.ID, met bool, err error) {
	seen := map[pack.ID]bool{start: true}
	queue := []pack.ID{start}
	for len(queue) > 0 {
		id := queue[0]
		queue = queue[1:]
		if id == stop {
			return nil, true, nil
		}
		c, ok, err := in.commit(id)
		if err != nil {
			return nil, false, err
		}
		if !ok {
			edge = append(edge, id)
			continue
		}
		for _, parent := range c.Parents {
			if !seen[parent] {
				if len(seen) > in.pack.Len()+maxEdge {
					return nil, false, fmt.Errorf("it leads to more than %d commits outside the pack", maxEdge)
				}
				seen[parent] = true
				queue = append(queue, parent)
			}
		}
	}
	return edge, false, nil
}
