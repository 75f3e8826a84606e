package proxy

import (
	"net/http"
	"strings"

	"postern/caddy-modules/policy"
)

// pushGoesElsewhere is a signpost, and no fence: a push that goes straight to a
// forge fails there for want of a credential, in words that say nothing of the
// gateway. Where the request can be read, which is without TLS, it is answered here
// instead, and git shows the answer. Only what the policy allows is told so; the
// rest has the policy's own reason.
func (f *flow) pushGoesElsewhere(ru *ruling, path string) (decision policy.Decision, address string, yes bool) {
	if f.s.PushAt == nil {
		return decision, "", false
	}
	repository, ok := pushPath(path)
	if !ok || ru.local != nil || !ru.decision.Allowed {
		return decision, "", false
	}
	gateway, ok := f.s.PushAt(ru.target)
	if !ok {
		return decision, "", false
	}
	// The trail names the gateway alone: the path is the client's own words.
	return policy.RefusePush(ru.target, gateway), gateway + repository, true
}

// pushPath finds the repository in the path of a request that belongs to a push
// over smart HTTP.
func pushPath(path string) (repository string, ok bool) {
	const service = "git-receive-pack"
	if !strings.Contains(path, service) {
		return "", false // nearly every request there is
	}
	path, query, _ := strings.Cut(path, "?")
	repository, ok = strings.CutSuffix(path, "/"+service)
	if !ok {
		repository, ok = strings.CutSuffix(path, "/info/refs")
		ok = ok && strings.Contains("&"+query+"&", "&service="+service+"&")
	}
	repository = strings.TrimPrefix(repository, "/")
	return repository, ok && repository != ""
}

// refusePush answers a request of a push that belongs elsewhere.
func (f *flow) refusePush(t policy.Target, d policy.Decision, address string) bool {
	if f.inside != nil {
		f.inside.told = true
	}
	f.s.count.denied.Add(1)
	f.record(Record{Kind: KindDecision, Proto: f.proto, Target: t, Decision: d})
	// git prints each line of a text/plain answer after `remote:`.
	return f.say(reply{
		status: http.StatusForbidden, phrase: d.Reason(), decision: "denied", reason: d.Code.String(),
		body: printable("Postern: pushes to " + t.Host().String() + " go through this run's push gateway.\nPush to " + address + "\n"),
		// Content that nobody will read is not waited for.
		close: f.req.close || f.req.hasBody(),
	})
}
