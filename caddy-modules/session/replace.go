package session

import "slices"

// Replace lets next take the place of old, a generation of the same configuration with
// lists that were read again. It is a load that cannot fail any more: new connections
// are judged by next at once, and if it governs, open tunnels that it refuses are cut.
// It reports false, and does nothing, when old is not in the registry: its
// configuration has gone, or has not started.
func (r *Registry) Replace(old, next *Generation) bool {
	r.reload.Lock()
	defer r.reload.Unlock()
	r.mu.Lock()
	i := slices.Index(r.gens, old)
	if i < 0 || next == nil || r.closing {
		r.mu.Unlock()
		return false
	}
	r.gens[i] = next
	governs := i == len(r.gens)-1
	all := r.govern()
	r.mu.Unlock()
	r.settle(all)
	if governs {
		for _, s := range all {
			s.front.recheck()
		}
	}
	return true
}
