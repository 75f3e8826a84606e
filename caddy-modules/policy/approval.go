package policy

import "context"

// approval is one target that an approver has opened for one connection.
type approval struct {
	target Target
	from   Origin
}

type approvalKey struct{}

// WithApproval has what is done under ctx judged as if the rules allowed t. It is
// how the yes for one connection reaches the lookup of its name and the check of
// its socket, which ask the policy for themselves.
func WithApproval(ctx context.Context, t Target, from Origin) context.Context {
	return context.WithValue(ctx, approvalKey{}, &approval{t, from})
}

// Approval is the target of WithApproval.
func Approval(ctx context.Context) (t Target, ok bool) {
	a, ok := ctx.Value(approvalKey{}).(*approval)
	if !ok {
		return Target{}, false
	}
	return a.target, true
}

// Approved is s as ctx has it: with the approved target opened while s itself
// would still ask about it, and s in every other case. An approval that s has come
// to deny is worth nothing any more.
func (s *Set) Approved(ctx context.Context) *Set {
	a, ok := ctx.Value(approvalKey{}).(*approval)
	if !ok {
		return s
	}
	if d := s.Decide(a.target); d.Allowed || d.Code != AskFirst {
		return s
	}
	next, err := s.Approve(a.target, a.from)
	if err != nil {
		return s
	}
	return next
}
