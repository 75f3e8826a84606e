package nameguard

// Check returns the rule that refuses op on the entry name in the directory whose real
// path in the sandbox is dir (absolute, clean, no trailing slash but for "/"), or nil.
// It allocates nothing for ASCII names. It is safe for concurrent use.
//
// The rename of a directory is asked about three times: Check with OpMoveAway at its old
// place, Check with OpMoveDirHere at its new one, and CheckMove.
func (r *Rules) Check(dir, name []byte, op Op) *Rule {
	if op == OpRemove && !r.trapRemove || r.isFree(dir) {
		return nil
	}
	if rule := r.check(r.roots, false, dir, name, op); rule != nil {
		return rule
	}
	for i := range r.starts {
		s := &r.starts[i]
		rest, ok := below(dir, s.at)
		switch {
		case !ok:
		case s.denied != nil:
			return s.denied
		default:
			if rule := r.check(s.states, s.packaged, rest, name, op); rule != nil {
				return rule
			}
		}
	}
	return nil
}

// CheckMove returns the rule that refuses to rename the directory fromName in fromDir to
// toName in toDir although both names are free: what was made in it where rules do not
// hold would come to where they do. An exchange asks both ways.
func (r *Rules) CheckMove(fromDir, fromName, toDir, toName []byte) *Rule {
	if from := r.freedIn(fromDir); from != nil && !r.isFree(toDir) {
		return &from.moveOut
	}
	if r.moveOut != nil && r.inPackages(fromDir, fromName) && !r.inPackages(toDir, toName) {
		return r.moveOut
	}
	return nil
}

// isFree reports whether no pattern holds in dir.
func (r *Rules) isFree(dir []byte) bool { return r.freedIn(dir) != nil }

// freedIn is the free directory that dir is, or lies in.
func (r *Rules) freedIn(dir []byte) *freed {
	for i := range r.free {
		if _, ok := below(dir, r.free[i].at); ok {
			return &r.free[i]
		}
	}
	return nil
}

// inPackages reports whether what is in the directory name of dir lies in packages under
// each of its paths.
func (r *Rules) inPackages(dir, name []byte) bool {
	if len(r.packages) == 0 {
		return false
	}
	if r.isPackages(name) {
		return true
	}
	if !r.anyPackages(dir) {
		return false
	}
	for i := range r.starts {
		s := &r.starts[i]
		if rest, ok := below(dir, s.at); ok && !s.packaged && !r.anyPackages(rest) {
			return false
		}
	}
	return true
}

func (r *Rules) anyPackages(path []byte) bool {
	for len(path) > 0 {
		var part []byte
		if part, path, _ = cutPart(path); r.isPackages(part) {
			return true
		}
	}
	return false
}

func (r *Rules) isPackages(name []byte) bool {
	for _, p := range r.packages { //nolint:modernize // slices.Contains would want a string, on the heap
		if string(name) == p {
			return true
		}
	}
	return false
}

// room is the memory of one walk: sets of states by turns, and a name in lower case.
type room struct {
	sets [2][16]*node
	name [maxBuffer]byte
}

// check walks from some states to dir and then to name in it. packaged says that a part
// of the way so far was the name of packages.
func (r *Rules) check(now states, packaged bool, dir, name []byte, op Op) *Rule {
	var m room
	for turn := 0; len(dir) > 0; {
		part, rest, ascii := cutPart(dir)
		if dir = rest; len(part) == 0 {
			continue
		}
		turn = 1 - turn
		now = now.step(part, ascii, r.first, m.name[:0], m.sets[turn][:0])
		if rule := now.forbidding(packaged); rule != nil {
			return rule
		}
		packaged = packaged || r.isPackages(part)
	}
	var last [16]*node
	now = now.step(name, isASCII(name), r.first, m.name[:0], last[:0])
	if rule := now.forbidding(packaged); rule != nil {
		return rule
	}
	return now.pinning(packaged, op)
}

// forbidding is a rule that ends in one of the states.
func (s states) forbidding(packaged bool) *Rule {
	for _, n := range s {
		if n.always != nil {
			return n.always
		}
		if n.outside != nil && !packaged {
			return n.outside
		}
	}
	return nil
}

// pinning is a rule that goes on from one of the states, for whose sake op is not done
// to what is there.
func (s states) pinning(packaged bool, op Op) *Rule {
	if op == OpMakeDir || op == OpRemove {
		return nil // what goes on finds nothing there that was not made by the rules
	}
	for _, n := range s {
		rule := n.pins
		if n.pinsOutside != nil && !packaged {
			rule = n.pinsOutside // the rules for everywhere say it less well
		}
		if rule != nil && (n.strict || !op.plain()) {
			return rule
		}
	}
	return nil
}

// cutPart is the first part of a path and what comes behind its slash.
func cutPart(path []byte) (part, rest []byte, ascii bool) {
	ascii = true
	for i, c := range path {
		if c == '/' {
			return path[:i], path[i+1:], ascii
		}
		ascii = ascii && c < 0x80
	}
	return path, nil, ascii
}
