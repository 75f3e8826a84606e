package session

import "slices"

// Replace lets next take the place of old, a generation of the same configuration with
// lists that were read again. It is a load that cannot fail any more: new connections
// are judged by next at once if it governs, and open tunnels that it refuses are cut.
//
// replaced is false, and nothing was done, when old is not in the registry: its
// configuration has gone, or has not started. governs is false when a newer one counts:
// what was read holds for nobody, unless that one is rolled back.
func (r *Registry) Replace(old, next *Generation) (replaced, governs bool) {
	r.reload.Lock()
	defer r.reload.Unlock()
	r.mu.Lock()
	i := slices.Index(r.gens, old)
	if i < 0 || next == nil || r.closing {
		r.mu.Unlock()
		return false, false
	}
	r.gens[i] = next
	governs = i == len(r.gens)-1
	all := r.govern()
	r.mu.Unlock()
	r.settle(all)
	if governs {
		for _, s := range all {
			s.front.recheck()
		}
	}
	return true, governs
}
