package gitgw

// Hold takes a seat as a look of a run does.
func (n *Inspections) Hold(run string) (leave func()) {
	s := n.queue(run, 1<<30, 1<<30)
	return s.leave
}

// Taken says what is in use, by all runs together.
func (n *Inspections) Taken() (kept int64, seats, waiting int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.kept, n.taken, len(n.waiting)
}
